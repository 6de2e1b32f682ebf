"""What the kernel's tests share: the library's table of problems, and the forms."""

import sys
from pathlib import Path

import pytest

from adadecay import kernels

sys.path.append(str(Path(__file__).parent.parent / "library"))

FORMS = kernels.native.forms() if kernels.native else ["absent"]


@pytest.fixture(params=FORMS)
def form(request):
    """Each form that this CPU can run, in turn."""
    if kernels.native is None:
        pytest.skip(f"no kernel here: {kernels.absence()}")
    before = kernels.native.form()
    kernels.native.choose(request.param)
    yield request.param
    kernels.native.choose(before)


@pytest.fixture
def kernel():
    """The kernel in the form that it chose."""
    if kernels.native is None:
        pytest.skip(f"no kernel here: {kernels.absence()}")
    return kernels.native
