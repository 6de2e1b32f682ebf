"""RMSprop and Adam of torch, under the paper's names for their settings.

In: named parameters and settings. Out: optimizers of ``torch.optim``, whose weight
decay is coupled: λw is added to the gradient.
"""

from collections.abc import Iterable

from torch import Tensor
from torch.optim import Adam, RMSprop
from torch.optim.optimizer import Optimizer

Named = Iterable[tuple[str, Tensor]]


def rmsprop(
    params: Named,
    *,
    lr: float,
    weighting: float,
    eps: float,
    momentum: float,
    weight_decay: float,
) -> Optimizer:
    """Make RMSprop; ``weighting`` is the weight of the old mean square."""
    return RMSprop(
        params,
        lr,
        alpha=weighting,
        eps=eps,
        momentum=momentum,
        weight_decay=weight_decay,
    )


def adam(
    params: Named,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> Optimizer:
    """Make Adam with coupled weight decay (not AdamW)."""
    return Adam(params, lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)
