"""Measure what the documentation prints and no study computes.

    python tools/measure.py coverage     coverage of intervals, false positives: 15 min
    python tools/measure.py levels       how often a statement of a page is wrong: 1 min

They simulate trials whose truth is known, from seeds, so that the same command gives
the same numbers. Out: ``src/adadecay/lab/stats/coverage.toml`` (which reports read) and
``benchmarks/levels.json``; ``python tools/docs.py`` puts them on the pages.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from adadecay.lab.stats import intervals
from adadecay.lab.stats.significance import holm, sign_flip

ROOT = Path(__file__).resolve().parents[1]
COVERAGE = ROOT / "src/adadecay/lab/stats/coverage.toml"
CELLS, OTHERS = 12, 5
FAMILY = CELLS * OTHERS
ALPHAS = {"95 %": 0.95, "Holm of 60": 1 - 0.05 / FAMILY}
# Normal scores; both optimizers have trials that end badly; only the other has.
SHAPES = ("normal", "skewed", "one-sided")
COUNTS, EFFECTS, CHUNK = (5, 10, 20, 30, 50), (0, 5, 15, 60), 500


def pairs(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return ours − other for paired trials of two equally good optimizers.

    ``one-sided`` is not centred: its truth is found by :func:`truth`.
    """
    seed = rng.normal(size=size)
    ours, other = seed + rng.normal(size=size), seed + rng.normal(size=size)
    if shape == "skewed":
        ours = seed - rng.exponential(size=size)
        other = seed - rng.exponential(size=size)
    elif shape == "one-sided":
        ours, other = seed, seed - rng.exponential(size=size)
    return ours - other


def truth(shape: str, count: int) -> float:
    """Return the trimmed mean of the population that n trials estimate."""
    if shape != "one-sided":
        return 0.0
    cut = int(intervals.TRIM * count) / count
    if not cut:
        return 1.0
    low, high = stats.expon.ppf([cut, 1 - cut])
    return float(stats.expon.expect(lb=low, ub=high) / (1 - 2 * cut))


def coverage(shape: str, count: int, runs: int, seed: int) -> dict[str, Any]:
    """Return in percent how often each interval holds the truth.

    BCa is measured where it is used, and left out (an empty text) below.
    """
    rng = np.random.default_rng([seed, count, SHAPES.index(shape)])
    true = truth(shape, count)
    boots = count >= intervals.BOOTSTRAP_FROM
    held = {f"{kind} {name}": 0 for kind in ("t", "BCa", "used") for name in ALPHAS}
    for sample in pairs(shape, (runs, count), rng):
        bca = intervals.bca(sample, intervals.TRIM, 1) if boots else None
        for name, level in ALPHAS.items():
            t = used = intervals.trimmed_t(sample, level=level)
            if boots:
                low, high = bca(confidence_level=level).confidence_interval
                held[f"BCa {name}"] += low <= true <= high
                ends = min(low, t.low), max(high, t.high)  # as paired_intervals does
                used = intervals.Interval(*ends, level, "BCa")
            held[f"t {name}"] += t.holds(true)
            held[f"used {name}"] += used.holds(true)
    shares = {key: 100 * value / runs for key, value in held.items()}
    return shares | ({} if boots else {f"BCa {name}": "" for name in ALPHAS})


def false_positives(shape: str, count: int, runs: int, seed: int) -> dict[str, Any]:
    """Return in percent how often the p-value sees a difference that is not there."""
    samples = pairs(shape, (runs, count), np.random.default_rng([seed, count, 7]))
    found = sum(sign_flip(sample, seed=1) <= 0.05 for sample in samples)
    return {"sign-flip": 100 * found / runs}


def measure_coverage(runs: int = 2000, seed: int = 20) -> str:
    """Return coverage and false positives as TOML."""
    asked: list[tuple[Any, str, int]] = [
        (coverage, s, n) for s in SHAPES for n in COUNTS
    ]
    asked += [(false_positives, shape, n) for shape in SHAPES[:2] for n in COUNTS]
    lines = ["# Measured by tools/measure.py, in percent; the report reads it."]
    lines.append(f"simulations = {runs}")
    with ProcessPoolExecutor(2) as pool:
        rows = [pool.submit(make, shape, n, runs, seed) for make, shape, n in asked]
        for (make, shape, count), row in zip(asked, rows, strict=True):
            lines.append(f"\n[[{make.__name__}]]")
            for key, value in {"shape": shape, "pairs": count, **row.result()}.items():
                text = f'"{value}"' if isinstance(value, str) else f"{value:g}"
                lines.append(f'"{key}" = {text}')
            print(make.__name__, shape, count, "done", file=sys.stderr, flush=True)
    return "\n".join(lines)


def noise(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return noise of scores: normal, or with trials that end badly."""
    return rng.normal(size=size) if shape == "normal" else -rng.exponential(size=size)


def estimates(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the lab's trimmed means of many samples, errors and the freedom."""
    count = values.shape[-1]
    cut = int(intervals.TRIM * count)
    mean, error = intervals.trimmed_moments(np.sort(values, axis=-1), cut)
    return mean, error, count - 3 * cut - 1


def tables(shape: str, count: int, effects: int, runs: int, seed: int) -> list[float]:
    """Return in percent how often a table has a false difference or a false size."""
    rng = np.random.default_rng([seed, SHAPES.index(shape), count, effects])
    size = np.zeros(FAMILY)
    size[rng.permutation(size.size)[:effects]] = 1.5
    false = sizes = 0
    for _ in range(runs // CHUNK):
        shared = rng.normal(size=(CHUNK, CELLS, 1, count))
        ours = shared + noise(shape, (CHUNK, CELLS, 1, count), rng)
        other = shared + noise(shape, (CHUNK, CELLS, OTHERS, count), rng)
        found = (ours - other).reshape(CHUNK, -1, count) + size[:, None]
        mean, error, freedom = estimates(found)
        zero, other_size = (
            holm(2 * stats.t.sf(np.abs((mean - null) / error), freedom)) <= 0.05
            for null in (0.0, size)
        )
        false += zero[:, size == 0].any(axis=1).sum()
        sizes += other_size.any(axis=1).sum()
    return [100 * false / runs, 100 * sizes / runs]


def across_cells(shape: str, count: int, runs: int, seed: int) -> float:
    """Return in percent how often an interval across four cells wrongly excludes 0."""
    rng = np.random.default_rng([seed, SHAPES.index(shape), count, 99])
    shared = rng.normal(size=(runs, 4, count))
    scale = np.array([0.1, 1.0, 5.0, 20.0])[:, None]
    ours, base = (scale * (shared + noise(shape, shared.shape, rng)) for _ in "ab")
    mean, error, freedom = estimates(ours - base)
    spread = base.std(axis=-1, ddof=1)
    variance = (error / spread / 4) ** 2
    total = variance.sum(-1)
    degrees = total**2 / (variance**2 / freedom).sum(-1)
    ratio = (mean / spread / 4).sum(-1) / np.sqrt(total)
    return 100 * float(np.mean(2 * stats.t.sf(np.abs(ratio), degrees) <= 0.05))


def measure_levels(runs: int = 10_000, seed: int = 18) -> str:
    """Return the level of every statement as JSON: 60 comparisons, and across cells."""
    rows = []
    for shape, count in [(shape, n) for shape in SHAPES[:2] for n in COUNTS]:
        for effects in EFFECTS:
            false, size = tables(shape, count, effects, runs, seed)
            alone = "" if effects else round(across_cells(shape, count, runs, seed), 2)
            shown = {"shape": shape, "pairs": count, "true effects": effects}
            shown["false difference"] = "–" if effects == FAMILY else round(false, 2)
            rows.append(shown | {"false size": round(size, 2), "across cells": alone})
    found = {"simulations": runs, "levels": rows}
    return json.dumps(found, ensure_ascii=False, indent=1)


MEASURES = {
    "coverage": (measure_coverage, COVERAGE),
    "levels": (measure_levels, ROOT / "benchmarks/levels.json"),
}


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=MEASURES)
    measure, path = MEASURES[parser.parse_args().what]
    path.write_text(measure().strip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
