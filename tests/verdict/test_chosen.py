"""What is chosen on held-out data is chosen there, even where the test set objects."""

from dataclasses import replace

import polars as pl
import pytest
from simulated_study import decay_settings, simulate

from adadecay.commands.run import print_verdict
from adadecay.lab.report.caveats import EDGE, caveats
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData

CHOSEN, BEST_ON_TEST = 1e-3, 1e-4


def _evidence(
    *, larger_is_better: bool, name: str, chosen: float = CHOSEN
) -> StudyData:
    """Held-out data prefer one λ, the test set another, in either direction."""
    sign = 1.0 if larger_is_better else -1.0

    def better(score: str, value: float) -> pl.Expr:
        raised = pl.col(score) + sign * 5.0
        liked = pl.col("weight_decay") == value
        return pl.when(liked).then(raised).otherwise(score).alias(score)

    results = simulate(decay_settings()[:10], trials=4, validation=True)
    return StudyData(
        results.with_columns(
            better("score", BEST_ON_TEST), better("validation_score", chosen)
        ),
        name=name,
        paper=name == "tuned",
        baseline="sgd",
        held_out=0.1,
        chosen=("weight_decay",),
        larger_is_better=larger_is_better,
    )


@pytest.mark.parametrize("larger", [True, False])
@pytest.mark.parametrize("name", ["tuned", "mine"])
def test_the_test_set_has_no_say_in_the_choice(name, larger):
    analysis = analyse(_evidence(larger_is_better=larger, name=name))
    judged = list(analysis.comparisons)
    (claim,) = [c for c in analysis.claims if c.claim.name == "tuned against tuned"]
    assert len(claim.comparisons) == (name == "tuned")
    for each in [*judged, *claim.comparisons]:
        assert each.ours.get("optimizer.weight_decay") == CHOSEN
        assert each.other.get("optimizer.weight_decay") == CHOSEN
    assert len(judged) == 1
    (said,) = [each for each in caveats(analysis) if "Chosen" in each.title]
    assert said.text.startswith(
        "weight_decay was chosen for each optimizer on 10 % of the training set, held "
        "out; scores are on the test set. Chosen settings in MNIST · NN-2: "
        "sgd(weight_decay=0.001) of 5, adadecay(weight_decay=0.001) of 5."
    )


@pytest.mark.parametrize(("chosen", "side"), [(CHOSEN, "above"), (1e-4, "below")])
def test_the_page_and_the_terminal_say_where_to_go_on(chosen, side, capsys):
    data = _evidence(larger_is_better=True, name="mine", chosen=chosen)
    analysis = analyse(data)
    (said,) = [each.text for each in caveats(analysis) if each.title == EDGE]
    tried = f"weight_decay {side} {chosen:g} for"
    assert said == (
        f"Better values may lie beyond the grid: try {tried} sgd in MNIST · NN-2; "
        f"{tried} adadecay in MNIST · NN-2."
    )
    print_verdict(analysis)
    assert f"\n{EDGE}: {said}\n" in capsys.readouterr().out


def test_a_choice_inside_the_grid_needs_no_remark(capsys):
    data = _evidence(larger_is_better=True, name="mine", chosen=5e-4)
    (said,) = [each for each in caveats(analyse(data)) if "Chosen" in each.title]
    assert "sgd(weight_decay=0.0005) of 5, adadecay(weight_decay=0.0005)" in said.text
    print_verdict(analyse(data))
    assert "edge of" not in capsys.readouterr().out


def test_without_scores_on_held_out_data_nothing_was_chosen():
    """Then each setting is compared with its partner, and no page says "best"."""
    data = _evidence(larger_is_better=True, name="mine")
    none = pl.lit(None, pl.Float64).alias("validation_score")
    analysis = analyse(replace(data, results=data.results.with_columns(none)))
    assert analysis.data.chosen == ()
    found = [
        (
            each.ours.get("optimizer.weight_decay"),
            each.other.get("optimizer.weight_decay"),
        )
        for each in analysis.comparisons
    ]
    assert len(found) == 5
    assert all(ours == other for ours, other in found)
