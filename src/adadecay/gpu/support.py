"""Whether there is a GPU engine here, and which tensors it takes."""

import functools
import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adadecay import native, rounding

if TYPE_CHECKING:
    from adadecay.decay import GroupTensors

VARIABLE = "ADADECAY_GPU"
DEVICES = {"cuda"}  # torch's name for AMD's devices, too
TYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST_TRITON = (3, 5)


@functools.cache
def unavailable_reason() -> str | None:
    """Return why there is no GPU engine here, or None where there is."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "none":
        return f"{VARIABLE}=none turns it off; unset the variable to use it"
    if wanted:
        raise ValueError(f"{VARIABLE}={wanted!r} must be none, or not set")
    try:
        import triton
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install it or leave fused=None"
    version: str = triton.__version__
    if tuple(map(int, version.split(".")[:2])) < OLDEST_TRITON:
        oldest = ".".join(map(str, OLDEST_TRITON))
        return f"Triton is {version}, older than {oldest}; leave fused=None"
    return None


def holds(groups: list[dict[str, Any]]) -> bool:
    """Whether all parameters of groups are on a GPU."""
    params = (param for group in groups for param in group["params"])
    return all(param.device.type in DEVICES for param in params)


def unsupported(tensors: "GroupTensors") -> dict[int, str]:
    """Return why the kernels cannot take parameters, by index."""
    found = rounding.unsupported(tensors, cut=True) if tensors.rounding else {}
    parts = zip(tensors.params, tensors.grads, tensors.buffers, strict=True)
    found |= native.unsupported(parts, types=TYPES, devices=DEVICES)
    for layer in tensors.members if len(tensors.members) < len(tensors.params) else ():
        if (
            len({(tensors.params[i].device, tensors.params[i].dtype) for i in layer})
            > 1
        ):
            reason = "its layer holds tensors of different types or devices"
            found |= {i: found.get(i, reason) for i in layer}
    return found


def reads(grads: list[Tensor]) -> bool:
    """Whether the kernels can read gradients, all of one type."""
    kernel: dict[str, Any] = {"types": TYPES, "devices": DEVICES}
    return (
        grads[0].device.type in DEVICES
        and len({(grad.device, grad.dtype) for grad in grads}) == 1
        and not torch.compiler.is_compiling()
        and not any(grad.requires_grad for grad in grads)
        and not native.unsupported(([grad] for grad in grads), **kernel)
        and unavailable_reason() is None
    )
