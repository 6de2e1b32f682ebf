"""Measure how the statistics behave where the truth is known, and write it down.

Simulates trials with and without a difference, counts how often each interval holds the
truth and how often a test cries wolf, and writes the counts to
``src/adadecay/lab/stats/coverage.toml`` (which the report reads) and into the tables of
``docs/statistics.md``. Seeded: the same command gives the same numbers.

    python tools/calibrate.py                 some 20 minutes on one core
    python tools/calibrate.py --simulations 200
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import stats

from adadecay.lab.stats import intervals, significance

ROOT = Path(__file__).resolve().parents[1]
TOML = ROOT / "src/adadecay/lab/stats/coverage.toml"
DOCS = ROOT / "docs/statistics.md"
COUNTS = (5, 10, 20, 30, 50)
FAMILY = 60  # twelve cells, five other optimizers
LEVELS = {"95 %": 0.95, "Holm of 60": 1 - 0.05 / FAMILY}
SHAPES = {
    "normal": "normal scores, half of the variance shared by the seed",
    "skewed": "both optimizers have trials that end badly (exponential tail)",
    "one-sided": "only the other has trials that end badly: the worst case",
}


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


def coverage(simulations: int, seed: int) -> Iterator[dict[str, object]]:
    """Give one row for each shape and number of pairs, in percent."""
    for shape in SHAPES:
        for count in COUNTS:
            rng = np.random.default_rng([seed, count, list(SHAPES).index(shape)])
            true = truth(shape, count)
            held = {f"{m} {name}": 0 for m in ("t", "BCa", "used") for name in LEVELS}
            for sample in pairs(shape, (simulations, count), rng):
                at = intervals.paired_intervals(sample, seed=1)
                drawn = intervals._bootstrap(sample, intervals.TRIM, 1)
                for name, level in LEVELS.items():
                    t = intervals.trimmed_t(sample, level=level)
                    low, high = intervals._bca(sample, intervals.TRIM, level, drawn)
                    held[f"t {name}"] += t.holds(true)
                    held[f"BCa {name}"] += low <= true <= high
                    held[f"used {name}"] += at(level).holds(true)
            shares = {key: 100 * value / simulations for key, value in held.items()}
            print(shape, count, shares, file=sys.stderr, flush=True)
            yield {"shape": shape, "pairs": count, **shares}


def false_positives(simulations: int, seed: int) -> Iterator[dict[str, object]]:
    """Give how often a difference is seen where there is none, in percent."""
    for shape in ("normal", "skewed"):
        for count in COUNTS:
            rng = np.random.default_rng([seed, count, 7])
            flips = sum(
                significance.sign_flip(sample, seed=1) <= 0.05
                for sample in pairs(shape, (simulations, count), rng)
            )
            alone = sum(
                not intervals.paired_intervals(sample, seed=1)(0.95).holds(0)
                for sample in pairs(shape, (simulations, count), rng)
                if not intervals.trimmed_t(sample).holds(0)  # it is inside the other
            )
            families = sum(
                any_found(family(shape, count, rng)) for _ in range(simulations)
            )
            row = {"sign-flip": flips, "interval": alone, "family": families}
            shares = {key: 100 * value / simulations for key, value in row.items()}
            print("null", shape, count, shares, file=sys.stderr, flush=True)
            yield {"shape": shape, "pairs": count, **shares}


def family(shape: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the differences of a whole table: ours is shared by five comparisons."""
    seed = rng.normal(size=(12, 1, count))
    draw = rng.normal if shape == "normal" else rng.exponential
    ours = seed - draw(size=(12, 1, count))
    other = seed - draw(size=(12, 5, count))
    return (ours - other).reshape(FAMILY, count)


def any_found(samples: np.ndarray) -> bool:
    """Return whether Holm's first step, the widest, finds a difference."""
    level = LEVELS["Holm of 60"]
    order = [intervals.trimmed_mean(sample).p_value() for sample in samples]
    first = samples[int(np.argmin(order))]
    if intervals.trimmed_t(first, level=level).holds(0):  # so does the wider one
        return False
    return not intervals.paired_intervals(first, seed=1)(level).holds(0)


def as_toml(simulations: int, covered: list[dict], wolves: list[dict]) -> str:
    """Return the measurements as TOML."""
    lines = [
        "# Measured by tools/calibrate.py, in percent; the report reads it.",
        f"simulations = {simulations}",
    ]
    for name, rows in (("coverage", covered), ("false_positives", wolves)):
        for row in rows:
            lines.append(f"\n[[{name}]]")
            for key, value in row.items():
                text = f'"{value}"' if isinstance(value, str) else f"{value:g}"
                lines.append(f'"{key}" = {text}')
    return "\n".join(lines) + "\n"


def as_tables(simulations: int, covered: list[dict], wolves: list[dict]) -> str:
    """Return the measurements as Markdown tables."""
    heads = ["scores", "pairs", *(key for key in covered[0] if key[0] in "tBu")]
    lines = [
        f"{simulations:,} simulations for each row; `python tools/calibrate.py`.",
        "",
        "Coverage, in percent (`used` is what reports use: t below 30 pairs, from "
        "there BCa taken out to t):",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    for row in covered:
        cells = [row["shape"], row["pairs"], *(row[key] for key in heads[2:])]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    heads = ["scores", "pairs", *(k for k in wolves[0] if k not in ("shape", "pairs"))]
    lines += [
        "",
        "False positives where there is no difference, in percent (nominal 5; `family` "
        f"is any of {FAMILY} comparisons, Holm-adjusted):",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    for row in wolves:
        cells = [row["shape"], row["pairs"], *(row[key] for key in heads[2:])]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Simulate, and write the two files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20)
    given = parser.parse_args()
    covered = list(coverage(given.simulations, given.seed))
    wolves = list(false_positives(given.simulations, given.seed))
    TOML.write_text(as_toml(given.simulations, covered, wolves), "utf-8")
    tables = as_tables(given.simulations, covered, wolves)
    text = DOCS.read_text("utf-8")
    marked = re.compile("(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)
    DOCS.write_text(marked.sub(rf"\g<1>{tables}\n\g<2>", text), "utf-8")


if __name__ == "__main__":
    main()
