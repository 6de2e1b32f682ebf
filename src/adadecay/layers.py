"""What a layer is, and which parameters decay.

``layer_members`` says which tensors of a parameter group form a layer: by default each
is one of its own. ``param_groups`` splits a model into parameters that decay and those
that usually do not: biases and norms.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

LayerOf = Callable[[str], str]


def by_module(name: str) -> str:
    """Return the module that holds a parameter: its weight and its bias pool.

    Args:
        name: a parameter's name, as ``model.named_parameters()`` gives it.

    Returns:
        The name without its last part.

    Example:
        >>> by_module("features.0.weight")
        'features.0'
    """
    return name.rpartition(".")[0]


def layer_members(
    count: int, names: Sequence[str] | None, layer_of: LayerOf | None
) -> list[list[int]]:
    """Return the positions of each layer's parameters in a group.

    Args:
        count: how many parameters the group has.
        names: their names, or None where the optimizer was given none.
        layer_of: from parameter name to layer name, or None.

    Returns:
        A list for each layer, layers in order of appearance.
    """
    if layer_of is None:
        return [[position] for position in range(count)]
    if names is None:
        raise ValueError(
            f"layer_of={layer_of!r} needs named parameters, and these have no names: "
            "give the optimizer model.named_parameters() instead of model.parameters()"
        )
    members: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        layer = layer_of(name)
        if not isinstance(layer, str):
            raise TypeError(
                f"layer_of must return a layer's name as a string, but for parameter "
                f"{name!r} it returned {layer!r}"
            )
        members.setdefault(layer, []).append(position)
    return list(members.values())


NORMS = (
    nn.modules.batchnorm._NormBase,  # batch and instance norms
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def param_groups(
    model: nn.Module, weight_decay: float, *, exclude: tuple[type[nn.Module], ...] = ()
) -> list[dict[str, Any]]:
    """Split a model's parameters into those that decay and those that do not.

    Biases, the parameters of norms (torch's own, and modules whose class name ends in
    ``Norm``, as in transformers) and of the modules in ``exclude`` do not decay.
    Parameters that need no gradient are left out; shared ones appear once, and decay if
    one of their owners says so.

    Args:
        model: the model.
        weight_decay: λ of those that decay.
        exclude: further kinds of modules whose own parameters do not decay.

    Returns:
        One or two groups of named parameters, empty ones left out.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
        >>> groups = param_groups(model, weight_decay=0.1)
        >>> [[name for name, _ in group["params"]] for group in groups]
        [['0.weight'], ['0.bias', '1.weight', '1.bias']]
    """
    decaying: dict[int, tuple[str, nn.Parameter]] = {}
    excluded: dict[int, tuple[str, nn.Parameter]] = {}
    for path, module in model.named_modules():
        kind = type(module)
        is_norm = issubclass(kind, NORMS) or kind.__name__.endswith("Norm")
        is_excluded = is_norm or issubclass(kind, exclude)
        for name, param in module.named_parameters(recurse=False):
            if not param.requires_grad:
                continue
            entry = (f"{path}.{name}" if path else name, param)
            # Recurrent layers have bias_ih_l0 and its like, attention bias_k.
            is_bias = name.endswith("bias") or name.startswith("bias")
            chosen = excluded if is_excluded or is_bias else decaying
            chosen.setdefault(id(param), entry)
    for shared in decaying.keys() & excluded.keys():
        del excluded[shared]
    groups = (
        {"params": list(decaying.values()), "weight_decay": weight_decay},
        {"params": list(excluded.values()), "weight_decay": 0.0},
    )
    return [group for group in groups if group["params"]]
