"""AdaDecay in timm's registry of optimizers.

In: nothing. Out: after ``register()``, ``timm.optim.create_optimizer_v2(model,
"adadecay", ...)`` and ``--opt adadecay`` of timm's scripts make an AdaDecay.
"""

from typing import Any

from adadecay.optimizer import AdaDecay


def register(registry: Any = None) -> None:
    """Enter ``adadecay`` and ``adadecaydecoupled`` into timm's registry.

    Args:
        registry: another registry than timm's default one.
    """
    from timm.optim import OptimInfo
    from timm.optim._optim_factory import default_registry

    about = "SGD in which every weight decays at its own rate"
    has = {"has_eps": False, "has_momentum": True, "has_betas": False}
    for name, decoupled in (("adadecay", False), ("adadecaydecoupled", True)):
        defaults = {"nesterov": True, "decoupled": decoupled}
        info = OptimInfo(name, AdaDecay, about, **has, defaults=defaults)
        (registry or default_registry).register(info)
