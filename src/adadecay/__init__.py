"""Adaptive weight decay: every weight decays at its own rate, at every step.

The table of contents; each name is imported when it is first used, so that importing
the package, and asking the command line for help, does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from adadecay.audit import audit_decay
    from adadecay.layers import by_module, param_groups
    from adadecay.optimizer import AdaDecay
    from adadecay.theta import decay_rates
    from adadecay.wrap import adaptive_decay

LAZY = {
    "AdaDecay": "adadecay.optimizer",
    "adaptive_decay": "adadecay.wrap",
    "audit_decay": "adadecay.audit",
    "by_module": "adadecay.layers",
    "decay_rates": "adadecay.theta",
    "param_groups": "adadecay.layers",
}

__all__ = [
    "AdaDecay",
    "__version__",
    "adaptive_decay",
    "audit_decay",
    "by_module",
    "decay_rates",
    "param_groups",
]


def __getattr__(name: str) -> object:
    if name not in LAZY:
        raise AttributeError(f"module 'adadecay' has no attribute {name!r}")
    value = getattr(import_module(LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
