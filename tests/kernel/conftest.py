"""What the kernel's tests share: the library's table of problems, and the forms."""

import sys
from pathlib import Path

import pytest

from adadecay import native

sys.path.append(str(Path(__file__).parent.parent / "library"))

FORMS = native.kernel.forms() if native.kernel else ["absent"]


@pytest.fixture(params=FORMS)
def form(request):
    """Each form that this CPU can run, in turn."""
    if native.kernel is None:
        pytest.skip(f"no kernel here: {native.unavailable_reason}")
    before = native.kernel.form()
    native.kernel.choose(request.param)
    yield request.param
    native.kernel.choose(before)


@pytest.fixture
def kernel():
    """The kernel in the form that it chose."""
    if native.kernel is None:
        pytest.skip(f"no kernel here: {native.unavailable_reason}")
    return native.kernel
