"""Scores over the effective decay: λ times the mean of θ, SGD's being 1."""

import polars as pl
import pytest
from simulated_study import Setting, simulate

from adadecay.lab.report import figures
from adadecay.lab.report.lines import effective_decays
from adadecay.lab.report.series import effective_decay
from adadecay.lab.report.style import Theme
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData

THETAS = {"adadecay": 0.75, "adadecay(weight_decay=0.001)": 0.8, "shuffled": 0.7}
SETTINGS = [
    Setting(level=98.0),
    Setting(optimizer="adadecay", alpha=4.0, level=98.5),
    Setting(
        optimizer="adadecay(weight_decay=0.001)",
        name="adadecay",
        alpha=4.0,
        weight_decay=1e-3,
    ),
    Setting(optimizer="shuffled", alpha=4.0),
    Setting(optimizer="adam"),
    Setting(dataset="fashion-mnist"),
]


@pytest.fixture(scope="module")
def analysis():
    results = simulate(SETTINGS, trials=5, epochs=10)
    theta = pl.col("optimizer").replace_strict(THETAS, default=None)
    rates = results.filter(pl.col("optimizer").is_in(list(THETAS)))
    rates = rates.select("trial", "epoch", layer=pl.lit("0.weight"), mean_theta=theta)
    return analyse(StudyData(results, rates=rates, name="mine"))


def test_each_point_lies_at_its_decay(analysis):
    table = effective_decay(analysis)
    found = dict(table.select("label", "value").iter_rows())
    assert found == {
        "sgd": 5e-4,
        "adadecay": pytest.approx(3.75e-4),
        "adadecay(weight_decay=0.001)": pytest.approx(8e-4),
        "shuffled": pytest.approx(3.5e-4),
    }
    # Adam has no θ, and the other cell has a point alone.
    assert set(table["where"]) == {"MNIST · NN-2"}
    scores = dict(table.select("label", "mean").iter_rows())
    for arm in analysis.arms:
        if arm.where == "MNIST · NN-2" and arm.label in scores:
            assert scores[arm.label] == pytest.approx(arm.average(), abs=1e-4)


def test_it_is_a_figure_of_the_report(analysis):
    (figure,) = effective_decays(analysis, Theme.of(analysis))
    assert len(figure.table) == 4
    figure.chart.to_dict()
    assert "effective-decay-1" in figures(analysis.data)


def test_points_of_different_learning_rates_are_not_joined():
    named = [("sgd", None), ("adadecay", 4.0), ("shuffled", 4.0)]
    settings = [
        Setting(
            optimizer=f"{name}(lr={lr})",
            name=name,
            alpha=alpha,
            arguments=f'{{"lr": {lr}}}',
        )
        for name, alpha in named
        for lr in (0.1, 0.2, 0.3)
    ]
    results = simulate(settings, trials=3, epochs=5)
    rates = results.filter(pl.col("alpha") == 4.0)
    rates = rates.select("trial", "epoch", layer=pl.lit("a"), mean_theta=pl.lit(0.5))
    analysis = analyse(StudyData(results, rates=rates, name="mine"))
    (figure,) = effective_decays(analysis, Theme.of(analysis))
    (drawn,) = figure.chart.to_dict()["datasets"].values()
    assert len({row["line"] for row in drawn}) == len(drawn) == 9
    two = results.filter(pl.col("optimizer_name") != "shuffled")
    assert effective_decay(analyse(StudyData(two, rates=rates))).is_empty()


def test_without_rates_there_is_nothing_to_draw(analysis):
    bare = analyse(StudyData(analysis.data.results, name="mine"))
    assert effective_decays(bare, Theme.of(bare, page=True)) == []
