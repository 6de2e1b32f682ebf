"""Stochastic rounding of bfloat16 weights: up or down at random, right on average.

In: new weights in float32. Out: of the two bfloat16 numbers around each, one, so that
the mean over many draws is the float32 number. A random number is a hash of seed, step,
parameter and the element's place in the memory of the whole tensor: replicas round
alike, parts of a DTensor as the whole does, and a resumed run as one that went on. The
kernels (``csrc/vector.hpp``, ``gpu/rounding.py``) restate ``draws``.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from adadecay.groups import Group, warn_once

if TYPE_CHECKING:
    from adadecay.decay import GroupTensors

MASK = 0xFFFFFFFF
HALVES = {torch.bfloat16, torch.float16}


def check_rounding(group: Group) -> None:
    """Refuse a seed that is none, and stochastic rounding where there is none."""
    seed = group["rounding_seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MASK:
        raise ValueError(
            f"rounding_seed must be an integer from 0 to 2**32 - 1, but it is {seed!r}"
        )
    if not group["stochastic_rounding"]:
        return
    if group["differentiable"]:
        raise RuntimeError(
            "`differentiable` does not support `stochastic_rounding`: leave one of "
            "them False"
        )
    for number, param in enumerate(group["params"]):
        if param.dtype == torch.float16:
            name = group.get("param_names", {number: f"number {number}"})[number]
            raise ValueError(
                "stochastic_rounding=True rounds bfloat16 parameters, but parameter "
                f"{name} is {param.dtype}: make it bfloat16, or give it a group with "
                "stochastic_rounding=False"
            )


def warn_rounded_away(groups: list[Group]) -> None:
    """Warn, once per process, where half-precision weights cannot see their decay.

    A weight that shrinks by less than a quarter of its type's eps stays what it is.
    """
    for group in groups:
        lr, weight_decay = group["lr"], group["weight_decay"]
        tensors = isinstance(lr, Tensor) or isinstance(weight_decay, Tensor)
        if tensors or group["stochastic_rounding"] or not group["decoupled"]:
            continue
        for dtype in {param.dtype for param in group["params"]} & HALVES:
            if 0 < 2 * lr * weight_decay < torch.finfo(dtype).eps / 4:
                warn_once(
                    "rounded",
                    f"lr={lr} and weight_decay={weight_decay} shrink {dtype} weights "
                    "by less than half a unit in the last place, so decoupled decay is "
                    "lost to rounding: keep the weights in float32 (autocast), or use "
                    "bfloat16 with stochastic_rounding=True",
                )


class Rounding(NamedTuple):
    """What the random numbers of a group's step depend on, but for the tensors."""

    seed: int
    step: Tensor  # how many steps were taken; a device counts on the device
    first: int  # the index of the group's first parameter among all


def begin(group: Group, groups: list[Group]) -> Rounding:
    """Return the rounding of a group's next step."""
    before = itertools.takewhile(lambda other: other is not group, groups)
    first = sum(len(other["params"]) for other in before)
    device = next((param.device for param in group["params"]), torch.device("cpu"))
    step = group.get("rounding_step")
    if step is None or step.device != device:
        step = torch.as_tensor(0 if step is None else step, device=device)
        group["rounding_step"] = step
    return Rounding(group["rounding_seed"], step, first)


def mix(x: Any, key: Any) -> Any:
    """Mix 32 bits, with a key in the middle; of integers or tensors of them."""
    x = (x ^ (x >> 16)) * 0x7FEB352D & MASK
    x = ((x ^ (x >> 15)) + key) * 0x846CA68B & MASK
    return x ^ (x >> 16)


def keys(seed: int, step: Any, parameter: int) -> tuple[Any, Any]:
    """Return the two keys of a tensor in a step."""
    step = step & MASK
    return mix(mix(seed, step), parameter), mix(mix(parameter, seed), step)


def draws(key: tuple[Any, Any], place: Any) -> Any:
    """Return the random numbers, of 16 bits, of elements at these places."""
    return mix(place & MASK ^ key[0], key[1] ^ (place >> 32)) >> 16


def rounded(wide: Tensor, random: Tensor) -> Tensor:
    """Round float32 numbers to bfloat16 by random numbers; NaN stays NaN."""
    bits = (wide.view(torch.int32) + random.to(torch.int32)) & ~0xFFFF
    return wide.where(wide.isnan(), bits.view(torch.float32)).to(torch.bfloat16)


def widened(tensors: list[Any]) -> list[Any]:
    """Return bfloat16 tensors in float32, others as they are."""
    wide = (t is not None and t.dtype == torch.bfloat16 for t in tensors)
    return [t.float() if w else t for t, w in zip(tensors, wide, strict=True)]


def store(
    tensors: "GroupTensors", index: int, wide: Tensor, buffer: Tensor | None
) -> None:
    """Round new weights, and store them; a momentum buffer is rounded to nearest."""
    param, given = tensors.params[index], tensors.rounding
    assert given is not None
    position = tensors.positions[index]
    key = keys(given.seed, given.step.to(param.device), given.first + position)
    where = places(param, tensors.group["params"][position])
    param.copy_(rounded(wide, draws(key, where)))
    before = tensors.buffers[index]
    if before is not None and buffer is not None:
        before.copy_(buffer)
    elif buffer is not None:
        tensors.buffers[index] = buffer.to(param.dtype)


def places(here: Tensor, whole: Tensor) -> Tensor:
    """Return where each element of a part stands in the memory of the whole tensor."""
    starts, strides = box(whole)
    found = torch.zeros((), dtype=torch.int64, device=here.device)
    for size, start, stride in zip(here.shape, starts, strides, strict=True):
        along = torch.arange(start, start + size, device=here.device) * stride
        found = found[..., None] + along
    return found


class Runs(NamedTuple):
    """Where a part without gaps stands in the memory of the whole: runs of elements.

    Nothing but zeros where they are not at equal distances.
    """

    start: int
    length: int
    jump: int  # from one run to the next


def runs(here: Tensor, whole: Tensor) -> Runs:
    """Return the runs of a part, in the order of its memory."""
    starts, strides = box(whole)
    start = sum(a * b for a, b in zip(starts, strides, strict=True))
    length, jump, number = 1, 0, 1
    for _, size, stride in sorted(zip(here.stride(), here.shape, strides, strict=True)):
        if size == 1:
            continue
        if not jump and stride == length:
            length *= size
        elif not jump:
            jump, number = stride, size
        elif stride == jump * number:
            number *= size
        else:
            return Runs(0, 0, 0)
    return Runs(start, length, jump or length)


def box(whole: Any) -> tuple[Sequence[int], Sequence[int]]:
    """Return where this rank's part of a tensor begins, and the whole's strides."""
    if not hasattr(whole, "placements"):
        return (0,) * whole.ndim, whole.stride()
    return _starts(whole.shape, whole.device_mesh, whole.placements), whole.stride()


@functools.lru_cache(4096)
def _starts(shape: Any, mesh: Any, placements: Any) -> Sequence[int]:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    with torch.device("cpu"):  # where torch makes the tensors that it reads here
        _, starts = compute_local_shape_and_global_offset(shape, mesh, placements)
    return starts or (0,) * len(shape)


def rows(tensors: "GroupTensors") -> list[tuple[int, Runs]]:
    """Return the number of each parameter among all, and its runs."""
    given, own = tensors.rounding, tensors.group["params"]
    assert given is not None
    return [
        (given.first + at, runs(param, own[at]) if param.numel() else Runs(0, 1, 1))
        for param, at in zip(tensors.params, tensors.positions, strict=True)
    ]


def unsupported(tensors: "GroupTensors", *, cut: bool) -> dict[int, str]:
    """Return why a kernel cannot round parameters, by index.

    ``cut`` says whether it takes parts that are several runs of the whole.
    """
    reason = (
        "its part of the whole tensor is split into too many pieces for stochastic "
        "rounding"
    )
    return {
        i: reason
        for i, (param, (_, part)) in enumerate(
            zip(tensors.params, rows(tensors), strict=True)
        )
        if param.dtype == torch.bfloat16
        and (part.length == 0 or (part.length < param.numel() and not cut))
    }


def words(tensors: "GroupTensors") -> list[int]:
    """Return what the native kernel rounds by: two keys and a place of each tensor."""
    given = tensors.rounding
    assert given is not None
    step = int(given.step)
    return [
        word
        for number, part in rows(tensors)
        for word in (*keys(given.seed, step, number), part.start)
    ]
