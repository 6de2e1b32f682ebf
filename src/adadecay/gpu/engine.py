"""Steps, θ and moments on a GPU, for tensors that were found suitable.

In: a group's tensors. Out: weights and buffers updated, or θ, or moments. Layers of
different devices or types go through plans of their own; a plan is kept as long as the
sizes of its tensors stay the same.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay import rounding
from adadecay.gpu.support import reads
from adadecay.theta import Members

if TYPE_CHECKING:
    from adadecay.decay import GroupTensors
    from adadecay.gpu.plan import Plan

MAX_PLANS = 64  # which gradients are missing may change from step to step


class Update(NamedTuple):
    """The arguments of a step that are not tensors of the group; see ``update``."""

    alpha: float
    lr: float | Tensor
    decay: float | Tensor
    momentum: float
    gain: float
    grad_scale: Tensor | None
    found_inf: Tensor | None
    seed: int
    step: Tensor | None
    nesterov: bool
    maximize: bool
    decoupled: bool


class Job(NamedTuple):
    """The layers of one device and type, ready to be launched."""

    plan: "Plan"
    table: Tensor
    tensors: "GroupTensors"
    buffers: list[Tensor]


class Engine:
    """The plans of one optimizer."""

    def __init__(self) -> None:
        self._plans: dict[object, Plan] = {}
        self._failed = False  # whether the kernels were given up

    def step(
        self,
        tensors: "GroupTensors",
        *,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> bool:
        """Take one step of a group.

        Args:
            tensors: the group's tensors; missing momentum buffers are filled in.
            grad_scale: what the gradients are to be divided by.
            found_inf: leaves the step out where it is not 0.

        Returns:
            False, with nothing changed, where memory that is written has a second name,
            where the kernels cannot be compiled, and in the first step with dampening
            and ``found_inf``: torch's operations must take it.
        """
        undamped = found_inf is None or tensors.group["dampening"] == 0
        if self._failed or not (
            undamped or all(b is not None for b in tensors.buffers)
        ):
            return False  # whether a damped step is the first, the device would decide
        launched: list[Job] = []
        try:
            jobs = self._jobs(tensors, zeros=found_inf is not None)
            if any(job.plan.overlapping for job in jobs):
                return False
            for job in jobs:
                _find_coefs(job)
            for job in jobs:
                _update(job, grad_scale, found_inf)
                launched.append(job)
        except Exception as error:
            if launched:
                raise
            self._give_up(error)
            return False
        _keep_buffers(tensors, jobs)
        return True

    def rates(
        self,
        grads: list[Tensor],
        members: Members,
        alpha: float,
        *,
        unit_mean: bool = False,
        moments: Tensor | None = None,
    ) -> list[Tensor] | None:
        """Return θ as :func:`adadecay.theta.rates` does; None where that must do it."""
        if self._failed or not reads(grads):
            return None
        try:
            plan = self._plan("rates", grads, members)
            with plan.on_device():
                thetas = [torch.empty_like(g, dtype=torch.float32) for g in grads]
                table, _ = plan.point_to(grads, thetas)
                if moments is None:
                    plan.find_coefs(table, alpha, unit_mean=unit_mean)
                plan.store_rates(
                    table, plan.coefs if moments is None else moments, alpha
                )
        except Exception as error:
            self._give_up(error)
            return None
        return thetas

    def moments(self, grads: list[Tensor], members: Members) -> Tensor | None:
        """Return what :func:`adadecay.theta.moments` does, or None as above."""
        if self._failed or not reads(grads):
            return None
        try:
            plan = self._plan("moments", grads, members)
            rows = torch.empty(len(members), 3, dtype=torch.float64, device=plan.device)
            with plan.on_device():
                table, _ = plan.point_to(grads)
                plan.sum(table)
                plan.merge(table, None, rows, 0.0)
        except Exception as error:
            self._give_up(error)
            return None
        return rows

    def rate_sums(
        self, grads: list[Tensor], members: Members, alpha: float, moments: Tensor
    ) -> Tensor | None:
        """Return what :func:`adadecay.theta.rate_sums` does, or None as above.

        ``moments`` are those of whole layers, with 1 in the place of the mean θ.
        """
        if self._failed or not reads(grads):
            return None
        try:
            plan = self._plan("moments", grads, members)
            found = torch.empty(
                len(members), 2, dtype=torch.float64, device=plan.device
            )
            with plan.on_device():
                table, _ = plan.point_to(grads)
                plan.sum_rates(table, moments, alpha, found)
        except Exception as error:
            self._give_up(error)
            return None
        return found[:, 0]

    def _plan(
        self,
        use: str,
        grads: Sequence[Tensor],
        members: Members,
        places: list[tuple[int, rounding.Runs]] | None = None,
    ) -> "Plan":
        """Return the plan of tensors of these sizes, for one use of its table."""
        from adadecay.gpu.plan import Plan  # which imports Triton

        device, dtype = grads[0].device, grads[0].dtype
        sizes = tuple(grad.numel() for grad in grads)
        key = use, device, dtype, sizes, tuple(map(tuple, members)), tuple(places or ())
        if key not in self._plans:
            if len(self._plans) >= MAX_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[key] = Plan(device, dtype, sizes, members, places)
        return self._plans[key]

    def _jobs(self, tensors: "GroupTensors", *, zeros: bool) -> list[Job]:
        """Make the tables of a step, and what it writes to."""
        jobs = []
        kinds = _layers_by_kind(tensors.grads, tensors.members)
        for layers in kinds:
            part = tensors if len(kinds) == 1 else tensors.select(layers)
            first = [buffer is None for buffer in part.buffers]
            buffers: list[Tensor] = []
            if tensors.group["momentum"] != 0:
                # Of a step that is left out on the device, zeros must be what remains.
                make = torch.zeros_like if zeros else torch.empty_like
                pairs = zip(part.params, part.buffers, strict=True)
                buffers = [make(p) if b is None else b for p, b in pairs]
            rounds = part.rounding and part.params[0].dtype == torch.bfloat16
            places = rounding.rows(part) if rounds else None
            plan = self._plan("step", part.grads, part.members, places)
            fresh = first if buffers and not zeros else []
            with plan.on_device():
                table, changed = plan.point_to(part.grads, part.params, buffers, fresh)
            if changed:
                plan.overlapping = overlap(part.params + buffers, part.grads)
            jobs.append(Job(plan, table, part, buffers))
        return jobs

    def _give_up(self, error: Exception) -> None:
        """Warn once, and leave this and all later steps to torch's operations."""
        capturing = torch.cuda.is_available() and (
            torch.cuda.is_current_stream_capturing()
        )
        if capturing or isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise error
        self._failed = True
        warnings.warn(
            "AdaDecay's GPU kernels do not work here, so steps use torch's operations "
            f"instead: {type(error).__name__}: {error}",
            stacklevel=4,
        )


def scaling(optimizer: Any) -> dict[str, Tensor]:
    """Return what ``GradScaler`` leaves to an optimizer's fused step, by name."""
    names = "grad_scale", "found_inf"
    given = ((name, getattr(optimizer, name, None)) for name in names)
    return {name: value for name, value in given if value is not None}


def unscaled(
    tensors: "GroupTensors",
    *,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> "GroupTensors":
    """Do for torch's operations what ``GradScaler`` left to the kernels."""
    if found_inf is not None and found_inf.item() != 0:
        return tensors.select([])
    if grad_scale is None:
        return tensors
    grads = torch._foreach_div(tensors.grads, grad_scale)
    return tensors._replace(grads=list(grads))


def overlap(written: Sequence[Tensor], read: Sequence[Tensor]) -> bool:
    """Whether memory that is written has another name among the tensors."""
    spans = sorted(
        (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), is_written)
        for tensors, is_written in ((written, True), (read, False))
        for t in tensors
        if t.numel()
    )
    reach = {True: 0, False: 0}  # how far any span, written or read, has come
    for begin, end, is_written in spans:
        if begin < reach[True] or (is_written and begin < reach[False]):
            return True
        reach[is_written] = max(reach[is_written], end)
    return False


def _find_coefs(job: Job) -> None:
    tensors = job.tensors
    if tensors.decays and tensors.moments is None:
        with job.plan.on_device():
            job.plan.find_coefs(job.table, tensors.alpha, unit_mean=tensors.unit_mean)


def _update(job: Job, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
    group, device = job.tensors.group, job.plan.device
    rounds = job.tensors.rounding if job.plan.places is not None else None
    moments = job.tensors.moments
    coefs = job.plan.coefs if moments is None else moments.to(device)
    given = Update(
        alpha=float(job.tensors.alpha),
        lr=_scalar(group["lr"], device),
        decay=_scalar(group["weight_decay"], device),
        momentum=float(group["momentum"]),
        gain=1.0 - group["dampening"],
        grad_scale=None if grad_scale is None else grad_scale.to(device),
        found_inf=None if found_inf is None else found_inf.to(device),
        seed=rounds.seed if rounds else 0,
        step=rounds.step.to(device) if rounds else None,
        nesterov=bool(group["nesterov"]),
        maximize=bool(group["maximize"]),
        decoupled=bool(group["decoupled"]),
    )
    with job.plan.on_device():
        job.plan.update(job.table, given, coefs if job.tensors.decays else None)
    increment_version(job.tensors.params + job.buffers)


def _keep_buffers(tensors: "GroupTensors", jobs: list[Job]) -> None:
    indices = {position: i for i, position in enumerate(tensors.positions)}
    for job in jobs:
        if job.buffers:
            pairs = zip(job.tensors.positions, job.buffers, strict=True)
            for position, buffer in pairs:
                tensors.buffers[indices[position]] = buffer


def _scalar(value: float | Tensor, device: torch.device) -> float | Tensor:
    """Return a number, or a number on the device: what is there is not read here."""
    if not isinstance(value, Tensor):
        return float(value)
    return value.item() if value.device.type != device.type else value.to(device)


def _layers_by_kind(grads: Sequence[Tensor], members: Members) -> list[list[int]]:
    """Sort the numbers of layers by device and type."""
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, layer in enumerate(members):
        first = grads[layer[0]]
        kinds.setdefault((first.device, first.dtype), []).append(number)
    return list(kinds.values())
