"""Measure what the documentation prints and no study computes.

    python tools/measure.py coverage     coverage of intervals, false positives: 15 min
    python tools/measure.py levels       how often a statement of a page is wrong: 1 min
    python tools/measure.py components   time of gradients and steps on this machine

The first two simulate trials whose truth is known, from seeds, so that the same command
gives the same numbers. Out: ``src/adadecay/lab/stats/coverage.toml`` (which reports
read), ``benchmarks/levels.json`` and ``benchmarks/components.json``;
``python tools/docs.py`` puts them on the pages. Timings are medians of interleaved
repeats in processor time of one thread.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from adadecay.lab.stats import intervals, significance

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
        drawn = intervals._bootstrap(sample, intervals.TRIM, 1) if boots else None
        for name, level in ALPHAS.items():
            t = used = intervals.trimmed_t(sample, level=level)
            if boots:
                low, high = intervals._bca(sample, intervals.TRIM, level, drawn)
                held[f"BCa {name}"] += low <= true <= high
                ends = min(low, t.low), max(high, t.high)  # as paired_intervals does
                used = intervals.Interval(*ends, level, "BCa")
            held[f"t {name}"] += t.holds(true)
            held[f"used {name}"] += used.holds(true)
    shares = {key: 100 * value / runs for key, value in held.items()}
    return shares | ({} if boots else {f"BCa {name}": "" for name in ALPHAS})


def false_positives(shape: str, count: int, runs: int, seed: int) -> dict[str, Any]:
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


def family(shape: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the differences of a whole table: ours is shared by five comparisons."""
    seed = rng.normal(size=(CELLS, 1, count))
    draw = rng.normal if shape == "normal" else rng.exponential
    ours = seed - draw(size=(CELLS, 1, count))
    other = seed - draw(size=(CELLS, OTHERS, count))
    return (ours - other).reshape(FAMILY, count)


def any_found(samples: np.ndarray) -> bool:
    """Return whether Holm's first step, the widest, finds a difference."""
    level = ALPHAS["Holm of 60"]
    order = [intervals.trimmed_mean(sample).p_value() for sample in samples]
    first = samples[int(np.argmin(order))]
    if intervals.trimmed_t(first, level=level).holds(0):  # so does the wider one
        return False
    return not intervals.paired_intervals(first, seed=1)(level).holds(0)


def row(kind: str, shape: str, count: int, runs: int, seed: int) -> dict[str, Any]:
    """Measure one row of the coverage or of the false positives, and say so."""
    maker = coverage if kind == "coverage" else false_positives
    found = {"shape": shape, "pairs": count, **maker(shape, count, runs, seed)}
    print(kind, found, file=sys.stderr, flush=True)
    return found


def measure_coverage(runs: int = 2000, seed: int = 20) -> str:
    """Return coverage and false positives as TOML."""
    asked = [("coverage", shape, n) for shape in SHAPES for n in COUNTS]
    asked += [("false_positives", shape, n) for shape in SHAPES[:2] for n in COUNTS]
    lines = ["# Measured by tools/measure.py, in percent; the report reads it."]
    lines.append(f"simulations = {runs}")
    with ProcessPoolExecutor(2) as pool:
        waiting = [pool.submit(row, *each, runs, seed) for each in reversed(asked)]
        for (kind, _, _), each in zip(asked, reversed(waiting), strict=True):
            lines.append(f"\n[[{kind}]]")
            for key, value in each.result().items():
                text = f'"{value}"' if isinstance(value, str) else f"{value:g}"
                lines.append(f'"{key}" = {text}')
    return "\n".join(lines) + "\n"


def noise(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return noise of scores: normal, or with trials that end badly."""
    return rng.normal(size=size) if shape == "normal" else -rng.exponential(size=size)


def estimates(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the lab's trimmed means of many samples, errors and the freedom."""
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    cut = int(intervals.TRIM * count)
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
        zero = holm(2 * stats.t.sf(np.abs(mean / error), freedom)) <= 0.05
        other_size = holm(2 * stats.t.sf(np.abs((mean - size) / error), freedom))
        false += zero[:, size == 0].any(axis=1).sum()
        sizes += (other_size <= 0.05).any(axis=1).sum()
    return [100 * false / runs, 100 * sizes / runs]


def standing(shape: str, count: int, runs: int, seed: int) -> float:
    """Return in percent how often a standing over four cells wrongly excludes 0."""
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
    """Return the level of every statement as JSON: 60 comparisons, and standings."""
    rows = []
    for shape, count in [(shape, n) for shape in SHAPES[:2] for n in COUNTS[:3]]:
        for effects in EFFECTS:
            false, size = tables(shape, count, effects, runs, seed)
            alone = "" if effects else round(standing(shape, count, runs, seed), 2)
            shown = {"shape": shape, "pairs": count, "true effects": effects}
            shown["false difference"] = "–" if effects == FAMILY else round(false, 2)
            rows.append(shown | {"false size": round(size, 2), "standing": alone})
    found = {"simulations": runs, "levels": rows}
    return json.dumps(found, ensure_ascii=False, indent=1)


def medians(tasks: dict[str, Callable[[], None]], repeats: int) -> dict[str, str]:
    """Time every task in turn, again and again; return the median milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            if repeat:  # the first round warms up
                times[name].append(1000 * (time.process_time() - start))
    return {name: f"{statistics.median(each):.3g}" for name, each in times.items()}


def measure_components(repeats: int = 7) -> str:
    """Return the time of a gradient of each network and of a step of each optimizer."""
    import torch
    from torch.nn import functional

    from adadecay.lab import networks, optimizers

    torch.set_num_threads(1)  # as the lab's workers; more would measure contention
    seeded = torch.Generator().manual_seed
    found: dict[str, Any] = {"torch": torch.__version__, "networks": {}}

    def network(name: str) -> torch.nn.Module:
        shape = networks.NETWORKS.get(name).facts["shape"]
        return networks.make(name, input_shape=shape, classes=10, generator=seeded(0))

    def gradient(name: str, layout: torch.memory_format, batch: int) -> Callable:
        made = network(name).to(memory_format=layout)
        shape = networks.NETWORKS.get(name).facts["shape"]
        images, labels = torch.rand(batch, *shape), torch.arange(batch) % 10

        def task() -> None:
            made.zero_grad()
            functional.cross_entropy(made(images), labels).backward()

        return task

    for name in networks.NETWORKS:
        facts = networks.NETWORKS.get(name).facts
        batch = 128 if facts["depth"] == "shallow" else 8
        layouts = {"no": torch.contiguous_format, "yes": torch.channels_last}
        tasks = {key: gradient(name, kind, batch) for key, kind in layouts.items()}
        took = medians(tasks, repeats)
        ratio = float(took["yes"]) / float(took["no"])
        found["networks"][name] = {
            "batch": str(batch),
            "ms per gradient": took["yes" if facts["channels_last"] else "no"],
            "channels-last ÷ contiguous": f"{ratio:.2f}",
            "layout used": "channels-last" if facts["channels_last"] else "contiguous",
        }

    def step(name: str, made: torch.nn.Module, depth: str) -> Callable:
        for parameter in made.parameters():
            parameter.grad = 1e-3 * torch.randn_like(parameter)
        named, given = made.named_parameters(), optimizers.defaults(name, depth)
        used = optimizers.make(name, named, lr=1e-6, generator=seeded(0), **given)
        return lambda: used.step(lambda: torch.zeros(()))

    steps: dict[str, dict[str, str]] = {name: {} for name in optimizers.OPTIMIZERS}
    for name, depth in (("nn-2", "shallow"), ("resnet-18", "deep")):
        tasks = {each: step(each, network(name), depth) for each in steps}
        took = medians(tasks, 10 * repeats)
        for each, shown in steps.items():
            gradients = optimizers.OPTIMIZERS.get(each).facts["gradients_per_step"]
            share = float(took[each]) / gradients / float(took["sgd"])
            shown[f"ms per step, {name} (÷ SGD)"] = f"{took[each]} ({share:.1f})"
    return json.dumps(found | {"optimizers": steps}, ensure_ascii=False, indent=1)


MEASURES = {
    "coverage": (measure_coverage, COVERAGE),
    "levels": (measure_levels, ROOT / "benchmarks/levels.json"),
    "components": (measure_components, ROOT / "benchmarks/components.json"),
}


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("--runs", type=int, help="simulations, or repeats")
    given = parser.parse_args()
    measure, path = MEASURES[given.what]
    text = measure(given.runs) if given.runs else measure()
    path.write_text(text.strip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
