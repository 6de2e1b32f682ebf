"""The native CPU kernel behind the fused path: whether it is here, and in which form.

One module, ``_native``, is compiled at install time where there is a compiler; it holds
the step in three forms (AVX-512, AVX2, plain) and picks the fastest that this CPU can
run. The environment variable ``ADADECAY_KERNEL`` names another form, or ``none``. In:
nothing but that variable. Out: ``native``, the module or None. None of it needs torch.
"""

import importlib
import os
from types import ModuleType

VARIABLE = "ADADECAY_KERNEL"
FORMS = ("avx512", "avx2", "plain")


def _load() -> tuple[ModuleType | None, str]:
    """Give the module, or None and the reason in one sentence."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "none":
        return None, f"{VARIABLE}=none switches it off; unset it"
    if wanted and wanted not in FORMS:
        allowed = ", ".join(FORMS)
        raise ValueError(f"{VARIABLE}={wanted!r} must be one of {allowed} or none")
    try:
        module = importlib.import_module("adadecay.kernels._native")
    except ImportError as error:
        reason = "this build of adadecay has no native kernel"
        advice = "reinstall adadecay where a C++17 compiler is, or leave fused=None"
        return None, f"{reason} ({error}); {advice}"
    if wanted and wanted not in module.forms():
        able = ", ".join(module.forms())
        raise ValueError(f"{VARIABLE}={wanted} needs a CPU that has it; here: {able}")
    if wanted:
        module.choose(wanted)
    return module, ""


native, _reason = _load()


def available() -> bool:
    """Tell whether the kernel is present and usable on this machine."""
    return native is not None


def absence() -> str:
    """Say in one sentence why the kernel is not available, and what would help."""
    return _reason


def form() -> str | None:
    """Name the form in use: ``avx512``, ``avx2`` or ``plain``; None without kernel."""
    return None if native is None else str(native.form())
