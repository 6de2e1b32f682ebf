"""Everything here needs Triton, which there is for Linux only."""

import pytest

pytest.importorskip("triton")

from adadecay.gpu import DEVICES


@pytest.fixture(autouse=True)
def _cpu_tensors_stand_for_those_of_a_gpu(request):
    if "device" in request.fixturenames:  # a test of a real one
        yield
        return
    DEVICES.clear()
    DEVICES.add("cpu")
    yield
    DEVICES.clear()
    DEVICES.add("cuda")
