"""Measure the level of every statement that a page prints, with and without effects.

Simulates tables of 60 comparisons (12 cells, five other optimizers) in which 0, 5, 15
or all 60 differ, and standings over cells, and writes how often a statement is wrong
into docs/statistics.md. Seeded: the same command gives the same numbers. The formulas
are the lab's trimmed-t for many samples at once; a test holds them against the lab's.

    python tools/simulate.py                  about a minute
"""

import argparse
import re
from pathlib import Path

import numpy as np
from scipy import stats

from adadecay.lab.scoring import TRIM

DOCS = Path(__file__).resolve().parents[1] / "docs/statistics.md"
MARKED = re.compile("(<!-- simulated -->\n).*?(<!-- /simulated -->)", re.DOTALL)
CELLS, OTHERS = 12, 5
EFFECTS = (0, 5, 15, 60)
SHAPES = ("normal", "skewed")
PAIRS = (5, 10, 20)
CHUNK = 500


def draw(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return noise of scores: normal, or with trials that end badly."""
    return rng.normal(size=size) if shape == "normal" else -rng.exponential(size=size)


def estimates(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return trimmed means along the last axis, their errors and the freedom."""
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    cut = int(TRIM * count)
    low, high = ordered[..., cut, None], ordered[..., count - cut - 1, None]
    clipped = np.clip(ordered, low, high)
    squares = ((clipped - clipped.mean(-1, keepdims=True)) ** 2).sum(-1)
    left = count - 2 * cut
    mean = ordered[..., cut : count - cut].mean(-1)
    return mean, np.sqrt(squares / (left * (left - 1))), left - 1 - cut


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p-values of each row."""
    order = np.argsort(p_values, axis=1)
    ranked = np.take_along_axis(p_values, order, 1)
    left = np.arange(p_values.shape[1], 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(1, ranked * left), axis=1)
    found = np.empty_like(adjusted)
    np.put_along_axis(found, order, adjusted, 1)
    return found


def tables(shape: str, pairs: int, effects: int, runs: int, seed: int) -> list[float]:
    """Return in percent how often a table has a false difference or a false size."""
    rng = np.random.default_rng([seed, SHAPES.index(shape), pairs, effects])
    size = np.zeros(CELLS * OTHERS)
    size[rng.permutation(size.size)[:effects]] = 1.5
    false = sizes = 0
    for _ in range(runs // CHUNK):
        shared = rng.normal(size=(CHUNK, CELLS, 1, pairs))
        ours = shared + draw(shape, (CHUNK, CELLS, 1, pairs), rng)
        other = shared + draw(shape, (CHUNK, CELLS, OTHERS, pairs), rng)
        found = (ours - other).reshape(CHUNK, -1, pairs) + size[:, None]
        mean, error, freedom = estimates(found)
        zero = holm(2 * stats.t.sf(np.abs(mean / error), freedom)) <= 0.05
        other_size = holm(2 * stats.t.sf(np.abs((mean - size) / error), freedom))
        false += zero[:, size == 0].any(axis=1).sum()
        sizes += (other_size <= 0.05).any(axis=1).sum()
    return [100 * false / runs, 100 * sizes / runs]


def standing(shape: str, pairs: int, runs: int, seed: int) -> float:
    """Return in percent how often a standing over four cells wrongly excludes 0."""
    rng = np.random.default_rng([seed, SHAPES.index(shape), pairs, 99])
    shared = rng.normal(size=(runs, 4, pairs))
    scale = np.array([0.1, 1.0, 5.0, 20.0])[:, None]
    ours, base = (scale * (shared + draw(shape, shared.shape, rng)) for _ in "ab")
    mean, error, freedom = estimates(ours - base)
    spread = base.std(axis=-1, ddof=1)
    variance = (error / spread / 4) ** 2
    total = variance.sum(-1)
    degrees = total**2 / (variance**2 / freedom).sum(-1)
    ratio = (mean / spread / 4).sum(-1) / np.sqrt(total)
    return 100 * float(np.mean(2 * stats.t.sf(np.abs(ratio), degrees) <= 0.05))


def as_text(runs: int, seed: int) -> str:
    """Return the measurements as Markdown."""
    margin = 200 * np.sqrt(0.05 * 0.95 / runs)
    lines = [
        f"{runs:,} simulated studies for each number (`python tools/simulate.py`), in "
        f"percent; nominal 5, two standard errors of the simulation are {margin:.2f}. "
        "*False difference*: any of 60 comparisons without an effect is called one. "
        "*False size*: any true size is rejected. *Standing*: the interval over four "
        "cells without an effect excludes 0.",
        "",
        "| scores | pairs | true effects | false difference | false size | standing |",
        "|---|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        for pairs in PAIRS:
            for effects in EFFECTS:
                false, size = tables(shape, pairs, effects, runs, seed)
                shown = "–" if effects == CELLS * OTHERS else f"{false:.2f}"
                line = f"| {shape} | {pairs} | {effects} | {shown} | {size:.2f} |"
                alone = "" if effects else f"{standing(shape, pairs, runs, seed):.2f}"
                lines.append(f"{line} {alone} |")
    return "\n".join(lines)


def main() -> None:
    """Simulate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=18)
    given = parser.parse_args()
    text = as_text(given.simulations, given.seed)
    page = DOCS.read_text("utf-8")
    DOCS.write_text(MARKED.sub(rf"\g<1>{text}\n\g<2>", page), "utf-8")


if __name__ == "__main__":
    main()
