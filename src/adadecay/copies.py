"""Small copies of an optimizer, and steps of them: what an audit experiments on.

In: an optimizer. Out: optimizers of the same class with the same options and a few tiny
parameters of their own, in any floating-point type. The optimizer itself, its weights
and the global random numbers stay what they were.
"""

import copy
import random
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay.groups import Group

SIDES = (6, 4, 3, 2)  # the longest sides of a tiny parameter
# Learning rates and the size of gradients, step by step: what depends on the one, or
# clips or rescales by the other, shows itself. RAdam begins with the sixth step.
RATES = tuple(n / 256 for n in (4, 2, 6, 5, 3, 4, 7, 5))
SIZES = (1.0, 8.0, 0.125, 4.0, 1.0, 0.5, 16.0, 1.0)
ORTHOGONAL = 3  # the step whose gradients are: projections show themselves
STEPS = len(RATES)


class SmallCopy(NamedTuple):
    """A copy of an optimizer, and its parameters."""

    optimizer: Any
    params: list[Tensor]

    def weights(self) -> Tensor:
        """Return a copy of all weights as one vector in double precision."""
        return torch.cat([p.detach().double().flatten() for p in self.params])

    def numbers(self) -> dict[str, Tensor]:
        """Return copies of the numbers that the optimizer remembers, as vectors."""
        found: dict[str, Any] = {}
        for number, group in enumerate(self.optimizer.param_groups):
            found |= {f"group {number} {key}": value for key, value in group.items()}
        for number, param in enumerate(self.params):
            state = self.optimizer.state.get(param, {})
            found |= {f"param {number} {key}": value for key, value in state.items()}
        return {
            key: torch.as_tensor(value).detach().double().flatten().clone()
            for key, value in found.items()
            if isinstance(value, float)
            or (isinstance(value, Tensor) and value.is_floating_point())
        }

    def set_weights(self, weights: Tensor) -> None:
        """Set the parameters to the weights of another copy."""
        for param, part in zip(self.params, self.split(weights), strict=True):
            param.data.copy_(part.view_as(param))

    def split(self, vector: Tensor) -> tuple[Tensor, ...]:
        """Return the parts of a vector that belong to each parameter."""
        return torch.split(vector, [p.numel() for p in self.params])


class Bench:
    """Makes copies of one optimizer that all start alike, and lets them step.

    Args:
        optimizer: the optimizer to copy; it is only read.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.original: Any = optimizer
        params = (p for group in optimizer.param_groups for p in group["params"])
        self.device = next(params).device
        self.by_closure = self.by_graph = 0
        self.closure_calls: list[bool] = []  # for each, whether weights had moved

    def copy(self, dtype: torch.dtype = torch.float64) -> SmallCopy:
        """Return a copy with fresh weights, the same for every copy."""
        draw = torch.Generator().manual_seed(0)
        memo: dict[int, Any] = {}
        state: dict[Any, Any] = defaultdict(dict)
        for key, value in self.original.state.items():
            if not isinstance(key, Tensor):
                state[key] = copy.deepcopy(value)
        groups = []
        for group in self.original.param_groups:
            kept = {len(p.shape): i for i, p in reversed([*enumerate(group["params"])])}
            tiny = {}
            for position in sorted(kept.values()):
                param = group["params"][position]
                shape = [min(*n) for n in zip(param.shape, SIDES, strict=False)]
                shape += [1] * (len(param.shape) - len(shape))
                weights = _numbers(shape, draw).to(self.device, dtype)
                tiny[position] = nn.Parameter(weights)
                old = self.original.state.get(param)
                if part := _part_of_state(old, param, shape, dtype):
                    state[tiny[position]] = part
            for param in group["params"]:
                memo[id(param)] = tiny[kept[len(param.shape)]]
            options = {k: v for k, v in group.items() if k != "params"}
            if "param_names" in group:
                options["param_names"] = [group["param_names"][i] for i in tiny]
            options = copy.deepcopy(options, memo)
            groups.append({"params": list(tiny.values()), **options})
            memo[id(group)] = groups[-1]
        memo[id(self.original.param_groups)] = groups
        memo[id(self.original.state)] = state
        params = [param for group in groups for param in group["params"]]
        if (launches := getattr(self.original, "_launches", None)) is not None:
            memo[id(launches)] = type(launches)()  # AdaDecay's, which cannot be copied
        new = _copy_attributes(self.original, memo)
        if callable(train := getattr(new, "train", None)):  # schedule-free optimizers
            train()
        return SmallCopy(new, params)

    def step(
        self,
        taken: SmallCopy,
        number: int,
        weight_decay: float,
        *,
        added: float = 0.0,
        shrunk: Tensor | None = None,
        change: Callable[[Group], Any] | None = None,
    ) -> None:
        """Take one step.

        Args:
            taken: the copy that steps.
            number: of the step, for learning rate, gradients and random numbers.
            weight_decay: λ that the copy is given.
            added: λ of a decay that is added to the gradients instead.
            shrunk: by which share of itself each weight shrinks before the step.
            change: changes each group before the step.
        """
        for group in taken.optimizer.param_groups:
            _set_option(group, "lr", RATES[number])
            _set_option(group, "weight_decay", weight_decay)
            if change is not None:
                change(group)
        start = taken.weights()

        def closure() -> Tensor:
            self.closure_calls.append(not torch.equal(taken.weights(), start))
            if shrunk is None:
                self._set_gradients(taken, number, added)
            return torch.zeros((), device=self.device)

        _seed(self.device, number)
        self._set_gradients(taken, number, added)
        if shrunk is not None:
            taken.set_weights((1 - shrunk) * start)
        rule = _without_hooks(type(taken.optimizer).step)
        rule(taken.optimizer, *([closure] if self.by_closure else []))

    def _set_gradients(self, taken: SmallCopy, number: int, added: float) -> None:
        """Set gradients that depend on the step and on the weights."""
        draw = torch.Generator().manual_seed(1 + number)
        for group in taken.optimizer.param_groups:
            # The rule will turn the sign of all of it.
            added_here = -added if group.get("maximize") else added
            for param in group["params"]:
                slope = (SIZES[number] * _numbers(param.shape, draw)).to(param)
                with torch.set_grad_enabled(bool(self.by_graph)):
                    grad = slope + param / 2
                    if number == ORTHOGONAL:
                        grad = (
                            grad - (grad * param).sum() / param.square().sum() * param
                        )
                if added_here:
                    grad = grad + added_here * param.detach()
                param.grad = grad


def _without_hooks(step: Any) -> Any:
    """Return a step as it is without what torch wraps around it."""
    hooked = getattr(step, "hooked", False)  # also AdaDecay's, which is not wrapped
    return getattr(step, "__wrapped__", step) if hooked else step


def _seed(device: torch.device, number: int) -> None:
    """Seed the generators that a step may use (``torch.manual_seed`` seeds more)."""
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


def _set_option(group: Group, key: str, value: float) -> None:
    """Set a number as what it is: a tensor, a float, or nothing."""
    if isinstance(group.get(key), Tensor):
        group[key] = torch.full_like(group[key], value)
    elif group.get(key) is not None:
        group[key] = value


@contextmanager
def apart(device: torch.device) -> Iterator[None]:
    """Keep warnings and random numbers of experiments from everybody else."""
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)  # noqa: NPY002


def _numbers(shape: Any, draw: torch.Generator) -> Tensor:
    """Draw numbers of either sign whose size is between 1/2 and 3/2."""
    drawn = torch.rand((2, *shape), generator=draw, dtype=torch.float64)
    return (drawn[0] + 0.5) * torch.where(drawn[1] < 0.5, -1.0, 1.0)


def _part_of_state(
    state: Any, param: Tensor, shape: list[int], dtype: torch.dtype
) -> dict[Any, Any]:
    """Return the state of a corner of a parameter, empty where it cannot be cut."""
    part = {}
    for key, value in (state or {}).items():
        if type(value) is Tensor and value.shape == param.shape:
            corner = value[tuple(slice(n) for n in shape)].detach().clone()
            part[key] = corner.to(dtype) if value.dtype == param.dtype else corner
        elif isinstance(value, Tensor) and value.numel() > 1:
            return {}
        else:
            part[key] = copy.deepcopy(value)
    return part


def _copy_attributes(optimizer: Any, memo: dict[int, Any]) -> Any:
    """Copy what an optimizer holds, and the optimizers in it, without their hooks."""
    new = memo[id(optimizer)] = object.__new__(type(optimizer))
    for key, value in vars(optimizer).items():
        if key.startswith("_optimizer_"):  # torch's dictionaries of hooks
            new.__dict__[key] = OrderedDict()
        elif isinstance(value, Optimizer) and id(value) not in memo:
            new.__dict__[key] = _copy_attributes(value, memo)
        elif key != "step":  # a scheduler's wrapper
            new.__dict__[key] = copy.deepcopy(value, memo)
    return new
