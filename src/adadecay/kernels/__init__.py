"""The native CPU kernel: whether it is here, and for which instruction set.

One module, ``_native``, is compiled at install time where there is a compiler; it holds
the step for three instruction sets (AVX-512, AVX2, plain) and picks the fastest that
this CPU can run. The environment variable ``ADADECAY_KERNEL`` names another, or
``none``. Nothing here needs torch.
"""

import importlib
import os
from typing import Any

VARIABLE = "ADADECAY_KERNEL"
INSTRUCTION_SETS = ("avx512", "avx2", "plain")


def _load() -> tuple[Any, str | None]:
    """Return the module, or None and the reason in one sentence."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "none":
        return None, f"{VARIABLE}=none turns it off; unset the variable to use it"
    if wanted and wanted not in INSTRUCTION_SETS:
        allowed = ", ".join(INSTRUCTION_SETS)
        raise ValueError(f"{VARIABLE}={wanted!r} must be one of {allowed} or none")
    try:
        module = importlib.import_module("adadecay.kernels._native")
    except ImportError as error:
        reason = "this build of adadecay has no native kernel"
        advice = "reinstall adadecay on a machine with a C++17 compiler"
        return None, f"{reason} ({error}); {advice}, or leave fused=None"
    if wanted and wanted not in module.forms():
        able = ", ".join(module.forms())
        raise ValueError(f"{VARIABLE}={wanted} needs a CPU that has it; here: {able}")
    if wanted:
        module.choose(wanted)
    return module, None


kernel, unavailable_reason = _load()
