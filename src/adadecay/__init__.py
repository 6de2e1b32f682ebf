"""Adaptive weight decay: every weight decays at its own rate, at every step.

The table of contents; each name is imported when it is first used, so that importing
the package, and asking the command line for help, does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from adadecay.audit import audit_decay as audit_decay
    from adadecay.groups import by_module as by_module
    from adadecay.groups import param_groups as param_groups
    from adadecay.optimizer import AdaDecay as AdaDecay
    from adadecay.theta import decay_rates as decay_rates
    from adadecay.wrap import adaptive_decay as adaptive_decay

LAZY = {
    "AdaDecay": "adadecay.optimizer",
    "adaptive_decay": "adadecay.wrap",
    "audit_decay": "adadecay.audit",
    "by_module": "adadecay.groups",
    "decay_rates": "adadecay.theta",
    "param_groups": "adadecay.groups",
}
__all__ = ["__version__"]
__all__ += list(LAZY)


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("adadecay")
    elif name in LAZY:
        value = getattr(import_module(LAZY[name]), name)
    else:
        raise AttributeError(f"module 'adadecay' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
