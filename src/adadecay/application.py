"""What rules do in a step of a wrapped optimizer: λ_t and θ, then the decay itself.

In: an optimizer that :func:`adadecay.adaptive_decay` has changed, whose parameters have
gradients. Out: weights shrunk by ηλ_tθ, or gradients with λ_tθw added, around the
optimizer's own step (``decayed``). Nothing else knows of :mod:`adadecay.rules` when a
step is taken.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay import cautious, decay, gpu, native, rules, sharding
from adadecay.decay import GroupTensors, Scalar, host_scalar
from adadecay.groups import Group, Layers
from adadecay.rules import DecaySettings

Replaced = list[tuple[Tensor, Tensor]]  # parameters, and gradients that were theirs


class Decay:
    """What a wrapped optimizer has beside its own; copies keep the settings alone."""

    def __init__(self, settings: DecaySettings) -> None:
        self.settings, self.layers = settings, Layers(settings.layer_of)
        self.engine = gpu.Engine()
        self.copies: list[Tensor] = []  # memory for Cautious

    def __reduce__(self) -> tuple[Any, ...]:
        return Decay, (self.settings,)


class Rest(NamedTuple):
    """What is left to do after the optimizer's own step."""

    shrunk: list[cautious.Shrunk]  # what Cautious may have to give back
    # Weights, and what to take off them: an amount, or after the step a share.
    late: list[tuple[list[Tensor], list[Tensor]]]


@contextmanager
def decayed(optimizer: Any) -> Iterator[None]:
    """Decay, hide λ from the step that is taken inside, and put everything back."""
    groups: list[Group] = optimizer.param_groups
    kept = [group["weight_decay"] for group in groups]
    replaced: Replaced = []
    try:
        with torch.no_grad():
            rest = _apply(optimizer, replaced)
            _spare_gradients(groups, replaced)
        for group in groups:
            group["weight_decay"] = 0.0
        yield
        with torch.no_grad():
            _finish(optimizer, rest)
    finally:
        for group, value in zip(groups, kept, strict=True):
            group["weight_decay"] = value
        for param, grad in replaced:
            param.grad = grad


def _apply(optimizer: Any, replaced: Replaced) -> Rest:
    """Decay before the optimizer's own step; note the gradients that are replaced."""
    rest = Rest([], [])
    # A fused rule skips steps with infinities by itself, where no hook can see it.
    found = getattr(optimizer, "found_inf", None)
    skipped = 0.0 if found is None else host_scalar(found)
    if not optimizer._adadecay.settings.decoupled:
        _change_gradients(optimizer, skipped, replaced)
    elif isinstance(skipped, Tensor) or skipped == 0:
        _shrink_weights(optimizer, skipped, rest)
    return rest


def _finish(optimizer: Any, rest: Rest) -> None:
    """Do what is left to do after the optimizer's own step."""
    cautious.give_back(rest.shrunk)
    for params, shares in rest.late:
        if optimizer._adadecay.settings.order == "after":
            torch._foreach_mul_(shares, params)
        torch._foreach_sub_(params, shares)


def collected(optimizer: Any) -> list[GroupTensors]:
    """List the tensors of a wrapped optimizer's groups that have gradients."""
    own, settings = optimizer._adadecay, optimizer._adadecay.settings
    rules.start(settings.rules, optimizer.param_groups)  # of groups that were added
    options: Any = (own.layers, {}, vars(settings), settings.change, own.engine)
    return decay.collect(optimizer.param_groups, *options)


@contextmanager
def foreseen(
    optimizer: Any, *, taken: bool = False
) -> Iterator[tuple[list[GroupTensors], dict[Tensor, Tensor]]]:
    """Let the rules see the coming step, and put their memories back afterwards.

    Yields the groups' tensors, and by what :func:`adadecay.cautious.due` multiplies θ.
    With ``taken`` the rules have seen the step already.
    """
    own = optimizer._adadecay.settings.rules
    due = cautious.due(optimizer) if optimizer._adadecay.settings.gives_back else {}
    groups = collected(optimizer)
    kept = [(each.group, rule.key) for each in groups for rule in own if rule.remembers]
    memories = [group[key] for group, key in kept]
    if not taken:
        rules.advance(own, groups)
    try:
        yield groups, due
    finally:
        for (group, key), memory in zip(kept, memories, strict=True):
            group[key] = memory


def present_decays(optimizer: Any, *, taken: bool = False) -> Iterator[Any]:
    """Yield what would decay now: a group's tensors, indices, the weights, λ_t, and θ.

    For ``Cautious`` the coming step is tried on a copy of the optimizer.
    """
    with foreseen(optimizer, taken=taken) as (groups, due):
        for *found, thetas in _decays(optimizer, groups):
            tensors, indices, params, _ = found
            rates = thetas or [torch.ones(w.shape, device=w.device) for w in params]
            masks = (due.get(tensors.params[i]) for i in indices)
            pairs = zip(rates, masks, strict=True)
            yield (
                *found,
                [r if m is None else r * sharding.to_local(m) for r, m in pairs],
            )


def _decays(
    optimizer: Any,
    groups: list[GroupTensors],
    local: list[GroupTensors] | None = None,
) -> Iterator[Any]:
    """Yield what decays: a group's tensors, indices, the weights here, λ_t, and θ.

    θ is None where it is 1 everywhere. ``local`` is what lies here of the groups, with
    moments, if it is known.
    """
    settings = optimizer._adadecay.settings
    found: Any = (
        (tensors, range(len(params)), [*map(sharding.to_local, params)], None)
        for tensors in groups
        if (params := tensors.params) and tensors.decays
    )
    if settings.reads_moments:
        found = sharding.all_rates(groups, local)
    for tensors, *here, thetas in found:
        coefficient = rules.coefficient(settings.rules, tensors.group)
        yield tensors, *here, coefficient, thetas


def _decaying(optimizer: Any, skipped: Scalar) -> Iterator[Any]:
    """Let the rules see this step, and yield what decays."""
    groups, scale = collected(optimizer), getattr(optimizer, "grad_scale", None)
    scale = 1.0 if scale is None else host_scalar(scale)
    settings = optimizer._adadecay.settings
    moments = settings.reads_moments
    local = rules.advance(settings.rules, groups, scale, skipped, moments)
    yield from _decays(optimizer, groups, local)


def _shrink_weights(optimizer: Any, skipped: Scalar, rest: Rest) -> None:
    """Multiply the weights by 1 − ηλθ, or note what to take off them later."""
    settings = optimizer._adadecay.settings
    count = 0
    for tensors, _, params, coefficient, thetas in _decaying(optimizer, skipped):
        step_size = coefficient
        for key in settings.scale:
            step_size = host_scalar(tensors.group[key]) * step_size
        if isinstance(skipped, Tensor):
            step_size = torch.where(skipped == 0, step_size, 0.0)
        if settings.order != "before":
            shares = thetas or [torch.ones_like(param) for param in params]
            torch._foreach_mul_(shares, step_size)
            if settings.order == "during":
                torch._foreach_mul_(shares, params)
            rest.late.append((params, shares))
        elif settings.gives_back:
            copies = cautious.copies_like(params, optimizer._adadecay.copies, count)
            count += len(params)
            rest.shrunk.extend(cautious.shrink(params, thetas, step_size, copies))
        elif thetas is None:
            scale_(params, 1 - step_size)
        else:
            decay.shrink_(params, thetas, step_size)


def scale_(params: list[Tensor], factor: Scalar) -> None:
    """Multiply weights in place, to the bit as torch does but faster in the kernel."""
    places = None if isinstance(factor, Tensor) else native.places_of(params)
    if places is not None:
        # The last first: a rule may have read them, and the cache still hold some.
        order = [[*range(len(params))[::-1]]]
        plan = native.kernel.plan(tensors=places, members=order, momentum=False)
        threads = torch.get_num_threads()
        if native.kernel.scale(plan=plan, factor=factor, threads=threads):
            increment_version(params)
            return
    torch._foreach_mul_(params, factor)


def _change_gradients(optimizer: Any, skipped: Scalar, replaced: Replaced) -> None:
    """Put g + λθw in place of each gradient, and note what stood there."""
    scale = getattr(optimizer, "grad_scale", None)
    for tensors, indices, params, coefficient, thetas in _decaying(optimizer, skipped):
        if scale is not None:  # a fused rule will divide the gradient by it
            coefficient = coefficient * host_scalar(scale)
        if tensors.group.get("maximize"):  # the rule will turn the sign of all of it
            coefficient = -coefficient
        grads = [sharding.to_local(tensors.grads[i]) for i in indices]
        rates = thetas or [torch.ones_like(param) for param in params]
        changed = decay.decayed(params, grads, rates, coefficient)
        for i, grad in zip(indices, changed, strict=True):
            replaced.append((tensors.params[i], tensors.grads[i]))
            tensors.params[i].grad = sharding.from_local(grad, tensors.grads[i])


def _spare_gradients(groups: list[Group], replaced: Replaced) -> None:
    """Pass copies to a step that would write its momentum into the gradients.

    torch's SGD does so by foreach with Nesterov and no λ, which is hidden from it here.
    """
    ours = {param for param, _ in replaced}
    for group in groups:
        for param in group["params"] if group.get("nesterov") else ():
            foreach = group.get("foreach")
            by_foreach = param.device.type != "cpu" if foreach is None else foreach
            if by_foreach and param.grad is not None and param not in ours:
                replaced.append((param, param.grad))
                param.grad = param.grad.clone()
