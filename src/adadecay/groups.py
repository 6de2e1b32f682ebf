"""Parameter groups: their layers, which parameters decay, and what values are allowed.

``Layers`` says which tensors of a parameter group form a layer: by default each is one
of its own. It refuses groups whose layers a wrapper hides in flat tensors.
``param_groups`` splits a model into parameters that decay and those that usually do
not: biases and norms. ``check_settings`` refuses values in one sentence that names the
argument, its value and what is allowed; ``warn_`` functions tell of odd ones.
"""

import math
import numbers
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

LayerOf = Callable[[str], str]
Group = dict[str, Any]
MAX_PADDING = 4096  # elements that flattening adds at most
_warned: set[str] = set()  # what this process has been warned of


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
        if len(params) != 1 or is_lazy(params[0]) or params[0].ndim != 1:
            return
        ranks = dist.is_available() and dist.is_initialized()
        size = params[0].numel() * (dist.get_world_size() if ranks else 1)
        for each in self._seen:
            vanished = not any(each.params is group["params"] for group in groups)
            if each.size and vanished and 0 <= size - each.size <= MAX_PADDING:
                raise ValueError(
                    f"the parameters of group {number} were replaced by one flat "
                    f"tensor of {params[0].numel()} elements: DeepSpeed ZeRO and "
                    "others do this, which hides the layers that the decay needs; use "
                    "FSDP2 or DDP"
                )


# The first is the base of batch and instance norms.
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


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


def check_settings(group: Group) -> None:
    """Refuse values that no step could use."""
    for name in ("lr", "weight_decay", "momentum"):
        check_number(name, group[name], lowest=0.0)
    for name in ("dampening", "alpha"):
        check_number(name, group[name])
    for name in ("decoupled", "unit_mean", "stochastic_rounding"):
        if not isinstance(group[name], bool):
            raise TypeError(f"{name} must be True or False, but it is {group[name]!r}")
    if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
        raise ValueError(
            "Nesterov momentum requires a momentum and zero dampening, but momentum="
            f"{group['momentum']} and dampening={group['dampening']}"
        )
    if group["foreach"] and group["fused"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together: drop one")
    if group["differentiable"] and (group["foreach"] or group["fused"]):
        name = "foreach" if group["foreach"] else "fused"
        raise RuntimeError(f"`{name}` does not support `differentiable`: drop one")


def check_number(name: str, value: object, *, lowest: float = -math.inf) -> None:
    """Refuse a value that is not a finite number, in the words of torch."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Tensor):
        raise TypeError(f"{name} must be a number, but it is {value!r}")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(
            f"Tensor {name} must be 1-element, but it has {value.numel()} elements"
        )
    number = float(value.detach() if isinstance(value, Tensor) else value)
    if not (number >= lowest and math.isfinite(number)):
        label = {"lr": "learning rate", "alpha": "alpha"}.get(name, f"{name} value")
        allowed = "a finite number" + (f" >= {lowest:g}" if lowest == 0 else "")
        raise ValueError(f"Invalid {label}: {value} (it must be {allowed})")


def warn_past_zero(group: Group) -> None:
    """Warn, once per process, where θ = 2 takes a weight past zero: 2·lr·λ ≥ 1."""
    lr, weight_decay = group["lr"], group["weight_decay"]
    # Only of numbers: reading a tensor would wait for its device.
    tensors = isinstance(lr, Tensor) or isinstance(weight_decay, Tensor)
    if not tensors and 2 * lr * weight_decay >= 1:
        warn_once(
            "past zero",
            f"lr={lr} and weight_decay={weight_decay} give 2·lr·weight_decay >= 1: a "
            "weight whose decay rate is near 2 changes sign at every step; keep "
            "lr·weight_decay well below 1/2",
        )


def warn_no_decay(groups: list[Group], outcome: str) -> None:
    """Warn, once per process and outcome, where there is nothing to adapt."""
    if {group["weight_decay"] for group in groups} == {0}:
        warn_once(outcome, f"every parameter group has weight_decay=0, so {outcome}")


def warn_once(key: str, message: str) -> None:
    """Warn, unless this process has been warned of the same."""
    if key not in _warned:
        _warned.add(key)
        warnings.warn(message, stacklevel=5)
