"""A plot of one layer's θ: where it lies in the tensor, and how it is distributed.

In: an optimizer whose parameters have gradients, and the name of a tensor. Out: an
Altair chart, which a notebook shows and ``chart.save`` writes as HTML, SVG or PNG.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay.diagnostics import present_decays
from adadecay.extras import missing_lab

__all__ = ["plot_rates"]

CELLS = 48  # of the map, along either side
BINS = 40


@torch.no_grad()
def plot_rates(
    optimizer: Optimizer, layer: str, *, model: nn.Module | None = None
) -> Any:
    """Draw the θ that the present gradients give one tensor.

    Args:
        optimizer: an AdaDecay or a wrapped optimizer, after ``backward`` and before
            ``zero_grad``.
        layer: the tensor's name, as :func:`measure` gives it.
        model: gives tensors their names, where the optimizer has none.

    Returns:
        A chart: on the left the tensor as a matrix, a cell for each weight or for the
        mean of a block of them; on the right the distribution. Needs ``altair``
        (``adadecay[lab]``).
    """
    try:
        import altair
    except ModuleNotFoundError as error:
        raise ImportError(f"plot_rates: {missing_lab(error) or error}") from error
    theta = _theta(optimizer, layer, model)
    scale = altair.Scale(domain=[0, 1, 2], range=["#2166ac", "#f7f7f7", "#b2182b"])
    cells = altair.Chart({"values": _cells(theta)}).mark_rect()
    where = cells.encode(
        x=altair.X("column:O", axis=None),
        y=altair.Y("row:O", axis=None),
        color=altair.Color("theta:Q", scale=scale, title="θ"),
    )
    bars = altair.Chart({"values": _bars(theta)}).mark_bar()
    x = altair.X("from:Q", bin="binned", title="θ", axis=altair.Axis(tickCount=5))
    percent = altair.Axis(format="%")
    y = altair.Y("share:Q", title="share of weights", axis=percent, stack=None)
    title = f"{layer}: {theta.numel()} weights, mean θ = {float(theta.mean()):.3f}"
    return altair.hconcat(where, bars.encode(x=x, x2="to:Q", y=y), title=title)


def _theta(optimizer: Optimizer, name: str, model: nn.Module | None) -> Any:
    """Return θ of one tensor."""
    labels, decays = present_decays(optimizer, model, "plot_rates")
    if name not in labels.values():
        named = model or any("param_names" in each for each in optimizer.param_groups)
        raise ValueError(
            f"no tensor that decays and has a gradient is called {name!r}; there are: "
            f"{', '.join(labels.values()) or 'none'}"
            f"{'' if named else ' (model=… gives names)'}"
        )
    return next(
        theta
        for tensors, indices, _, _, thetas in decays
        for i, theta in zip(indices, thetas, strict=True)
        if labels[tensors.params[i]] == name
    )


def _cells(theta: Tensor) -> list[dict[str, float]]:
    """Return the tensor as a matrix of at most CELLS × CELLS block means."""
    flat = theta.float()
    matrix = flat.reshape(len(flat), -1) if flat.ndim > 1 else flat.reshape(1, -1)
    size = min(matrix.shape[0], CELLS), min(matrix.shape[1], CELLS)
    means = nn.functional.adaptive_avg_pool2d(matrix[None], size)[0]
    return [
        {"row": r, "column": c, "theta": value}
        for r, row in enumerate(means.tolist())
        for c, value in enumerate(row)
    ]


def _bars(theta: Tensor) -> list[dict[str, float]]:
    """Return the share of the weights in each of BINS intervals of θ."""
    top = max(2.0, float(theta.max()))
    shares = (torch.histc(theta.float(), BINS, min=0, max=top) / theta.numel()).tolist()
    edges = torch.linspace(0, top, BINS + 1).tolist()
    intervals = zip(edges, edges[1:], shares, strict=False)
    return [{"from": low, "to": high, "share": share} for low, high, share in intervals]
