"""Comparisons of arms, and what they say when something is missing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from simulated_study import Setting, comparison_settings, simulate, two_arms

from adadecay.lab.stats.compare import compare_family
from adadecay.lab.stats.intervals import trimmed_t
from adadecay.lab.stats.scores import find_arms, trial_scores
from adadecay.lab.stats.selection import Pair
from adadecay.lab.stats.significance import sign_flip, smallest_difference
from adadecay.lab.stats.verdicts import Effect

SGD = Setting()
OURS = replace(SGD, optimizer="adadecay", alpha=4.0, level=98.6)


def compared(pairs):
    return compare_family([Pair(*pair) for pair in pairs])


def arms_of(results, larger_is_better=True):
    trials = trial_scores(results, larger_is_better=larger_is_better)
    return find_arms(trials, larger_is_better=larger_is_better)


def test_a_comparison_holds_every_number():
    sgd, ours = arms_of(two_arms(0.2, trials=10))
    (found,) = compared([(ours, sgd)])
    gaps = ours.scores - sgd.scores
    ends = trimmed_t(gaps)
    assert found.pairs == 10
    assert found.difference == pytest.approx(stats.trim_mean(gaps, 0.1))
    assert (found.interval.low, found.interval.high) == (ends.low, ends.high)
    assert found.interval == found.alone  # a family of one
    assert found.p_holm == found.p_value == sign_flip(gaps) < 0.01
    assert 0 < found.smallest < 0.3
    assert found.effect is Effect.HELPS


def test_without_common_seeds_there_is_no_difference():
    sgd, ours = arms_of(two_arms(trials=20, shared=0.9))
    apart = replace(ours, numbers=tuple((n, s + 99) for n, s in ours.numbers))
    (found,) = compared([(apart, sgd)])
    assert (found.pairs, found.difference, found.interval) == (0, None, None)
    assert found.notes[0] == "no finished pair of trials"


def test_smaller_can_be_better():
    results = two_arms(0.3, trials=8)
    (up,) = compared([tuple(reversed(arms_of(results)))])
    (down,) = compared([tuple(reversed(arms_of(results, False)))])
    assert (up.effect, down.effect) == (Effect.HELPS, Effect.HURTS)
    assert down.difference == pytest.approx(-up.difference)


def test_unequal_numbers_of_trials_compare_the_common_ones():
    results = simulate([SGD, OURS], trials=[12, 7])
    sgd, ours = arms_of(results)
    (found,) = compared([(ours, sgd)])
    assert found.pairs == 7
    assert "7 of adadecay and 12 of sgd finished" in found.notes[0]


def test_a_trial_that_failed_in_the_middle_leaves_the_other_pairs_in_order():
    def status(setting, number):
        return "diverged" if (setting, number) == (1, 3) else "done"

    whole = arms_of(two_arms(trials=8))
    holed = arms_of(two_arms(trials=8, status=status))
    (found,) = compared([tuple(reversed(holed))])
    gaps = np.delete(whole[1].scores - whole[0].scores, 3)
    assert found.pairs == 7
    assert found.difference == pytest.approx(stats.trim_mean(gaps, 0.1))
    assert "1 diverged in adadecay" in found.notes


@pytest.mark.parametrize("trials", [[1, 1], [5, 1], [1, 0]])
def test_one_pair_has_no_interval_and_no_p_value(trials):
    settings = [s for s, n in zip([SGD, OURS], trials, strict=True) if n]
    arms = arms_of(simulate(settings, trials=[n for n in trials if n]))
    sgd = arms[0]
    ours = arms[1] if len(arms) > 1 else replace(sgd, scores=np.array([]), numbers=())
    (found,) = compared([(ours, sgd)])
    assert found.interval is None
    assert found.p_value is None
    assert found.effect is Effect.NO_EVIDENCE
    assert found.notes


def test_five_pairs_say_that_the_sign_flip_cannot_decide():
    (found,) = compared([tuple(reversed(arms_of(two_arms(trials=5))))])
    assert "cannot go below p = 0.062" in found.notes[0]


def test_a_family_widens_the_intervals_and_keeps_the_order():
    arms = arms_of(simulate(comparison_settings()[:12], trials=6))
    ours = [arm for arm in arms if arm.label == "adadecay"]
    pairs = [
        (mine, arm)
        for mine in ours
        for arm in arms
        if arm.cell == mine.cell and arm is not mine
    ]
    found = compared(pairs)
    assert [(c.ours, c.other) for c in found] == pairs
    for comparison in found:
        alone, adjusted = comparison.alone, comparison.interval
        assert adjusted.low <= alone.low
        assert adjusted.high >= alone.high
        assert comparison.p_holm >= comparison.p_value
        gaps = comparison.ours.scores - comparison.other.scores
        expected = smallest_difference(gaps, level=adjusted.level)
        assert comparison.smallest == pytest.approx(expected)
    assert max(c.interval.level for c in found) == pytest.approx(1 - 0.05 / 10)


def test_the_same_comparison_gives_the_same_numbers():
    pair = tuple(reversed(arms_of(two_arms(trials=35))))
    (first,), (again,) = compared([pair]), compared([pair])
    assert first.interval == again.interval
    assert first.interval.method == "BCa"
    assert first.p_value == again.p_value


def test_remarks_hold_whichever_side_comes_first():
    """Pages turn a comparison round, and its remarks stay as they are."""
    sgd, ours = arms_of(two_arms(trials=12))
    # A trial more of SGD, far above all others, whose average is above ours then.
    few = replace(ours, scores=ours.scores[:3], numbers=ours.numbers[:3])
    high = replace(sgd, scores=np.array([*(few.scores - 1.0), 200.0]))
    high = replace(high, numbers=sgd.numbers[:4])
    for first, second in ((few, high), (high, few)):
        (found,) = compared([(first, second)])
        texts = " ".join(found.notes)
        assert "3 of adadecay" in texts
        assert "4 of sgd" in texts
        assert "the averages differ in the other direction, by 24" in texts
