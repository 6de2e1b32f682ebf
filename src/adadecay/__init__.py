"""Adaptive weight decay: every weight decays at its own rate, at every step.

The table of contents; each name is imported when it is first used, so that importing
the package, and asking the command line for help, does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from adadecay.groups import param_groups
    from adadecay.layers import by_module
    from adadecay.optimizer import AdaDecay
    from adadecay.rates import decay_rates
    from adadecay.wrap import adaptive_decay

_HOMES = {
    "AdaDecay": "adadecay.optimizer",
    "adaptive_decay": "adadecay.wrap",
    "by_module": "adadecay.layers",
    "decay_rates": "adadecay.rates",
    "param_groups": "adadecay.groups",
}

__all__ = [
    "AdaDecay",
    "__version__",
    "adaptive_decay",
    "by_module",
    "decay_rates",
    "param_groups",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'adadecay' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
