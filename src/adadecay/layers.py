"""What a layer is, and which parameters decay.

``Layers`` says which tensors of a parameter group form a layer: by default each is one
of its own. It refuses groups whose layers a wrapper hides in flat tensors.
``param_groups`` splits a model into parameters that decay and those that usually do
not: biases and norms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

LayerOf = Callable[[str], str]
Group = dict[str, Any]
MAX_PADDING = 4096  # elements that flattening adds at most


def by_module(name: str) -> str:
    """Return the module that holds a parameter: its weight and its bias pool.

    Example:
        >>> by_module("features.0.weight")
        'features.0'
    """
    return name.rpartition(".")[0]


class _Seen(NamedTuple):
    """A parameter group as it was at the last look."""

    params: list[Tensor]
    names: tuple[str, ...]  # which only layer_of needs
    length: int
    size: int  # in elements, 0 for a single tensor
    members: list[list[int]]


class Layers:
    """The layers of parameter groups, which may be edited between steps.

    Args:
        layer_of: from parameter name to layer name; None makes each parameter a layer.
    """

    def __init__(self, layer_of: LayerOf | None) -> None:
        if layer_of is not None and not callable(layer_of):
            raise TypeError(
                "layer_of must be a function from parameter name to layer name, such "
                f"as adadecay.by_module, but it is {layer_of!r}"
            )
        self.layer_of = layer_of
        self._seen: list[_Seen] = []

    def of(self, groups: list[Group]) -> list[list[list[int]]]:
        """Return, for each group, the positions of each layer's parameters.

        Raises:
            ValueError: one flat tensor has taken the place of several parameters, so
                that nothing says where a layer ends.
        """
        seen = []
        for number, group in enumerate(groups):
            params = group["params"]
            names = tuple(group.get("param_names", ())) if self.layer_of else ()
            known = next((each for each in self._seen if each.params is params), None)
            if known is None or (known.names, known.length) != (names, len(params)):
                if known is None:
                    self._refuse_flattened(number, groups)
                sizes = [param.numel() for param in params if not is_lazy(param)]
                size = sum(sizes) if len(sizes) > 1 else 0
                known = _Seen(params, names, len(params), size, self._members(group))
            seen.append(known)
        self._seen = seen
        return [each.members for each in seen]

    def _members(self, group: Group) -> list[list[int]]:
        """Return the layers of a group, in order of appearance."""
        if self.layer_of is None:
            return [[position] for position in range(len(group["params"]))]
        if "param_names" not in group:
            raise ValueError(
                f"layer_of={self.layer_of!r} needs named parameters, and these have no "
                "names: give the optimizer model.named_parameters() instead of "
                "model.parameters()"
            )
        members: dict[str, list[int]] = {}
        for position, name in enumerate(group["param_names"]):
            layer = self.layer_of(name)
            if not isinstance(layer, str):
                raise TypeError(
                    "layer_of must return a layer's name as a string, but for "
                    f"parameter {name!r} it returned {layer!r}"
                )
            members.setdefault(layer, []).append(position)
        return list(members.values())

    def _refuse_flattened(self, number: int, groups: list[Group]) -> None:
        params = groups[number]["params"]
        for position, param in enumerate(params):
            if getattr(param, "_fsdp_flattened", False):
                raise ValueError(
                    f"parameter {position} of group {number} was flattened by FSDP1 "
                    "(FullyShardedDataParallel), which hides the layers that the decay "
                    "needs: use FSDP2, torch.distributed.fsdp.fully_shard"
                )
        if len(params) > 1 or is_lazy(params[0]) or params[0].ndim != 1:
            return
        ranks = dist.is_available() and dist.is_initialized()
        size = params[0].numel() * (dist.get_world_size() if ranks else 1)
        for each in self._seen:
            vanished = not any(each.params is group["params"] for group in groups)
            if each.size and vanished and 0 <= size - each.size <= MAX_PADDING:
                raise ValueError(
                    f"the parameters of group {number} were replaced by one flat "
                    f"tensor of {params[0].numel()} elements: DeepSpeed's ZeRO and "
                    "others do so, which hides the layers that the decay needs; use "
                    "FSDP2 or DDP"
                )


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
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
        >>> groups = param_groups(model, weight_decay=0.1)
        >>> [[name for name, _ in group["params"]] for group in groups]
        [['0.weight'], ['0.bias', '1.weight', '1.bias']]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"param_groups needs the model itself, but it is a {type(model).__name__}"
        )
    found: dict[bool, dict[nn.Parameter, str]] = {True: {}, False: {}}
    for path, module in model.named_modules():
        for name, param in module.named_parameters(path, recurse=False):
            if param.requires_grad:
                found[_decays(module, name, exclude)].setdefault(param, name)
    rest = {p: name for p, name in found[False].items() if p not in found[True]}
    return [
        {"params": [(n, p) for p, n in named.items()], "weight_decay": value}
        for named, value in ((found[True], weight_decay), (rest, 0.0))
        if named
    ]


def _decays(module: nn.Module, name: str, exclude: tuple[type[nn.Module], ...]) -> bool:
    """Whether a parameter of a module usually decays."""
    is_norm = isinstance(module, NORMS) or type(module).__name__.endswith("Norm")
    # Recurrent layers have bias_ih_l0 and its like, attention bias_k.
    last = name.rpartition(".")[2]
    is_bias = last.endswith("bias") or last.startswith("bias")
    return not (is_norm or is_bias or isinstance(module, exclude))
