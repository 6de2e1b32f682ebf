"""The verdict in Python, on the terminal and on the page: one number for a thing."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import adadecay.lab
from adadecay.commands import app
from adadecay.commands.run import print_verdict
from adadecay.lab import Study
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.compare import paired_differences
from adadecay.lab.stats.data import load
from adadecay.lab.stats.intervals import trimmed_t
from adadecay.lab.stats.significance import pairs_needed, smallest_difference

SMALL = ["--trials", "12", "--epochs", "2", "--examples", "300"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    words = ["run", "quickstart", *SMALL, "--workers", "0", "--plain"]
    done = CliRunner().invoke(app, [*words, "--results", str(folder)])
    assert done.exit_code == 0, done.output
    study = Study("quickstart", results=folder).vary(trials=12, epochs=2, examples=300)
    return study, done.output


def test_the_terminal_prints_the_numbers_and_the_verdict_of_the_page(ran, tmp_path):
    """It printed plain means where the page has trimmed ones, and no verdict."""
    study, told = ran
    page = study.report(tmp_path / "page.html").read_text("utf-8")
    for label in ("sgd", "adadecay"):
        (shown,) = re.findall(rf"{label}\s+12/12\s+([\d.]+)", told)
        assert re.search(rf"<td[^>]*>{shown}</td>", page), (label, shown)
    assert study.verdict() in told
    assert study.verdict() in page


def test_the_comparisons_are_those_of_the_page(ran):
    study, _ = ran
    table = study.comparisons()
    assert table.columns == [
        "cell", "a", "b", "difference", "pairs", "low", "high", "p", "verdict"
    ]  # fmt: skip
    (row,) = table.rows(named=True)
    (judged,) = analyse(load(study)).comparisons
    assert (row["cell"], row["a"], row["b"]) == ("digits/nn-2", "adadecay", "sgd")
    assert row["pairs"] == 12
    assert row["low"] == judged.interval.low
    assert row["low"] <= row["difference"] <= row["high"]
    assert row["verdict"] == str(judged.effect)


def test_a_study_without_results_has_comparisons_and_a_verdict(tmp_path):
    study = Study("quickstart", results=tmp_path)
    assert study.comparisons().is_empty()
    said = f"No trial has finished yet in {tmp_path}: there is nothing to judge."
    assert study.verdict() == said


def test_averages_that_differ_the_other_way_are_remarked():
    from simulated_study import two_arms

    for seed in range(300):
        table = two_arms(0.0, trials=10, epochs=1, seed=seed)
        (c,) = analyse(load(table)).comparisons
        gap = c.ours.average() - c.other.average()
        assert any("averages differ" in note for note in c.notes) == (
            gap * c.difference < 0
        )
        if gap * c.difference < 0:
            return
    pytest.fail("no case was found")


def test_a_study_and_the_lab_say_what_they_are(tmp_path):
    shown = repr(Study("quickstart", results=tmp_path))
    for part in ("quickstart", "20 trials", "1 cell,", "sgd, adadecay", str(tmp_path)):
        assert part in shown
    assert dir(adadecay.lab) == ["Study", "run"]


def test_the_plan_says_how_many_trials_would_find_a_difference(ran, tmp_path):
    study, _ = ran
    words = ["plan", "quickstart", *SMALL, "--results", str(study.folder)]
    done = CliRunner().invoke(app, [*words, "--detect", "0.1"])
    assert done.exit_code == 0, done.output
    (row,) = analyse(load(study)).comparisons
    (needed,) = re.findall(r"digits/nn-2: (\d+) trials would find", done.output)
    differences = paired_differences(row.ours, row.other)
    assert smallest_difference(differences, pairs=int(needed)) <= 0.1
    assert smallest_difference(differences, pairs=int(needed) - 1) > 0.1
    assert (
        f"With {needed} trials each, {2 * int(needed) - 24} left to run" in done.output
    )
    done = CliRunner().invoke(app, [*words, "--detect", "0.1", "--deviation", "0.2"])
    assert f"any cell: {pairs_needed(0.1, 0.2)} trials would find" in done.output
    assert "0.1 with a probability of 80 % (1 comparison, 95 %;" in done.output
    words[-1] = str(tmp_path)
    done = CliRunner().invoke(app, [*words, "--detect", "0.1"])
    assert "Give --deviation" in done.output
    done = CliRunner().invoke(app, [*words, "--detect", "-1"])
    assert done.exit_code == 2


def test_the_plan_accounts_for_every_comparison_of_the_study(tmp_path):
    """Two alphas in two cells beside sgd are four comparisons."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'cells = [{ dataset = "digits", network = ["nn-2", "nn-3"] }]\n'
        'optimizers = ["sgd", { name = "adadecay", alpha = [1.0, 4.0] }]\n'
    )
    words = ["plan", str(file), "--results", str(tmp_path / "results")]
    done = CliRunner().invoke(app, [*words, "--detect", "0.1", "--deviation", "0.2"])
    assert done.exit_code == 0, done.output
    needed = pairs_needed(0.1, 0.2, comparisons=4)
    assert needed > pairs_needed(0.1, 0.2)
    assert f"any cell: {needed} trials would find" in done.output
    assert "(4 comparisons, 95 % together" in done.output


@pytest.mark.parametrize(
    ("difference", "deviation", "comparisons"),
    [(0.1, 0.2, 1), (0.3, 0.5, 1), (0.1, 0.2, 6)],
)
def test_so_many_pairs_find_it_four_times_in_five(difference, deviation, comparisons):
    pairs = pairs_needed(difference, deviation, comparisons=comparisons)
    samples = np.random.default_rng(0).normal(difference, deviation, size=(500, pairs))
    level = 1 - 0.05 / comparisons  # Bonferroni's, which Holm's first step has too
    found = sum(trimmed_t(sample, level=level).low > 0 for sample in samples)
    assert abs(found / 500 - 0.8) < 0.06


@pytest.mark.parametrize("alone", [False, True])
def test_a_verdict_says_whose_settings_were_chosen(tmp_path, capsys, alone):
    rates = {"lr": [0.03, 0.1]}
    adam = {"name": "torch.optim:AdamW", "lr": 1e-3}
    study = Study(
        name="tuned-digits",
        results=tmp_path,
        dataset={"name": "digits", "rows": 64},
        network="nn-2",
        optimizers=[
            {"name": "sgd", **rates},
            {"name": "adadecay", **rates},
            *([adam] if alone else []),
        ],
        holdout=0.25,
        chosen=["lr"],
        trials=2,
        epochs=1,
    )
    adadecay.lab.run(study, workers=0, progress=False)
    told = "Each is at its best lr, chosen on held-out data"
    if not alone:
        assert study.verdict().endswith(f"{told}.")
        return
    assert study.verdict().endswith(
        f"{told}, except AdamW, tried with one setting only."
    )
    print_verdict(analyse(load(study)))
    assert "\nUnequal schedules: The learning rates follow" in capsys.readouterr().out
