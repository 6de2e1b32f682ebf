"""Remarks: what a reader must know before believing a page.

In: an analysis. Out: short paragraphs, the gravest first: what is missing, what was
shortened, what went wrong, and how far the intervals can be trusted.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from adadecay.lab.scoring import plural
from adadecay.lab.settings import nothing_compared, unequal_schedules, without_partner
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.selection import candidates, choose, shortened_in

EDGE = "At the edge of the grid"
SCHEDULES = "Unequal schedules"
UNCOMPARED = "Settings not compared"
IN_TERMINAL = EDGE, SCHEDULES, UNCOMPARED  # the page has all of them


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
    """Yield what was chosen on which data, and which setting of each optimizer won."""
    chosen, share = analysis.data.chosen, analysis.data.held_out
    cells: dict[str, list[str]] = {}
    edges: list[str] = []
    for group in candidates(analysis.arms, chosen) if chosen else []:
        won = choose(group, chosen)
        if len(won) < len(group):
            where, told = group[0].where, f"{won[0].label} of {len(group)}"
            cells.setdefault(where, []).append(told)
            for name in chosen:
                grid = [each.get(f"optimizer.{name}", each.get(name)) for each in group]
                mine = grid[group.index(won[0])]
                if type(mine) in (int, float) and mine and len(set(grid)) > 2:
                    sides = {min(grid): "below", max(grid): "above"}
                    if side := sides.get(mine):
                        who = f"{won[0].method} in {where}"
                        edges.append(f"{name} {side} {mine:g} for {who}")
    if cells:
        data = f"{100 * share:g} % of the training set, held out"
        found = "; ".join(f"{cell}: {', '.join(won)}" for cell, won in cells.items())
        were = "was" if len(chosen) == 1 else "were"
        text = (
            f"{' and '.join(chosen)} {were} chosen for each optimizer on "
            f"{data if share else 'held-out data'}; scores are on the test set. Chosen "
            f"settings in {found}."
        )
        yield Caveat("Chosen on held-out data", text)
    if edges:
        text = f"Better values may lie beyond the grid: try {'; '.join(edges)}."
        yield Caveat(EDGE, text)


def _of_trials(analysis: Analysis) -> Iterator[Caveat]:
    """Yield what is missing, shortened, or has no result."""
    have = analysis.counts
    planned = plural(have["planned"], "trial")
    if not analysis.finished:
        text = (
            f"Finished: {have['done']:,} of {planned}. Only these are shown; numbers, "
            "intervals and verdicts will change."
        )
        yield Caveat("Unfinished study", text, grave=True)
    reasons = dict.fromkeys(r for arm in analysis.arms for r in shortened_in(arm))
    arms, data = analysis.arms, analysis.data
    if not data.paper and (text := unequal_schedules(arms)):
        yield Caveat(SCHEDULES, text, grave=True)
    text = without_partner(arms, analysis.baseline, data.chosen)
    if text and not data.paper:
        yield Caveat(UNCOMPARED, text, grave=True)
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
    if most and analysis.finished and not analysis.comparisons:
        text = nothing_compared(analysis.baseline, analysis.labels)
        yield Caveat("No comparison", text, grave=True)
    elif most == 1:
        text = "One trial each: no interval, no test, no verdict."
        yield Caveat("One trial", text, grave=True)
    if uneven := sum(len(each) > 1 for each in sizes.values()):
        text = (
            f"In {plural(uneven, 'cell')} the optimizers have unequal numbers of "
            "finished trials. Differences use the seeds they share; the best epochs "
            "are not comparable there, because more trials have better ones."
        )
        yield Caveat("Unequal trials", text)
    tested = analysis.data.results.get_column("test_accuracy", default=None)
    if tested is not None and tested.count() and not analysis.data.held_out:
        text = (
            "Scores are measured on the test set at every epoch. “Best” picks one "
            "epoch and trial, so it tends to look too good; the average picks none."
        )
        text += " The paper does the same." if analysis.data.paper else ""
        yield Caveat("The test set is used for validation", text)
    if text := _coverage([each.pairs for each in analysis.comparisons]):
        yield Caveat("Number of pairs", text)


def _coverage(pairs: list[int]) -> str:
    """Return how often the intervals of the fewest pairs contain the truth."""
    enough = [count for count in pairs if count >= 2]
    if not enough:
        return ""
    file = resources.files("adadecay.lab.stats").joinpath("coverage.toml")
    rows = tomllib.loads(file.read_text("utf-8"))["coverage"]
    sizes = sorted({row["pairs"] for row in rows})
    size = max(each for each in sizes if each <= max(min(enough), sizes[0]))
    held = min(float(row["used 95 %"]) for row in rows if row["pairs"] == size)
    if held >= 93:
        return ""
    many = " to ".join(map(str, sorted({min(enough), max(enough)})))
    known = "" if size == min(enough) else f" (simulated: {str(sizes)[1:-1]})"
    return (
        f"The comparisons have {many} pairs. In simulations with {size} pairs{known}, "
        "95 % intervals contained the true difference 95 % of the time in most cases, "
        f"and {held:.0f} % of the time in the worst case, where only one of the "
        "optimizers has trials that end badly."
    )
