"""The GPU engine: Triton kernels for the step on CUDA and ROCm devices.

It takes real tensors of 32 or 16 bits that lie in memory without gaps and in the same
order as their gradients, where ``fused=True`` asks for it. Triton comes with torch on
Linux, and is imported only when a step needs it. The environment variable
``ADADECAY_GPU=none`` switches the engine off.
"""

from adadecay.gpu.engine import Engine, scaling, unscaled
from adadecay.gpu.support import DEVICES, TYPES, holds, unavailable_reason, unsupported

__all__ = [
    "DEVICES",
    "TYPES",
    "Engine",
    "holds",
    "scaling",
    "unavailable_reason",
    "unscaled",
    "unsupported",
]
