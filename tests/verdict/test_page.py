"""The page's text: what it says of studies that lack something, and what never."""

import errno
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import vl_convert
from simulated_study import (
    Setting,
    comparison_settings,
    simulate,
    simulate_rates,
    two_arms,
)

from adadecay.lab.report import figures, write
from adadecay.lab.report.charts import make_figures
from adadecay.lab.report.page import _settings, render
from adadecay.lab.report.style import DARK, KNOWN, looks
from adadecay.lab.report.tables import comparison_table
from adadecay.lab.report.text import Numbers, headline
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData

MAIN = re.compile(r"<body>.*?<script type=\"application/json\"", re.DOTALL)
NOT_A_NUMBER = re.compile(r"\b(nan|NaN|inf|Infinity|None|null|undefined)\b")


def text_of(evidence: StudyData) -> str:
    page = render(analyse(evidence))
    body = MAIN.search(page).group()
    charts = page.split('id="charts">')[1].split("</script>")[0]
    assert "NaN" not in charts
    assert "Infinity" not in charts
    shown = re.sub(r"<[^>]*>", " ", body)
    assert not NOT_A_NUMBER.search(shown), NOT_A_NUMBER.search(shown)
    return " ".join(shown.split())


def told(settings, **keys):
    analysis = analyse(StudyData(simulate(settings, trials=4, epochs=5), **keys))
    return headline(analysis)


def test_several_comparisons_are_told_in_a_sentence():
    places = [Setting(dataset="a"), Setting(dataset="b")]
    ours = [replace(each, optimizer="adadecay", level=98.5) for each in places]
    assert told([*places, *ours]) == (
        "adadecay against sgd: no evidence of a difference in 2 of 2 comparisons."
    )
    better = replace(places[0], optimizer="mine", level=99.9)
    assert told([*places, *ours, better]) == (
        "Compared with sgd: helps in 1 of 3 comparisons (mine), no evidence of a "
        "difference in 2 (adadecay)."
    )


def test_rows_of_a_forest_of_learning_rates_are_told_by_them():
    settings = [
        Setting(optimizer=f"{name}(lr={lr})", name=name, arguments=f'{{"lr": {lr}}}')
        for name in ("sgd", "adadecay")
        for lr in (0.1, 0.2)
    ]
    analysis = analyse(StudyData(simulate(settings, trials=3, epochs=5)))
    (figure, *_) = make_figures(analysis)
    assert figure.title == "Differences: MNIST · NN-2"
    names = [f"adadecay(lr={lr}) − sgd(lr={lr})" for lr in (0.1, 0.2)]
    assert figure.table["row"].to_list() == names
    drawn = vl_convert.vegalite_to_svg(figure.chart.to_dict())
    for whole in (*names, "no evidence", "difference (right: the first is better)"):
        assert f">{whole}<" in drawn


def test_long_names_in_a_forest_stand_on_two_lines():
    decays = {"sgd": 3e-4, "adadecay": 5e-4}
    settings = [
        Setting(optimizer=f"{name}(lr=0.1, weight_decay={decay})", name=name)
        for name, decay in decays.items()
    ]
    analysis = analyse(StudyData(simulate(settings, trials=3, epochs=5)))
    (figure, *_) = make_figures(analysis)
    drawn = vl_convert.vegalite_to_svg(figure.chart.to_dict())
    assert ">adadecay(lr=0.1, weight_decay=0.0005)<" in drawn
    assert ">− sgd(lr=0.1, weight_decay=0.0003)<" in drawn


def test_adadecay_comes_first_in_pictures_and_tables_even_as_the_baseline():
    settings = [
        Setting(optimizer="adadecay", level=99.0),
        Setting(optimizer="unit-mean", level=97.0),
    ]
    results = simulate(settings, trials=6, epochs=5)
    analysis = analyse(StudyData(results, baseline="adadecay"))
    (exported,) = analysis.comparisons
    assert exported.ours.label == "unit-mean"
    assert exported.difference < 0
    (row,) = make_figures(analysis)[0].table.to_dicts()
    assert row["row"] == "adadecay − unit-mean"
    assert row["difference"] == pytest.approx(-exported.difference, abs=1e-5)
    assert 0 < row["low"] < row["high"]
    assert row["verdict"] == "helps"
    (cells,) = comparison_table(analysis).rows
    assert (cells["who"], cells["words"]) == (row["row"], "helps")
    assert cells["low"] == -exported.interval.high


@pytest.mark.parametrize(("cells", "matrices"), [(["a"], 0), (["a", "b"], 1)])
def test_one_cell_of_ones_own_has_one_table_of_scores(cells, matrices):
    settings = [
        Setting(dataset=cell, optimizer=name)
        for cell in cells
        for name in ("sgd", "adadecay")
    ]
    page = render(analyse(StudyData(simulate(settings, trials=2, epochs=3))))
    assert page.count('<table class="matrix">') == matrices


def test_the_header_counts_optimizers_and_settings():
    settings = [
        Setting(optimizer=f"{name}(lr={lr})", name=name, arguments=f'{{"lr": {lr}}}')
        for name in ("sgd", "adadecay", "mine")
        for lr in (0.1, 0.2, 0.3)
    ]
    text = text_of(StudyData(simulate(settings, trials=2, epochs=3)))
    assert re.search(r"\b3 optimizers\b", text)
    assert re.search(r"\b9 settings\b", text)


@pytest.mark.parametrize(
    ("trials", "told"),
    [
        (9, "have 9 pairs. In simulations with 5 pairs (simulated: 5, 10, 20, 30, 50)"),
        (10, "have 10 pairs. In simulations with 10 pairs, 95 % intervals"),
        (3, "have 3 pairs. In simulations with 5 pairs (simulated"),
    ],
)
def test_the_note_on_few_pairs_says_how_many_there_are(trials, told):
    assert told in text_of(StudyData(two_arms(trials=trials)))


def test_ties_and_single_pairs_are_told_in_words():
    table = two_arms(trials=4)
    tied = table.with_columns(score=pl.lit(98.0), test_accuracy=pl.lit(98.0))
    text = text_of(StudyData(tied))
    assert "(+0.00 points, all 4 pairs tie)" in text
    assert "[+0.00, +0.00]" not in text
    text = text_of(StudyData(two_arms(trials=1)))
    assert "one pair: no interval" in text
    assert "interval –" not in text


def test_one_trial():
    text = text_of(StudyData(two_arms(trials=1)))
    assert "One trial each: no interval, no test, no verdict" in text
    assert "No interval from a single pair" in text
    assert "No evidence" in text


@pytest.mark.parametrize(
    "optimizers", [["adadecay"], ["adadecay(alpha=1)", "adadecay"]]
)
def test_no_baseline(optimizers):
    settings = [Setting(optimizer=name, name="adadecay") for name in optimizers]
    text = text_of(StudyData(simulate(settings, trials=3)))
    why = "only adadecay." if len(optimizers) == 1 else "no baseline."
    assert f"Nothing is compared: the study has {why}" in text


def test_a_baseline_that_is_in_some_cells_only():
    settings = [
        Setting(dataset="a"),
        Setting(dataset="a", optimizer="adadecay"),
        Setting(dataset="b", optimizer="adadecay"),
    ]
    analysis = analyse(StudyData(simulate(settings, trials=4)))
    assert [c.ours.dataset for c in analysis.comparisons] == ["a"]
    assert "b · NN-2" in text_of(StudyData(simulate(settings, trials=4)))


def test_some_failed():
    def status(setting, number):
        return {(0, 1): "failed", (1, 2): "diverged"}.get((setting, number), "done")

    problem = {
        "cell": "mnist/nn-2",
        "optimizer": "sgd",
        "number": 1,
        "status": "failed",
        "epochs_done": 33,
        "reason": "worker was killed",
    }
    results = two_arms(trials=6, status=status)
    text = text_of(StudyData(results, problems=(problem,)))
    assert "1 failed and 1 diverged of 12 trials" in text
    assert "worker was killed" in text
    assert "4 pairs" in text


def test_all_diverged():
    results = two_arms(trials=4, status=lambda *_: "diverged")
    text = text_of(StudyData(results, rates=simulate_rates(results)))
    assert "finished without a score" in text
    assert "8 diverged of 8 trials" in text
    assert "no finished pair of trials" in text


def test_all_of_one_optimizer_diverged():
    results = two_arms(trials=4, status=lambda s, _: "diverged" if s else "done")
    text = text_of(StudyData(results))
    assert "no finished pair of trials" in text
    assert "4 diverged in adadecay" in text


def test_scores_that_are_no_numbers():
    results = two_arms(trials=4).with_columns(
        score=pl.when(pl.col("number") == 2)
        .then(float("nan"))
        .when(pl.col("number") == 3)
        .then(float("inf"))
        .otherwise("score")
    )
    text = text_of(StudyData(results, rates=simulate_rates(results, mean=float("nan"))))
    assert "2 pairs" in text


def test_unfinished():
    results = two_arms(trials=6, status=lambda _, n: "done" if n < 3 else "running")
    text = text_of(StudyData(results, planned=20))
    assert "Finished: 6 of 20 trials" in text
    assert "3 pairs" in text


def test_nothing_at_all():
    empty = two_arms(trials=1).clear()
    for evidence in (StudyData(empty), StudyData(pl.DataFrame(), planned=12)):
        text = text_of(evidence)
        assert "No trial has finished yet" in text
    assert "Finished: 0 of 12 trials" in text


def test_unequal_trials():
    results = simulate([Setting(), Setting(optimizer="adadecay")], trials=[9, 5])
    text = text_of(StudyData(results))
    assert "unequal numbers of finished trials" in text
    assert "5 of adadecay and 9 of sgd finished" in text


def test_equal_scores_everywhere():
    results = two_arms(trials=5).with_columns(score=pl.lit(90.0))
    text = text_of(StudyData(results))
    assert "No evidence that adadecay and sgd differ" in text


def test_few_pairs_say_how_far_their_interval_can_be_trusted():
    assert "where only one of the optimizers has trials that" in text_of(
        StudyData(two_arms(trials=5))
    )
    assert "where only one of the optimizers has trials that" not in text_of(
        StudyData(two_arms(trials=30))
    )


def test_a_shortened_study_says_so_and_judges_nothing():
    results = simulate(comparison_settings()[:6], trials=3, epochs=20)
    text = text_of(StudyData(results, paper=True, name="paper/comparison[epochs=20]"))
    assert "Different from the paper: 20 epochs instead of 100" in text
    assert "not comparable" in text
    assert "✓ replicated" not in text.split("The rule, fixed")[0]


def test_a_larger_score_may_be_worse():
    evidence = StudyData(
        two_arms(0.5, trials=8), larger_is_better=False, score_name="perplexity"
    )
    text = text_of(evidence)
    assert "adadecay is worse than sgd by" in text
    assert "Smaller is better" in text
    assert "points" not in text


def test_a_study_of_the_paper_has_the_papers_numbers_and_the_rule_beside_each():
    results = simulate(comparison_settings()[:12], trials=4)
    text = text_of(StudyData(results, paper=True, name="paper/comparison"))
    assert "98.53" in text
    assert "(of 50)" in text  # maxima compare only at equal numbers of trials
    assert "“inconclusive” here means" in text
    assert "prints no value" in text
    assert "10 of 12 not in this study" in text
    assert re.search(
        r"MNIST · NN-2, adadecay − sgd: [+−]\d\.\d+ \[.*?\], paper \+0\.03", text
    )
    assert "“adadecay run paper/decay” tests it" in text
    assert "tends to look too good" in text


def test_own_trainers_have_no_dataset_and_may_have_any_scale():
    settings = [
        Setting(dataset="", network="mine:train", optimizer=name, level=level)
        for name, level in [("sgd", 4e-5), ("adamw", 3e-5)]
    ]
    results = simulate(settings, trials=6, spread=1e-6).with_columns(
        cell=pl.lit("mine:train"), test_accuracy=None
    )
    analysis = analyse(StudyData(results, score_name="loss", larger_is_better=False))
    assert Numbers.fitting(analysis).decimals >= 6
    text = text_of(analysis.data)
    assert "adamw beats sgd by 0.0000" in text
    assert "mine:train" in text
    assert "test set" not in text


def test_pairs_that_differ_less_than_trials_do_have_decimals_enough():
    """A verdict beside [+0.000, +0.000] would contradict its interval."""
    scores = {"sgd": 0.13, "adadecay": 0.13 - 3e-5}
    settings = [Setting(optimizer=name, level=level) for name, level in scores.items()]
    results = simulate(settings, trials=8, spread=1e-6)
    shift = pl.col("number").cast(pl.Float64) / 100  # alike for both of a pair
    results = results.with_columns(pl.col("score") + shift, test_accuracy=None)
    analysis = analyse(StudyData(results, score_name="loss", larger_is_better=False))
    text = text_of(analysis.data)
    assert "adadecay beats sgd by 0.000029" in text
    assert "+0.000," not in text
    assert "−0.000 " not in text


def test_a_trainer_of_ones_own_has_batches_of_its_own():
    for trainer, said in ((None, True), ("mine:train", False)):
        (arm, *_) = analyse(StudyData(two_arms(trials=2))).arms
        values = (("batch_size", 128), ("lr", 0.1))
        values += (("trainer", trainer),) if trainer else ()
        analysis = SimpleNamespace(arms=[replace(arm, values=values)])
        (line,) = _settings(analysis)
        assert ("batch_size 128" in line) == said
        assert "lr 0.1" in line


def test_the_page_is_whole_and_small(tmp_path):
    path = write(two_arms(trials=3), tmp_path / "deep" / "page.html")
    page = path.read_text("utf-8")
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_size < 1.2e6
    head = page.split("<body>")[0]
    assert "default-src 'none'" in head
    assert not re.search(r"<(link|script|img|iframe)[^>]*(src|href)=", page[:200_000])
    assert "location.reload" not in page


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = write(two_arms(trials=2), tmp_path / "page.html")
    before, write_text = path.read_bytes(), Path.write_text

    def half(file, text, *rest):
        write_text(file, text[: len(text) // 2], *rest)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space"):
        write(two_arms(trials=3), path)
    assert path.read_bytes() == before


def test_a_watched_page_renews_itself():
    page = render(analyse(StudyData(two_arms(trials=2))), renew=7)
    assert "setTimeout(() => location.reload(), 7 * 1000)" in page


def test_figures_for_a_notebook():
    results = two_arms(trials=3)
    charts = figures(StudyData(results, rates=simulate_rates(results)))
    assert list(charts) == ["differences-1", "curves-1", "theta-1"]
    for chart in charts.values():
        spec = chart.to_dict()  # validates against Vega-Lite's schema
        assert spec["width"] == 420
    assert list(figures(results)) == ["differences-1", "curves-1"]


def test_colours_are_okabe_and_itos_and_never_shared_by_two_of_the_paper():
    names = list(KNOWN)
    found = looks(dict(zip(names, names, strict=True)))
    assert len({look.colour for look in found.values()}) == len(names)
    assert len({look.dash for look in found.values()}) == len(names)
    assert {look.colour for look in found.values()} <= set(DARK)
    many = looks({f"adadecay(alpha={value})": "adadecay" for value in range(30)})
    assert len({(look.colour, look.dash) for look in many.values()}) == 30


def test_many_layers_and_long_studies_are_thinned():
    results = two_arms(trials=2, epochs=400)
    rates = simulate_rates(results, layers=[f"layer{i}" for i in range(60)])
    evidence = StudyData(results, rates=rates)
    assert len(render(analyse(evidence))) < 1.4e6
    (curve,) = [c for name, c in figures(evidence).items() if name == "curves-1"]
    rows = next(iter(curve.to_dict()["datasets"].values()))
    epochs = {row["epoch"] for row in rows}
    assert len(epochs) <= 102
    assert {1, 400} <= epochs


def test_settings_that_are_swept_are_drawn_once():
    settings = [
        replace(Setting(), optimizer=f"sgd({decay:g})", name="sgd", weight_decay=decay)
        for decay in (1e-4, 5e-4, 1e-3)
    ]
    names = list(figures(simulate([*settings, Setting()], trials=3)))
    assert [name for name in names if name.startswith("weight")] == ["weight-decay-1"]
