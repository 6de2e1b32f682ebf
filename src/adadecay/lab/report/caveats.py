"""Remarks: what a reader must know before believing a page.

In: an analysis. Out: short paragraphs, the gravest first: what is missing, what was
shortened, what went wrong, and how far the intervals can be trusted.
"""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from adadecay.lab.report.text import plural
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.selection import shortened_in

__all__ = ["Caveat", "caveats", "counts", "is_finished", "load_coverage"]


@dataclass(frozen=True)
class Caveat:
    """A heading and what it says; ``grave`` ones stand out."""

    title: str
    text: str
    grave: bool = False


def caveats(analysis: Analysis) -> list[Caveat]:
    """Return every remark that applies to a study."""
    makers = (_unfinished, _shortened, _wrong, _lonely, _unequal, _test_set, _coverage)
    return [remark for maker in makers if (remark := maker(analysis)) is not None]


def counts(analysis: Analysis) -> dict[str, int]:
    """Return the number of trials in each state, and ``planned``."""
    found = dict.fromkeys(("done", "running", "diverged", "failed"), 0)
    for status in analysis.trials.get_column("status").to_list():
        found[status or "running"] = found.get(status or "running", 0) + 1
    started = sum(found.values())
    planned = analysis.data.planned
    return {**found, "planned": max(started, planned or 0)}


def is_finished(analysis: Analysis) -> bool:
    """Return whether every planned trial has ended, well or not."""
    have = counts(analysis)
    ended = have["done"] + have["diverged"] + have["failed"]
    return have["planned"] > 0 and ended >= have["planned"]


def _unfinished(analysis: Analysis) -> Caveat | None:
    if is_finished(analysis):
        return None
    have = counts(analysis)
    text = (
        f"{have['done']:,} of {plural(have['planned'], 'trial')} are finished. Only "
        "they count; numbers, intervals and verdicts will change."
    )
    return Caveat("Unfinished study", text, grave=True)


def _shortened(analysis: Analysis) -> Caveat | None:
    if not analysis.data.paper:
        return None
    reasons = [*analysis.data.shortened]
    for arm in analysis.arms:
        reasons += [why for why in shortened_in(arm) if why not in reasons]
    if not reasons:
        return None
    text = (
        f"Not as in the paper: {', '.join(reasons)}. What is affected is not "
        "comparable with the published numbers."
    )
    return Caveat("Shortened", text, grave=True)


def _wrong(analysis: Analysis) -> Caveat | None:
    have = counts(analysis)
    bad = [
        f"{have[status]:,} {status}"
        for status in ("failed", "diverged")
        if have[status]
    ]
    if not bad:
        return None
    text = (
        f"{' and '.join(bad)} of {plural(have['planned'], 'trial')}. They have no "
        "score and their pairs are left out, which flatters an optimizer that "
        "diverges; the table of trials says which."
    )
    return Caveat("Trials without a result", text, grave=True)


def _lonely(analysis: Analysis) -> Caveat | None:
    most = max((arm.scores.size for arm in analysis.arms), default=0)
    if not analysis.judged and most:
        text = (
            "No comparison: the study names no baseline and has no SGD to stand in, "
            "or nothing to compare with it."
        )
        return Caveat("No baseline", text, grave=True)
    if most == 1:
        text = "One trial each: no interval, no test, no verdict can be had from it."
        return Caveat("One trial", text, grave=True)
    return None


def _unequal(analysis: Analysis) -> Caveat | None:
    sizes: dict[str, set[int]] = {}
    for arm in analysis.arms:
        sizes.setdefault(arm.place, set()).add(int(arm.scores.size))
    uneven = [place for place, found in sizes.items() if len(found) > 1]
    if not uneven:
        return None
    text = (
        f"In {plural(len(uneven), 'cell')} the optimizers have unequal numbers of "
        "finished trials. Differences use the seeds they share; maxima are not "
        "comparable there, since more trials reach further."
    )
    return Caveat("Unequal trials", text)


def _test_set(analysis: Analysis) -> Caveat | None:
    results = analysis.data.results
    if analysis.data.held_out or "test_accuracy" not in results.columns:
        return None
    if results.get_column("test_accuracy").null_count() == len(results):
        return None
    text = (
        "Scores are measured on the test set at every epoch, and the maximum over "
        "epochs and trials is therefore chosen on it. The average of the last epochs "
        "is not chosen."
    )
    text += " The paper does the same." if analysis.data.paper else ""
    return Caveat("The test set is used for validation", text)


def load_coverage() -> dict[str, Any]:
    """Return the measured coverage of the intervals."""
    text = resources.files("adadecay.lab.stats").joinpath("coverage.toml")
    return tomllib.loads(text.read_text("utf-8"))


def _coverage(analysis: Analysis) -> Caveat | None:
    pairs = [each.pairs for each in analysis.comparisons if each.pairs >= 2]
    if not pairs:
        return None
    rows = load_coverage()["coverage"]
    sizes = [row["pairs"] for row in rows if row["pairs"] <= max(min(pairs), 5)]
    fitting = [row for row in rows if row["pairs"] == max(sizes)]
    worst = min(fitting, key=lambda row: float(row["used 95 %"]))
    if worst["used 95 %"] >= 93:
        return None
    text = (
        f"With {plural(min(pairs), 'pair')} the 95 % interval holds the truth in "
        f"{worst['used 95 %']:.0f} % of simulations when only one of the optimizers "
        f"has trials that end badly, and in 95 % when both are alike (measured with "
        f"{worst['pairs']} pairs; docs/statistics.md)."
    )
    return Caveat("Few pairs", text)
