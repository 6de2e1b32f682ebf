"""One optimization step, several ways: each a pure function on lists of tensors.

Every path is ``step(params, grads, buffers, layers, *, adjust=None, **options)``:

- ``params``, updated in place; ``grads``, never written;
- ``buffers``, the momentum buffers, None before the first step and filled in;
- ``layers``, the layer of each tensor: tensors of one layer pool their statistics;
- ``adjust``, which may change the θ of a layer, given with the layer's parameters
  (the seam of the lab's controls; loop and foreach only);
- ``given``, for tensors that are parts of larger ones: the statistics of each layer as
  a whole;
- ``options``, the settings of the parameter group, below.
"""

from collections.abc import Callable
from typing import TypedDict

from torch import Tensor

Scalar = float | Tensor
Adjust = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


class Options(TypedDict):
    """The settings of one step, as a parameter group holds them."""

    lr: Scalar
    momentum: float
    dampening: float
    weight_decay: Scalar
    nesterov: bool
    maximize: bool
    alpha: float
    decoupled: bool
    unit_mean: bool
