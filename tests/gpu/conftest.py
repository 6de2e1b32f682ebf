"""CPU tensors stand for those of a GPU here, but in tests of a real device."""

import importlib.util

import pytest

from adadecay.gpu import DEVICES

# Triton is for Linux only, where the lock file brings it.
collect_ignore_glob = []
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob.append("test_*.py")


@pytest.fixture(autouse=True)
def _emulated(request):
    if "device" in request.fixturenames:
        yield
        return
    DEVICES.clear()
    DEVICES.add("cpu")
    yield
    DEVICES.clear()
    DEVICES.add("cuda")
