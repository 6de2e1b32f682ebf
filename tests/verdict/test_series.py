"""The numbers behind the figures and tables of the page, against plain NumPy."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats
from simulated_study import (
    Setting,
    comparison_settings,
    simulate,
    two_arms,
)

from adadecay.lab.report import series
from adadecay.lab.report.charts import make_figures
from adadecay.lab.report.page import render
from adadecay.lab.report.tables import matrix
from adadecay.lab.report.text import DASH, Numbers, effect_words, signed
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData


def test_a_curve_is_the_trimmed_mean_and_the_middle_of_the_trials():
    """Running trials count as far as they are; failed ones do not."""

    def status(setting, number):
        return {1: "failed", 2: "running"}.get(number, "done")

    results = two_arms(trials=14, epochs=30, status=status)
    wild = pl.when(pl.col("number") == 3).then(0.0).otherwise("score")
    results = results.with_columns(score=wild)
    table = series.curves(analyse(StudyData(results)))
    assert table["epoch"].min() == 1
    assert table["epoch"].max() == 30
    row = table.filter((pl.col("epoch") == 7) & (pl.col("optimizer") == "sgd"))
    trials = results.filter(
        (pl.col("epoch") == 6) & (pl.col("optimizer") == "sgd"),
        pl.col("status") != "failed",
    )
    scores = trials["score"].to_numpy()
    assert row["trials"].to_list() == [scores.size] == [13]
    expected = [stats.trim_mean(scores, 0.1), *np.quantile(scores, [0.1, 0.9])]
    assert row.select("mean", "low", "high").row(0) == pytest.approx(expected, abs=1e-4)


def test_a_sweep_is_in_the_order_of_its_values():
    settings = [
        replace(Setting(), optimizer=f"sgd({value:g})", name="sgd", weight_decay=value)
        for value in (1e-3, 1e-4, 5e-4)
    ]
    found = series.sweep(
        analyse(StudyData(simulate(settings, trials=3))), "optimizer.weight_decay"
    )
    assert found["value"].to_list() == [1e-4, 5e-4, 1e-3]


@pytest.mark.parametrize(("larger", "best"), [(True, "adadecay"), (False, "sgd")])
def test_the_best_of_a_row_is_bold(larger, best):
    evidence = StudyData(two_arms(0.5, trials=4), larger_is_better=larger)
    analysis = analyse(evidence)
    _, cells = matrix(analysis)
    (inside,) = cells.values()
    assert [name for name, row in inside.items() if row["best"]] == [best]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_a_dash(value):
    numbers = Numbers(2)
    assert numbers.score(value) == numbers.gap(value) == DASH
    assert numbers.score(-1.0) == numbers.gap(-1.0) == "−1.00"
    assert (numbers.score(-0.001), numbers.gap(-0.001)) == ("0.00", "+0.00")
    assert signed(0, "d") == "0"


@pytest.mark.parametrize(("gain", "verb"), [(0.5, "beats"), (-0.5, "is worse than")])
def test_words_say_who_is_better(gain, verb):
    analysis = analyse(StudyData(two_arms(gain, trials=8)))
    (comparison,) = analysis.comparisons
    words = effect_words(comparison, Numbers.fitting(analysis))
    assert words.startswith(f"adadecay {verb} sgd by 0.")


def test_bars_of_a_forest_are_never_drawn_over_each_other():
    """Two controls of one name and one cell differ in what is in brackets."""
    ours = Setting(optimizer="adadecay", alpha=4.0)
    others = [
        Setting(optimizer=f"matched(by={by})", name="matched", alpha=4.0)
        for by in ("mean", "power")
    ]
    results = simulate([ours, *others], trials=4, epochs=5)
    analysis = analyse(
        StudyData(results, paper=True, name="controls", baseline="adadecay")
    )
    table = series.differences(analysis.comparisons)
    assert table["row"].to_list() == [
        f"adadecay − matched(by={by})" for by in ("mean", "power")
    ]


def test_each_comparison_of_a_claim_has_its_own_verdict():
    """One cell gains, one loses: the card says which."""
    settings = comparison_settings()[:12]
    shift = {"nn-2": 3.0, "nn-3": -3.0}
    moved = [
        replace(s, level=s.level + shift[s.network] * (s.optimizer == "adadecay"))
        for s in settings
    ]
    analysis = analyse(
        StudyData(simulate(moved, trials=6), paper=True, name="paper/comparison")
    )
    card = render(analysis).split('<ul class="evidence">')[1].split("</ul>")[0]
    shown = re.sub(r"<span aria-hidden.*?</span>|<[^>]*>", "", card).split("MNIST · ")
    told = {where[:4]: verdict for verdict, where in itertools.pairwise(shown)}
    assert list(told) == ["NN-2", "NN-3"]
    assert told["NN-2"].strip() == "same sign, larger"
    assert told["NN-3"].strip().endswith("contradicted")


def sweeping(**values):
    """SGD at several values of one argument, as the lab writes its settings."""
    ((path, points),) = values.items()
    part, _, name = path.partition("__")
    tables = []
    for place, value in enumerate(points):
        definition = {"optimizer": {"name": "sgd", "arguments": {}}, "lr": 0.1}
        definition["network"] = {"name": "nn-2", "arguments": {}}
        if name:
            definition[part]["arguments"][name] = value
        else:
            definition[part] = value
        given = {"optimizer": f"sgd({value})", "setting": json.dumps(definition)}
        one = simulate([Setting()], trials=3, epochs=2).with_columns(
            trial=pl.lit(str(place)) + pl.col("trial"),
            **{key: pl.lit(text) for key, text in given.items()},
        )
        tables.append(one)
    return analyse(StudyData(pl.concat(tables), name="mine"))


@pytest.mark.parametrize(
    ("values", "stem", "title", "kind"),
    [
        ({"lr": [0.01, 0.1, 1.0]}, "lr", "learning rate", "log"),
        ({"optimizer__momentum": [0.5, 0.9]}, "momentum", "momentum", "linear"),
        ({"network__heads": [2, 4]}, "heads", "heads", "linear"),
        ({"batch_size": [16, 256]}, "batch-size", "batch size", "log"),
        ({"optimizer__mode": ["a", "b"]}, "mode", "mode", "point"),
    ],
)
def test_whatever_varies_is_a_sweep_with_its_own_figure(values, stem, title, kind):
    path = next(iter(values)).replace("__", ".")
    anchor = f"over-{path.replace('.', '-')}"
    made = make_figures(sweeping(**values))
    (figure,) = [each for each in made if each.section.anchor == anchor]
    assert figure.name == f"{stem}-1"
    spec = json.dumps(figure.chart.to_dict(), ensure_ascii=False)
    assert f'"title": "{title}"' in spec
    assert f'"type": "{kind}"' in spec
    assert figure.table["value"].to_list() == next(iter(values.values()))
    assert f"Over {title}" in render(sweeping(**values))
