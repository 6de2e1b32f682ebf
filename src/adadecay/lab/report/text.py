"""Words: numbers as text, and what an analysis says in sentences.

In: an analysis. Out: text, never "nan": what is not known is a dash or said in words.
"""

import math
from collections import Counter
from dataclasses import dataclass

from adadecay.lab.scoring import decimals_for
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.claims import ClaimResult
from adadecay.lab.stats.compare import Comparison, Judged
from adadecay.lab.stats.intervals import Interval
from adadecay.lab.stats.verdicts import Effect, Verdict

__all__ = [
    "DASH",
    "Numbers",
    "claim_cells",
    "claim_words",
    "effect_words",
    "headline",
    "plural",
]

DASH = "–"


def plural(count: int, noun: str) -> str:
    """Return "1 trial", "2 trials"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@dataclass(frozen=True)
class Numbers:
    """Numbers as text, with the decimals that the spread of the scores deserves."""

    decimals: int
    unit: str = ""

    @classmethod
    def fitting(cls, analysis: Analysis) -> "Numbers":
        """Choose decimals so that the spread from trial to trial has two digits."""
        percent = "%" in analysis.data.score_name
        unit = " points" if percent else ""
        samples = [arm.scores.tolist() for arm in analysis.arms]
        return cls(decimals_for(samples, percent=percent), unit)

    def score(self, value: float | None) -> str:
        """Return a score, or a dash."""
        if value is None or not math.isfinite(value):
            return DASH
        return f"{value:,.{self.decimals}f}".replace("-", "−")

    def gap(self, value: float | None) -> str:
        """Return a difference with its sign, or a dash."""
        if value is None or not math.isfinite(value):
            return DASH
        text = f"{value:+,.{self.decimals}f}"
        return text.replace("-", "−")

    def interval(self, interval: Interval | None) -> str:
        """Return "from … to …" in brackets, or a dash."""
        if interval is None:
            return DASH
        return f"[{self.gap(interval.low)}, {self.gap(interval.high)}]"


def p_text(value: float | None) -> str:
    """Return a p-value, or a dash."""
    if value is None:
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def versus(comparison: Comparison) -> str:
    """Return who is compared, with the arguments that tell them apart."""
    return f"{comparison.ours.optimizer} against {comparison.other.optimizer}"


def effect_words(comparison: Comparison, numbers: Numbers) -> str:
    """Return what one comparison says by itself."""
    ours, other = comparison.ours, comparison.other
    found = f"{numbers.gap(comparison.difference)}{numbers.unit}"
    if comparison.interval is None:
        why = comparison.notes[0] if comparison.notes else "too few trials"
        return f"{ours.optimizer} against {other.optimizer} in {ours.where}: {why}."
    over = (
        f"interval {numbers.interval(comparison.interval)}, "
        f"{plural(comparison.pairs, 'pair')}"
        if comparison.paired
        else f"interval {numbers.interval(comparison.interval)}, unpaired"
    )
    if comparison.effect is Effect.NO_EVIDENCE:
        text = (
            f"No evidence of a difference between {ours.optimizer} and "
            f"{other.optimizer} in {ours.where}: {found}, {over}."
        )
        if comparison.smallest:
            text += (
                " This many trials detect a difference of "
                f"{numbers.score(comparison.smallest)}{numbers.unit} with a "
                "probability of 80 %."
            )
        return text
    verb = "beats" if comparison.effect is Effect.HELPS else "is worse than"
    return (
        f"{ours.optimizer} {verb} {other.optimizer} in {ours.where}: {found}, {over}."
    )


def chosen_words(comparison: Comparison, numbers: Numbers) -> str:
    """Return what can be said of two settings that were chosen on their scores."""
    return (
        f"{comparison.ours.optimizer} and {comparison.other.optimizer} have no setting "
        "in common, so each is shown at the setting with the best score: "
        f"{numbers.gap(comparison.difference)}{numbers.unit} over "
        f"{plural(comparison.pairs, 'pair')}. A choice on the scores shown favours "
        "whoever tried more settings: there is no verdict. With holdout = 0.1 the "
        "choice is made on held-out data."
    )


def _counted(verdicts: list[Verdict]) -> str:
    counts = Counter(verdicts)
    order = [verdict for verdict in Verdict if counts[verdict]]
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order)


def _extremes(judged: tuple[Judged, ...], numbers: Numbers) -> str:
    known = [each for each in judged if each.comparison.difference is not None]
    if not known:
        return ""
    ranked = sorted(known, key=lambda each: each.comparison.difference or 0.0)
    if len(ranked) == 1:
        return f" {_named(ranked[0].comparison, numbers)}."
    return (
        f" From {_named(ranked[0].comparison, numbers)} to "
        f"{_named(ranked[-1].comparison, numbers)}."
    )


def _named(comparison: Comparison, numbers: Numbers) -> str:
    other = comparison.other.optimizer
    return (
        f"{numbers.gap(comparison.difference)} "
        f"{numbers.interval(comparison.interval)} "
        f"({plural(comparison.pairs, 'pair') if comparison.paired else 'unpaired'}) "
        f"against {other} in {comparison.ours.where}"
    )


def claim_words(result: ClaimResult, numbers: Numbers) -> str:
    """Return what was found for a claim, in a sentence or three."""
    if result.verdict is Verdict.NOT_TESTED:
        return (
            "This study has none of its comparisons: "
            f"“adadecay run {result.claim.study}” tests it."
        )
    if result.thetas:
        means = [each.mean for each in result.thetas]
        layers = [each.lowest for each in result.thetas]
        layers += [each.highest for each in result.thetas]
        return (
            f"Mean θ is between {min(means):.3f} and {max(means):.3f} in "
            f"{plural(len(means), 'setting')}; single tensors go from "
            f"{min(layers):.3f} to {max(layers):.3f}."
        )
    text = f"{_counted([each.verdict for each in result.judged if each.verdict])}"
    missing = (result.claim.expected or 0) - len(result.judged)
    if missing > 0:
        text += f"; {missing} of {result.claim.expected} are not in this study"
    reasons = dict.fromkeys(why for each in result.judged for why in each.shortened)
    if reasons:
        text += f" ({', '.join(reasons)})"
    return text[:1].upper() + text[1:] + "." + _extremes(result.judged, numbers)


def _short(comparison: Comparison, numbers: Numbers) -> str:
    ours, other = comparison.ours.optimizer, comparison.other.optimizer
    found = (
        f"{numbers.gap(comparison.difference)}{numbers.unit}, interval "
        f"{numbers.interval(comparison.interval)}, {plural(comparison.pairs, 'pair')}"
    )
    if comparison.effect is Effect.NO_EVIDENCE:
        return f"No evidence that {ours} and {other} differ ({found})."
    verb = "beats" if comparison.effect is Effect.HELPS else "is worse than"
    return (
        f"{ours} {verb} {other} by {_size(comparison, numbers)}{numbers.unit} "
        f"({found})."
    )


def _size(comparison: Comparison, numbers: Numbers) -> str:
    return numbers.score(abs(comparison.difference or 0.0))


def claim_cells(result: ClaimResult, numbers: Numbers) -> tuple[tuple[str, str], ...]:
    """Return each comparison of a claim in words, with its verdict on the claim."""
    found = []
    for each in result.judged:
        c = each.comparison
        text = (
            f"{c.ours.where}, {c.ours.optimizer} − {c.other.optimizer}: "
            f"{numbers.gap(c.difference)} {numbers.interval(c.interval)}"
        )
        if each.published is not None:
            text += f", paper {each.published:+.2f}".replace("-", "−")
        found.append((text, str(each.verdict)))
    return tuple(found)


def _without_scores(analysis: Analysis) -> str:
    ended = Counter[str]()
    for arm in analysis.arms:
        ended.update({key: arm.counts.get(key, 0) for key in ("done", "diverged")})
    if not ended.total():
        return "No trial has finished yet: there is nothing to judge."
    why = [f"{ended['diverged']} diverged"] if ended["diverged"] else []
    if ended["done"]:
        why.append(f"{ended['done']} have no number in their last epochs")
    return (
        f"{plural(ended.total(), 'trial')} finished without a score: {', '.join(why)}."
    )


def headline(analysis: Analysis, numbers: Numbers) -> str:
    """Return the study's answer in one sentence."""
    if not any(arm.scores.size for arm in analysis.arms):
        return _without_scores(analysis)
    tested = [each for each in analysis.claims if each.verdict != Verdict.NOT_TESTED]
    if analysis.data.paper and tested:
        counts = _counted([each.verdict for each in tested])
        return f"Of {plural(len(tested), 'claim')} tested: {counts}."
    judged = [each for each in analysis.judged if not each.chosen_on_scores]
    if not analysis.judged:
        return "Nothing is compared: the study has no baseline, or only that."
    if not judged:
        return "Nothing is judged: settings were chosen on the scores shown."
    if len(analysis.judged) == 1:
        return _short(judged[0].comparison, numbers)
    effects = Counter(each.comparison.effect for each in judged)
    parts = [f"{effect} in {effects[effect]}" for effect in Effect if effects[effect]]
    if len(judged) < len(analysis.judged):
        parts.append(f"no verdict in {len(analysis.judged) - len(judged)}")
    return (
        f"Against {analysis.baseline}, of {len(analysis.judged)} comparisons: "
        f"{', '.join(parts)}."
    )
