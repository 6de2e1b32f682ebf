"""Measure how the statistics behave where the truth is known, and write it down.

Simulates trials with and without a difference, counts how often each interval holds the
truth and how often a test cries wolf, and writes the counts to
``src/adadecay/lab/stats/coverage.toml`` (which the report reads) and into the tables of
``docs/statistics.md``. Seeded: the same command gives the same numbers.

    python tools/calibrate.py                 some 15 minutes on two cores
    python tools/calibrate.py --simulations 200
"""

import argparse
import re
import sys
from concurrent.futures import ProcessPoolExecutor
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


def coverage(shape: str, count: int, runs: int, seed: int) -> dict[str, object]:
    """Return in percent how often each interval holds the truth.

    BCa is measured where it is used, and left out (an empty text) below.
    """
    rng = np.random.default_rng([seed, count, list(SHAPES).index(shape)])
    true = truth(shape, count)
    boots = count >= intervals.BOOTSTRAP_FROM
    held = {f"{kind} {name}": 0 for kind in ("t", "BCa", "used") for name in LEVELS}
    for sample in pairs(shape, (runs, count), rng):
        drawn = intervals._bootstrap(sample, intervals.TRIM, 1) if boots else None
        for name, level in LEVELS.items():
            t = used = intervals.trimmed_t(sample, level=level)
            if boots:
                low, high = intervals._bca(sample, intervals.TRIM, level, drawn)
                held[f"BCa {name}"] += low <= true <= high
                ends = min(low, t.low), max(high, t.high)  # as paired_intervals does
                used = intervals.Interval(*ends, level, "BCa")
            held[f"t {name}"] += t.holds(true)
            held[f"used {name}"] += used.holds(true)
    shares = {key: 100 * value / runs for key, value in held.items()}
    return shares | ({} if boots else {f"BCa {name}": "" for name in LEVELS})


def false_positives(shape: str, count: int, runs: int, seed: int) -> dict[str, object]:
    """Return in percent how often a difference is seen where there is none."""
    rng = np.random.default_rng([seed, count, 7])
    samples = pairs(shape, (runs, count), rng)
    found = {
        "sign-flip": sum(significance.sign_flip(s, seed=1) <= 0.05 for s in samples),
        "interval": sum(
            not intervals.paired_intervals(sample, seed=1)(0.95).holds(0)
            for sample in samples
            if not intervals.trimmed_t(sample).holds(0)  # it is inside the other
        ),
        "family": sum(any_found(family(shape, count, rng)) for _ in range(runs)),
    }
    return {key: 100 * value / runs for key, value in found.items()}


def measure(kind: str, shape: str, count: int, runs: int, seed: int) -> dict:
    """Measure one row, and say so."""
    maker = coverage if kind == "coverage" else false_positives
    row = {"shape": shape, "pairs": count, **maker(shape, count, runs, seed)}
    print(kind, row, file=sys.stderr, flush=True)
    return row


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
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = [("coverage", shape, n) for shape in SHAPES for n in COUNTS]
    rows += [("null", shape, n) for shape in ("normal", "skewed") for n in COUNTS]
    with ProcessPoolExecutor(given.workers) as pool:
        waiting = [
            pool.submit(measure, *row, given.simulations, given.seed)
            for row in reversed(rows)  # the longest first
        ]
        found = [each.result() for each in reversed(waiting)]
    covered, wolves = found[: -2 * len(COUNTS)], found[-2 * len(COUNTS) :]
    TOML.write_text(as_toml(given.simulations, covered, wolves), "utf-8")
    tables = as_tables(given.simulations, covered, wolves)
    text = DOCS.read_text("utf-8")
    marked = re.compile("(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)
    DOCS.write_text(marked.sub(rf"\g<1>{tables}\n\g<2>", text), "utf-8")


if __name__ == "__main__":
    main()
