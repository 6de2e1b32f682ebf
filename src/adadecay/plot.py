"""A plot of one layer's θ: where it lies in the tensor, and how it is distributed.

In: an optimizer whose parameters have gradients, and the name of a tensor. Out: an
Altair chart, which a notebook shows and ``chart.save`` writes as HTML, SVG or PNG.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay.diagnostics import present_decays
from adadecay.extras import missing_lab

__all__ = ["plot_rates"]

CELLS = 48  # of the map, along either side
BINS = 40
SIDE = 240  # pixels: with axes the chart stays within the width of a phone
TALLEST = 20  # pixels of a cell
LABELS = 6  # of an axis of the map, at most


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
        A chart: above, the tensor as a matrix, a cell for each weight or for the mean
        of a block of them, whose first row and column the axes name; below, the
        distribution. Needs ``altair`` (``adadecay[lab]``).
    """
    try:
        import altair
    except ModuleNotFoundError as error:
        raise ImportError(f"plot_rates: {missing_lab(error) or error}") from error
    theta = _theta(optimizer, layer, model)
    shares = altair.Chart({"values": _bars(theta)}, width=SIDE, height=SIDE // 2)
    low = altair.X("from:Q", bin="binned", title="θ", axis=altair.Axis(tickCount=5))
    percent = altair.Axis(format="%")
    share = altair.Y("share:Q", title="share of weights", axis=percent, stack=None)
    bars = shares.mark_bar().encode(x=low, x2="to:Q", y=share)
    said = f"{theta.numel()} weights, mean θ = {float(theta.mean()):.3f}"
    title = altair.Title(layer, subtitle=said)
    return altair.vconcat(_map(theta, altair), bars, title=title)


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


def _map(theta: Tensor, altair: Any) -> Any:
    """Draw where θ lies in the tensor."""
    matrix = theta.float().reshape(len(theta) if theta.ndim > 1 else 1, -1)
    scale = altair.Scale(domain=[0, 1, 2], range=["#2166ac", "#f7f7f7", "#b2182b"])
    legend = altair.Legend(orient="top", gradientLength=SIDE // 2)
    rows, columns = map(_starts, matrix.shape)
    # Whole pixels for each cell: fractions would leave gaps between cells.
    width = altair.Step(SIDE // len(columns))
    height = altair.Step(min(TALLEST, SIDE // len(rows)))
    cells = altair.Chart({"values": _cells(matrix)}, width=width, height=height)
    x = _axis(columns, title=f"column (of {matrix.shape[1]})")
    y = _axis(rows, title=f"row (of {matrix.shape[0]})")
    return cells.mark_rect().encode(
        x=altair.X("column:O", axis=altair.Axis(**x)),
        y=altair.Y("row:O", axis=altair.Axis(**y)),
        color=altair.Color("theta:Q", scale=scale, title="θ", legend=legend),
    )


def _starts(size: int) -> list[int]:
    """Return the first row, or column, of each of at most CELLS blocks."""
    blocks = min(size, CELLS)
    return [block * size // blocks for block in range(blocks)]


def _axis(starts: list[int], title: str) -> dict[str, Any]:
    """Return the options of an axis that names some of the blocks."""
    every = math.ceil(len(starts) / LABELS)
    return {"title": title, "values": starts[::every], "labelAngle": 0}


def _cells(matrix: Tensor) -> list[dict[str, float]]:
    """Return a matrix as at most CELLS × CELLS block means."""
    rows, columns = map(_starts, matrix.shape)
    size = len(rows), len(columns)
    means = nn.functional.adaptive_avg_pool2d(matrix[None], size)[0]
    return [
        {"row": r, "column": c, "theta": value}
        for r, row in zip(rows, means.tolist(), strict=True)
        for c, value in zip(columns, row, strict=True)
    ]


def _bars(theta: Tensor) -> list[dict[str, float]]:
    """Return the share of the weights in each of BINS intervals of θ."""
    top = max(2.0, float(theta.max()))
    shares = (torch.histc(theta.float(), BINS, min=0, max=top) / theta.numel()).tolist()
    edges = torch.linspace(0, top, BINS + 1).tolist()
    intervals = zip(edges, edges[1:], shares, strict=False)
    return [{"from": low, "to": high, "share": share} for low, high, share in intervals]
