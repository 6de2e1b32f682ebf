"""Claims over all studies of a folder, and studies that ask for the paper's numbers."""

import json
from dataclasses import replace

import polars as pl
import pytest
from simulated_study import Setting, decay_settings, simulate, two_arms
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import Study
from adadecay.lab.stats.analysis import analyse, analyse_all, unite, unite_claims
from adadecay.lab.stats.data import StudyData, load
from adadecay.lab.stats.significance import smallest_difference
from adadecay.lab.stats.snapshot import write_snapshot
from adadecay.lab.stats.verdicts import Verdict


def of_paper(results, **facts):
    return StudyData(results, paper=True, baseline="sgd", **facts)


def row_of(rows, name):
    return next(row for row in rows if row.claim.name == name)


def one_row(results):
    return row_of(unite_claims(analyse_all([of_paper(results)])), "beats SGD")


def test_a_trial_that_two_studies_share_counts_once():
    table = two_arms(0.2, trials=12)
    halves = [table.filter(pl.col("number") < 8), table.filter(pl.col("number") >= 4)]
    rows = unite_claims(analyse_all([of_paper(half) for half in halves]))
    row = row_of(rows, "beats SGD")
    assert (len(row.arms), row.cells) == (1, 1)
    (judged,) = row.comparisons
    assert judged.pairs == 12
    (alone,) = analyse(of_paper(table)).comparisons
    assert judged.difference == alone.difference


def test_shortened_trials_cover_no_part_of_a_claim():
    whole = two_arms(0.2, trials=6)
    shorter = two_arms(0.2, trials=6, epochs=12).with_columns(
        cell=pl.lit("mnist/nn-3"), trial="x" + pl.col("trial"), network=pl.lit("nn-3")
    )
    rows = unite_claims(analyse_all([of_paper(whole), of_paper(shorter)]))
    row = row_of(rows, "beats SGD")
    assert [each.verdict for each in row.comparisons].count(Verdict.NOT_COMPARABLE) == 1
    assert (len(row.comparisons), len(row.arms), len(row.sized)) == (2, 1, 1)


def test_studies_with_other_labels_share_an_arm():
    table = two_arms(0.2, trials=6)
    first = table.with_columns(setting=json_of(table))
    named = pl.col("optimizer").replace("adadecay", "adadecay(alpha=4)")
    second = first.with_columns(named, trial="x" + first["trial"])
    second = second.with_columns(pl.col("number") + 6, pl.col("seed") + 6)
    united = unite([of_paper(first), of_paper(second)])
    assert set(united.results["optimizer"]) == {"sgd", "adadecay"}
    (judged,) = analyse(united).comparisons
    assert judged.pairs == 12


def json_of(table):
    def definition(name):
        given = {"weight_decay": 5e-4} | ({"alpha": 4.0} if name == "adadecay" else {})
        parts = {"optimizer": {"name": name, "arguments": given}}
        return json.dumps(parts | {"schedule": {"name": "sigmoid"}, "lr": 0.1})

    return pl.Series([definition(name) for name in table["optimizer"]])


def test_beside_a_claim_stands_what_the_papers_trials_could_show():
    quiet = one_row(two_arms(0.03, spread=0.02))
    assert (quiet.powered, len(quiet.sized)) == (1, 1)
    noisy = one_row(two_arms(0.03, spread=0.5))
    assert (noisy.powered, len(noisy.sized)) == (0, 1)


def test_more_pairs_find_smaller_differences():
    values = [0.1, -0.2, 0.3, 0.0, 0.15, -0.1, 0.2, 0.05, -0.05, 0.12]
    assert smallest_difference(values, pairs=10) == smallest_difference(values)
    found = [smallest_difference(values, pairs=n) for n in (10, 40, 160)]
    assert found[1] / found[2] == pytest.approx(2, rel=0.05)


def test_the_command_prints_each_claim_once(tmp_path):
    results = two_arms(0.2, trials=6)
    write = {"a": results, "b": results.filter(pl.col("number") < 3)}
    for name, table in write.items():
        (tmp_path / name).mkdir()
        write_snapshot(of_paper(table, name=name), tmp_path / name)
    (tmp_path / "mine").mkdir()
    write_snapshot(StudyData(results, name="mine"), tmp_path / "mine")
    done = CliRunner().invoke(app, ["claims", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"Studies of the paper in {tmp_path}: 2." in done.output
    done = CliRunner().invoke(app, ["claims", str(tmp_path), "--json"])
    rows = json.loads(done.output)
    assert len({row["claim"] for row in rows}) == len(rows) == 11
    assert rows[0]["claim"] == "beats SGD"
    assert rows[0]["comparisons"] == 1
    done = CliRunner().invoke(app, ["claims", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "holds no snapshot" in done.output


def test_a_study_of_ones_own_may_ask_for_the_paper(tmp_path):
    """A copy of a built-in study under another name was never judged."""
    keys = {"name": "mine", "dataset": "mnist", "network": "nn-2", "epochs": 100}
    keys |= {"schedule": "sigmoid", "optimizers": ["sgd", "adadecay"]}
    asked = Study(**keys, paper=True, precision="bfloat16", results=tmp_path)
    assert load(asked).paper
    assert not load(Study(**keys, results=tmp_path)).paper
    (judged,) = analyse(replace(load(asked), results=two_arms(0.2))).comparisons
    assert judged.verdict is Verdict.LARGER


def test_another_learning_rate_than_the_papers_has_no_published_number():
    def judged(rate):
        sgd = Setting(arguments=f'{{"lr": {rate}}}')
        ours = replace(sgd, optimizer="adadecay", alpha=4.0)
        (found,) = analyse(of_paper(simulate([sgd, ours]))).comparisons
        return found.published, found.verdict is not None

    assert judged(0.1) == (0.03, True)
    assert judged(0.3) == (None, False)


def test_claims_of_several_studies_have_one_verdict():
    decay = of_paper(simulate(decay_settings(), trials=4, epochs=100))
    rows = unite_claims(analyse_all([of_paper(two_arms(0.2, trials=4)), decay]))
    names = [row.claim.name for row in rows]
    assert len(names) == len(set(names)) == 11
