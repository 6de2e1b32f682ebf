"""Which tensors form a layer: names → layers, for pooling statistics.

In: the parameter names of a group and the user's ``layer_of``. Out: a layer index for
each parameter. Without ``layer_of`` every tensor is a layer of its own.
"""

from collections.abc import Callable, Sequence

LayerOf = Callable[[str], str]


def by_module(name: str) -> str:
    """Name the module that holds a parameter: its weight and its bias pool.

    Args:
        name: a parameter's name, as ``model.named_parameters()`` gives it.

    Returns:
        The name without its last part.

    Example:
        >>> by_module("features.0.weight")
        'features.0'
    """
    return name.rpartition(".")[0]


def layer_indices(
    count: int, names: Sequence[str] | None, layer_of: LayerOf | None
) -> list[int]:
    """Give each of a group's parameters the index of its layer.

    Args:
        count: how many parameters the group has.
        names: their names, or None where the optimizer was given none.
        layer_of: from parameter name to layer name, or None.

    Returns:
        One index for each parameter, equal where the layer's name is equal.
    """
    if layer_of is None:
        return list(range(count))
    if names is None:
        raise ValueError(
            f"layer_of={layer_of!r} needs named parameters, and these have no names: "
            "give the optimizer model.named_parameters() instead of model.parameters()"
        )
    layers: dict[str, int] = {}
    indices = []
    for name in names:
        layer = layer_of(name)
        if not isinstance(layer, str):
            raise TypeError(
                f"layer_of must give a layer's name as a string, but for parameter "
                f"{name!r} it gave {layer!r}"
            )
        indices.append(layers.setdefault(layer, len(layers)))
    return indices
