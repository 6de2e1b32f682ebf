"""Remarks: what a reader must know before believing a page.

In: an analysis. Out: short paragraphs, the gravest first: what is missing, what was
shortened, what went wrong, and how far the intervals can be trusted.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from adadecay.lab.scoring import plural
from adadecay.lab.settings import nothing_compared
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import candidates, choose, shortened_in


@dataclass(frozen=True)
class Caveat:
    """A heading and what it says; ``grave`` ones stand out."""

    title: str
    text: str
    grave: bool = False


def caveats(analysis: Analysis) -> list[Caveat]:
    """Return every remark that applies to a study."""
    return [*_of_trials(analysis), *_of_choices(analysis), *_of_numbers(analysis)]


def _of_choices(analysis: Analysis) -> Iterator[Caveat]:
    """Yield what was chosen on which data, and which value won for each optimizer."""
    chosen, share = analysis.data.chosen, analysis.data.held_out
    cells: dict[str, list[str]] = {}
    for group in candidates(analysis.arms, chosen) if chosen else []:
        won = choose(group, chosen)
        if len(group) < 2 or len(won) > 1:
            continue
        cells.setdefault(group[0].where, []).append(
            f"{group[0].method} {_values(won[0], chosen)} "
            f"(of {', '.join(_values(arm, chosen) for arm in group)})"
        )
    if cells:
        where = (
            f"{100 * share:g} % of the training set, held out"
            if share
            else "held-out data"
        )
        found = "; ".join(f"{cell}: {', '.join(won)}" for cell, won in cells.items())
        text = (
            f"{' and '.join(chosen)} was chosen for each optimizer on {where}; scores "
            f"are of the test set. Chosen in {found}."
        )
        yield Caveat("Chosen on held-out data", text)


def _values(arm: Arm, chosen: Sequence[str]) -> str:
    """Write the values of the chosen arguments, by name if there are several."""
    get = arm.get
    found = {name: get(name, get(f"optimizer.{name}")) for name in chosen}
    shown = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in found.items()
        if value is not None
    }
    if len(chosen) == 1:
        return ", ".join(shown.values())
    return " ".join(f"{name}={value}" for name, value in shown.items())


def _of_trials(analysis: Analysis) -> Iterator[Caveat]:
    """Yield what is missing, shortened, or has no result."""
    have = analysis.counts
    planned = plural(have["planned"], "trial")
    if not analysis.finished:
        text = (
            f"Finished: {have['done']:,} of {planned}. Only they are shown; numbers, "
            "intervals and verdicts will change."
        )
        yield Caveat("Unfinished study", text, grave=True)
    reasons = dict.fromkeys(analysis.data.shortened)
    for arm in analysis.arms:
        reasons |= dict.fromkeys(shortened_in(arm))
    if reasons and analysis.data.paper:
        text = (
            f"Different from the paper: {', '.join(reasons)}. Affected results are "
            "not comparable with the published numbers."
        )
        yield Caveat("Shortened", text, grave=True)
    bad = [f"{have[each]:,} {each}" for each in ("failed", "diverged") if have[each]]
    if bad:
        text = (
            f"{' and '.join(bad)} of {planned}. They have no score, and their pairs "
            "are left out, which favours an optimizer that diverges. The table of "
            "trials lists them."
        )
        yield Caveat("Trials without a result", text, grave=True)


def _of_numbers(analysis: Analysis) -> Iterator[Caveat]:
    """Yield how far the numbers can be trusted."""
    sizes: dict[str, set[int]] = {}
    for arm in analysis.arms:
        sizes.setdefault(arm.cell, set()).add(arm.scores.size)
    most = max((max(each) for each in sizes.values()), default=0)
    if most and not analysis.comparisons:
        text = nothing_compared(analysis.baseline, analysis.labels)
        yield Caveat("No comparison", text, grave=True)
    elif most == 1:
        text = "One trial each: no interval, no test, no verdict."
        yield Caveat("One trial", text, grave=True)
    if uneven := sum(len(each) > 1 for each in sizes.values()):
        text = (
            f"In {plural(uneven, 'cell')} the optimizers have unequal numbers of "
            "finished trials. Differences use the seeds they share; maxima are not "
            "comparable there, because they grow with the number of trials."
        )
        yield Caveat("Unequal trials", text)
    if _uses_test_set(analysis):
        text = (
            "Scores are measured on the test set at every epoch, so the maximum over "
            "epochs and trials is chosen on it. The average of the last epochs is not."
        )
        text += " The paper does the same." if analysis.data.paper else ""
        yield Caveat("The test set is used for validation", text)
    if text := _coverage([each.pairs for each in analysis.comparisons]):
        yield Caveat("Few pairs", text)


def _uses_test_set(analysis: Analysis) -> bool:
    results = analysis.data.results
    if analysis.data.held_out or "test_accuracy" not in results.columns:
        return False
    return results["test_accuracy"].null_count() < len(results)


def _coverage(pairs: list[int]) -> str:
    """Return how often the intervals of the fewest pairs contain the truth."""
    fewest = min((count for count in pairs if count >= 2), default=None)
    if fewest is None:
        return ""
    file = resources.files("adadecay.lab.stats").joinpath("coverage.toml")
    rows = tomllib.loads(file.read_text("utf-8"))["coverage"]
    size = max(row["pairs"] for row in rows if row["pairs"] <= max(fewest, 5))
    held = min(float(row["used 95 %"]) for row in rows if row["pairs"] == size)
    if held >= 93:
        return ""
    return (
        f"The smallest comparison has {plural(fewest, 'pair')}. In simulations with "
        f"{size} pairs, 95 % intervals contained the true difference 95 % of the time "
        f"in most cases, and {held:.0f} % of the time in the worst one: where only one "
        "of the optimizers sometimes ends badly."
    )
