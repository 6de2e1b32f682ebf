"""Words: numbers as text, and what an analysis says in sentences.

In: an analysis. Out: text, never "nan": what is not known is a dash or said in words.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adadecay.lab.scoring import decimals_for, plural
from adadecay.lab.settings import nothing_compared
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.claims import ClaimResult
from adadecay.lab.stats.compare import Comparison
from adadecay.lab.stats.selection import candidates
from adadecay.lab.stats.verdicts import Effect, Verdict

DASH = "–"


def signed(value: float | None, form: str) -> str:
    """Return a number in a format of Python with a minus sign, or a dash."""
    if value is None or not math.isfinite(value):
        return DASH
    text = format(value, form)
    if float(text.replace(",", "")) == 0:  # neither above nor below it
        text = format(0 * abs(value), form)
    return text.replace("-", "−")


@dataclass(frozen=True)
class Numbers:
    """Numbers as text, with the decimals that the spread of the scores deserves."""

    decimals: int
    unit: str = ""

    @classmethod
    def fitting(cls, analysis: Analysis) -> "Numbers":
        """Choose decimals so that the spread of trials and intervals has two digits."""
        percent = "%" in analysis.data.score_name
        samples = [arm.scores.tolist() for arm in analysis.arms]
        decimals = decimals_for(samples, percent=percent)
        if percent:
            return cls(decimals, " points")
        # Pairs may differ by far less than trials do.
        known = [each.interval for each in analysis.comparisons if each.interval]
        ends = [(each.low, each.high) for each in known]
        return cls(max(decimals, decimals_for(ends, percent=False)))

    def score(self, value: float | None) -> str:
        """Return a score, or a dash."""
        return signed(value, f",.{self.decimals}f")

    def gap(self, value: float | None) -> str:
        """Return a difference with its sign, or a dash."""
        return signed(value, f"+,.{self.decimals}f")

    def p_value(self, value: float | None) -> str:
        """Return a p-value, or a dash."""
        small = value is not None and value < 0.001
        return "< 0.001" if small else signed(value, ".3f")

    def interval(self, low: float | None, high: float | None, pairs: int) -> str:
        """Return both ends in brackets, or in words why there are none."""
        if low is None:
            few = {0: "no pair finished", 1: "one pair: no interval"}
            return few.get(pairs, DASH)
        if low == high == 0:
            return f"all {pairs} pairs tie"
        return f"[{self.gap(low)}, {self.gap(high)}]"


VERBS = {Effect.HELPS: "beats", Effect.HURTS: "is worse than"}
EFFECTS = {Effect.HELPS: "helps", Effect.HURTS: "hurts"}
NOTHING = ("no evidence of a difference", "no pair finished", "no verdict")


def effect_words(comparison: Comparison, numbers: Numbers) -> str:
    """Return what one comparison says by itself."""
    ours, other = comparison.ours.label, comparison.other.label
    if not comparison.pairs:
        return f"{ours} and {other} cannot be compared: {comparison.notes[0]}."
    found = numbers.interval(*comparison.ends, comparison.pairs)
    if found[0] == "[":
        found = f"interval {found}, {plural(comparison.pairs, 'pair')}"
    if comparison.difference is not None:
        found = f"{numbers.gap(comparison.difference)}{numbers.unit}, {found}"
    if comparison.effect not in VERBS:
        return f"No evidence that {ours} and {other} differ ({found})."
    size = f"{numbers.score(abs(comparison.difference or 0.0))}{numbers.unit}"
    return f"{ours} {VERBS[comparison.effect]} {other} by {size} ({found})."


def power_words(comparison: Comparison, numbers: Numbers) -> str:
    """Return why nothing was found: what is missing, or what would be detected."""
    if comparison.interval is None:
        note = comparison.notes[0] if comparison.notes else ""
        return f"{note[:1].upper()}{note[1:]}." if note else ""
    if comparison.effect in VERBS or not comparison.smallest:
        return ""
    return (
        "This many trials would detect a difference of "
        f"{numbers.score(comparison.smallest)}{numbers.unit} with a probability of "
        "80 %."
    )


def chosen_words(comparison: Comparison, numbers: Numbers) -> str:
    """Return what can be said of two settings that were chosen on their scores."""
    return (
        f"{comparison.ours.label} and {comparison.other.label} have no setting "
        "in common, so each is shown at the setting with the best score: "
        f"{numbers.gap(comparison.difference)}{numbers.unit} over "
        f"{plural(comparison.pairs, 'pair')}. Choosing on these scores favours the "
        "optimizer with more settings, so there is no verdict. With holdout = 0.1 the "
        "choice is made on held-out data."
    )


def counted(verdicts: Iterable[Verdict | None]) -> str:
    """Return how often each verdict was given: "1 replicated, 3 inconclusive"."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each])


def claim_words(result: ClaimResult) -> str:
    """Return what was found for a claim, in a sentence."""
    if result.verdict is Verdict.NOT_TESTED:
        return (
            "This study has none of its comparisons: "
            f"“adadecay run {result.claim.study}” tests it."
        )
    if result.thetas:
        means = [each.mean for each in result.thetas]
        lowest = min(each.lowest for each in result.thetas)
        highest = max(each.highest for each in result.thetas)
        return (
            f"Mean θ is between {min(means):.3f} and {max(means):.3f} in "
            f"{plural(len(means), 'setting')}; single tensors go from "
            f"{lowest:.3f} to {highest:.3f}."
        )
    text = counted(each.verdict for each in result.comparisons)
    missing = (result.claim.expected or 0) - len(result.comparisons)
    if missing > 0:
        text += f"; {missing} of {result.claim.expected} not in this study"
    reasons = dict.fromkeys(
        why for each in result.comparisons for why in each.shortened
    )
    if reasons:
        text += f" ({', '.join(reasons)})"
    return text[:1].upper() + text[1:] + "."


def _without_scores(analysis: Analysis, where: str) -> str:
    done, diverged = analysis.counts["done"], analysis.counts["diverged"]
    if not done + diverged:
        return f"No trial has finished yet{where}: there is nothing to judge."
    why = [f"{diverged} diverged"] if diverged else []
    why += [f"{done} with no score in the last epochs"] if done else []
    return (
        f"{plural(done + diverged, 'trial')} finished without a score: "
        f"{', '.join(why)}."
    )


def headline(analysis: Analysis, folder: str = "") -> str:
    """Return the study's answer in one sentence, and whether it may still change.

    Without an answer it names the ``folder`` of the results, where it is known.
    """
    if not any(arm.scores.size for arm in analysis.arms):
        return _without_scores(analysis, folder and f" in {folder}")
    answer, have = _answer(analysis, Numbers.fitting(analysis)), analysis.counts
    if analysis.finished:
        return answer
    trials = plural(have["planned"], "trial")
    return f"Unfinished ({have['done']:,} of {trials}): {answer}"


def _answer(analysis: Analysis, numbers: Numbers) -> str:
    tested = [each for each in analysis.claims if each.tested]
    if analysis.data.paper and tested:
        return _claimed(tested, analysis.data.study)
    if not (analysis.finished or any(each.pairs for each in analysis.comparisons)):
        return "Nothing to compare yet: no pair of trials has finished."
    if not analysis.comparisons:
        return nothing_compared(analysis.baseline, analysis.labels)
    effects = Counter(
        each.effect for each in analysis.comparisons if not each.chosen_on_scores
    )
    if not effects:
        return "Nothing is judged: settings were chosen on the scores shown."
    found = _several(analysis)
    if len(analysis.comparisons) == 1:
        found = effect_words(analysis.comparisons[0], numbers)
    return found + _chosen_for(analysis)


def _chosen_for(analysis: Analysis) -> str:
    """Return what was chosen on held-out data, and for whom there was no choice."""
    chosen = analysis.data.chosen
    groups = candidates(analysis.arms, chosen) if chosen else []
    several = {group[0].method for group in groups if len(group) > 1}
    if not several:
        return ""
    text = f" Each is at its best {' and '.join(chosen)}, chosen on held-out data"
    methods = dict.fromkeys(group[0].method for group in groups)
    if alone := [each for each in methods if each not in several]:
        text += f", except {' and '.join(alone)}, tried with one setting only"
    return text + "."


def _claimed(tested: Sequence[ClaimResult], study: str) -> str:
    """Return the verdicts on the claims that a study is about, and on the others."""
    own = [each for each in tested if each.claim.study == study]
    if own and len(tested) - len(own) == 1:  # a single one is named like them
        own = sorted(tested, key=lambda each: each not in own)
    rest = [each.verdict for each in tested if each not in own]
    parts = [f"“{each.claim.statement}”: {each.verdict}" for each in own]
    if rest:
        noun = "further claim" if own else "claim"
        told = f"of {plural(len(rest), noun)} tested: {counted(rest)}"
        parts.append(told if own else told.capitalize())
    return "; ".join(parts) + "."


def _several(analysis: Analysis) -> str:
    """Return how many comparisons found what, and for whom where there are several."""
    found: dict[str, list[str]] = {each: [] for each in (*EFFECTS.values(), *NOTHING)}
    for each in analysis.comparisons:
        none = NOTHING[0] if each.pairs else NOTHING[1]
        words = EFFECTS.get(each.effect, none)
        found[NOTHING[2] if each.chosen_on_scores else words].append(each.ours.method)
    methods = {each.ours.method for each in analysis.comparisons}
    parts: list[str] = []
    for words, members in found.items():
        names = ", ".join(dict.fromkeys(members))
        count = f"{words} in {len(members)}"
        count += "" if parts else f" of {len(analysis.comparisons)} comparisons"
        parts += [count + (f" ({names})" if len(methods) > 1 else "")] if names else []
    who = f"{methods.pop()} against" if len(methods) == 1 else "Compared with"
    return f"{who} {analysis.baseline}: {', '.join(parts)}."
