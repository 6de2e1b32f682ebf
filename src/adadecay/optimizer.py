"""``AdaDecay``, a drop-in for ``torch.optim.SGD``: arguments, state, choice of path.

In: parameters with gradients. Out: parameters and momentum buffers updated in place by
one of the paths of :mod:`adadecay.paths`. Everything is checked before anything is
changed, so that a step that fails changes no parameter.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast, overload

import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    ParamsT,
    StateDict,
    _use_grad_for_differentiable,
)

from adadecay import kernels, sharding
from adadecay.layers import LayerOf, layer_indices
from adadecay.paths import Adjust, Options, fused, sharded
from adadecay.paths.batches import Given
from adadecay.paths.choice import PLAIN_TYPES, Path, choose_path
from adadecay.paths.shortcut import Shortcut
from adadecay.settings import (
    check_settings,
    shrinks_past_zero,
    warn_no_decay,
    warn_shrinks_past_zero,
)

OPTION_NAMES = tuple(Options.__annotations__)
NO_STATE: dict[str, Any] = {}
Members = tuple[int, tuple[str, ...] | None]  # of a group: how many, and their names
Collected = tuple[list[Tensor], list[Tensor], list[Tensor | None], list[int]]


class AdaDecay(Optimizer):
    r"""Stochastic gradient descent in which every weight decays at its own rate.

    .. math::
        d = g + \lambda\, \theta \odot w, \qquad
        \theta = \frac{2}{1 + \exp(-\alpha (|g| - \mu) / \sigma)}

    with μ and σ the mean and standard deviation of \|g\| over the layer; then d goes
    through momentum and into the weights exactly as in ``torch.optim.SGD``. Large
    gradients of a layer decay more, small ones less; ``alpha=0`` is SGD itself.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: learning rate η, a number or a tensor.
        momentum: momentum factor.
        dampening: dampening of the momentum.
        weight_decay: decay coefficient λ, a number or a tensor.
        nesterov: use Nesterov's momentum.
        maximize: climb instead of descending.
        foreach: use the path that treats many tensors at once.
        differentiable: let autograd pass through the step.
        fused: use the native kernel; None picks it where it is present and fits.
        alpha: steepness α of the sigmoid (the paper uses 4).
        decoupled: shrink the weights by ηλθ apart from the momentum step, which is
            Algorithm 1 of the paper to the letter.
        unit_mean: divide θ by its mean over the layer, so that the average decay is λ.
        layer_of: from parameter name to layer name: parameters of one layer (within a
            parameter group) pool their statistics. Needs named parameters;
            :func:`adadecay.by_module` is the ready one.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> optimizer.step()

    Complex parameters are supported; their statistics are of the modulus \|g\| of the
    complex gradient, so both components of a weight share one θ. (torch's other
    optimizers treat a complex weight as two real ones; for SGD that is the same.)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        alpha: float = 4.0,
        decoupled: bool = False,
        unit_mean: bool = False,
        layer_of: LayerOf | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
            "alpha": alpha,
            "decoupled": decoupled,
            "unit_mean": unit_mean,
        }
        check_settings(defaults)
        if fused and not kernels.available():
            raise RuntimeError(f"fused=True needs the kernel: {kernels.absence()}")
        self.layer_of = layer_of
        self._layers: list[list[int]] = []
        self._members: list[Members] = []
        self._roster = sharding.Roster()
        self._shortcut = Shortcut()
        self._warned = False
        super().__init__(params, defaults)
        if all(_is_zero(group["weight_decay"]) for group in self.param_groups):
            warn_no_decay()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        before = len(self.param_groups)
        given = param_group["params"]
        if isinstance(given, Iterable) and not isinstance(given, Tensor | set):
            # A generator can be read only once.
            param_group["params"] = given = list(given)
            _refuse_duplicates(given)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            check_settings(group)
            layers = self._layers_of(group)
            self._roster.check(self.param_groups)
        except BaseException:  # whatever a layer_of of the user's may raise
            del self.param_groups[before:]
            raise
        self._layers.append(layers)
        self._members.append(self._members_of(group))
        if not self._warned and shrinks_past_zero(group):
            self._warned = True
            warn_shrinks_past_zero(group)

    def _layers_of(self, group: dict[str, Any]) -> list[int]:
        names = group.get("param_names")
        return layer_indices(len(group["params"]), names, self.layer_of)

    def _members_of(self, group: dict[str, Any]) -> Members:
        names = group.get("param_names") if self.layer_of is not None else None
        return len(group["params"]), None if names is None else tuple(names)

    def _current_layers(self) -> list[list[int]]:
        """Give the layers of every group; groups may be edited, as SGD's may."""
        members = [self._members_of(group) for group in self.param_groups]
        if members != self._members:
            self._layers = [self._layers_of(group) for group in self.param_groups]
            self._members = members
        return self._layers

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step.

        Args:
            closure: evaluates the model anew and returns the loss.

        Returns:
            What the closure returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._shortcut.step(self.param_groups, self.state):
            return loss
        self._roster.check(self.param_groups)
        collected = [
            self._collect(group, layers)
            for group, layers in zip(
                self.param_groups, self._current_layers(), strict=True
            )
        ]
        statistics = self._statistics(collected)
        self._insist(collected)
        for number, (group, tensors, given) in enumerate(
            zip(self.param_groups, collected, statistics, strict=True)
        ):
            if not tensors[0]:
                continue
            path = self._update(group, tensors, given)
            if path is fused.step and given is None:
                self._shortcut.learn(number, group, tensors)
        return loss

    def _collect(self, group: dict[str, Any], layers: list[int]) -> Collected:
        """List what a group's step works on, and refuse what it can not take."""
        params: list[Tensor] = []
        grads: list[Tensor] = []
        buffers: list[Tensor | None] = []
        present: list[int] = []
        for position, param in enumerate(group["params"]):
            grad = param.grad
            if grad is None:
                continue
            if grad.layout is not torch.strided:
                raise RuntimeError(_sparse_message(group, position, grad))
            params.append(param)
            grads.append(grad)
            buffers.append(self.state.get(param, NO_STATE).get("momentum_buffer"))
            present.append(layers[position])
        return params, grads, buffers, present

    def _insist(self, collected: list[Collected]) -> None:
        """Refuse what the kernel can not take, where a group has fused=True."""
        for group, tensors in zip(self.param_groups, collected, strict=True):
            if group["fused"] and not torch.compiler.is_compiling():
                fused.insist(*_local_parts(tensors), self._adjustment())

    def _statistics(self, collected: list[Collected]) -> list[Given | None]:
        """Give the statistics of layers that lie on several devices, all at once."""
        if all(
            type(grad) in PLAIN_TYPES for _, grads, *_ in collected for grad in grads
        ):
            return [None] * len(collected)
        if self._adjustment() is not None:
            raise RuntimeError(
                f"{type(self).__name__} changes θ layer by layer, which DTensors do "
                "not allow: a layer's θ lies on several devices"
            )
        return sharding.group_statistics(self.param_groups, collected)

    def _update(
        self, group: dict[str, Any], tensors: Collected, given: Given | None
    ) -> Path:
        """Send a group's tensors down the path its settings choose, and name that."""
        params, grads, buffers, layers = tensors
        if not self._warned and shrinks_past_zero(group):
            self._warned = True
            warn_shrinks_past_zero(group)
        options = cast(Options, {name: group[name] for name in OPTION_NAMES})
        adjust = self._adjustment()
        here = params if given is None else list(map(sharding.local, params))
        path = choose_path(group, here, adjust, parts=given is not None)
        first = [i for i, buffer in enumerate(buffers) if buffer is None]
        if given is None:
            path(params, grads, buffers, layers, adjust=adjust, **options)
        else:
            sharded.step(
                params, grads, buffers, layers, path=path, given=given, **options
            )
        if group["momentum"] != 0:
            for i in first:
                self.state[params[i]]["momentum_buffer"] = buffers[i]
        return path

    def _adjustment(self) -> Adjust | None:
        overridden = type(self)._adjust_rates is not AdaDecay._adjust_rates
        return self._adjust_rates if overridden else None

    def _adjust_rates(self, thetas: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        """Change the θ of one layer: the seam for subclasses (loop and foreach).

        Args:
            thetas: θ of the layer's tensors, which may be overwritten.
            params: the layer's weights.

        Returns:
            The θ to use.
        """
        return thetas

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load a state, of an AdaDecay or of a ``torch.optim.SGD``.

        Options that the state does not hold, as ``alpha`` in a state of SGD, keep the
        value that they have here.
        """
        saved = state_dict["param_groups"]
        if len(saved) == len(self.param_groups):
            merged = [
                {**{name: own[name] for name in self.defaults}, **group}
                for own, group in zip(self.param_groups, saved, strict=True)
            ]
            state_dict = {**state_dict, "param_groups": merged}
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        own = {"layer_of": self.layer_of, "_warned": self._warned}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        self._layers = [self._layers_of(group) for group in self.param_groups]
        self._members = [self._members_of(group) for group in self.param_groups]
        self._shortcut = Shortcut()
        if "_roster" not in self.__dict__:  # a copy
            self._roster = sharding.Roster()


def _local_parts(
    tensors: Collected,
) -> tuple[list[Tensor], list[Tensor], list[Tensor | None]]:
    """Give parameters, gradients and buffers, of sharded ones what lies here."""
    params, grads, buffers, _ = tensors
    return (
        list(map(sharding.local, params)),
        list(map(sharding.local, grads)),
        [None if buffer is None else sharding.local(buffer) for buffer in buffers],
    )


def _is_zero(weight_decay: float | Tensor) -> bool:
    return not isinstance(weight_decay, Tensor) and weight_decay == 0


def _refuse_duplicates(params: list[Any]) -> None:
    """Refuse a parameter that a group holds twice: it would decay twice."""
    seen: set[int] = set()
    for position, entry in enumerate(params):
        param = entry[1] if isinstance(entry, tuple) else entry
        if id(param) in seen:
            name = f" ({entry[0]!r})" if isinstance(entry, tuple) else ""
            raise ValueError(
                f"params holds a parameter group with duplicate parameters: number "
                f"{position}{name} stands in it before; give each parameter once"
            )
        seen.add(id(param))


def _sparse_message(group: dict[str, Any], position: int, grad: Tensor) -> str:
    names = group.get("param_names")
    name = repr(names[position]) if names else f"number {position} of its group"
    return (
        f"AdaDecay does not support sparse gradients, and that of parameter {name} has "
        f"the layout {grad.layout}: make it dense (nn.Embedding(..., sparse=False))"
    )
