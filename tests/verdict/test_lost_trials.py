"""Trials that fail before their first epoch are on the page, like any other loss."""

import pytest

from adadecay.lab import Study, run
from adadecay.lab.report.caveats import caveats
from adadecay.lab.report.tables import arm_table
from adadecay.lab.report.text import Numbers
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import load
from adadecay.lab.stats.snapshot import keep, read_snapshot


def never_begins_with_adadecay(make_optimizer, *, seed, epochs):
    """SGD gets its numbers; AdaDecay does not come as far as its first epoch."""
    if make_optimizer.name == "adadecay":
        raise RuntimeError("no room for it")
    for epoch in range(epochs):
        yield {"accuracy": epoch + seed % 7}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    study = Study(
        name="losing",
        trainer=never_begins_with_adadecay,
        optimizers=["sgd", "adadecay"],
        score="accuracy",
        trials=3,
        epochs=2,
        results=tmp_path_factory.mktemp("results"),
    )
    run(study, workers=0, progress=False)
    return study


def check(evidence):
    analysis = analyse(evidence)
    assert analysis.counts == {
        "done": 3,
        "running": 0,
        "diverged": 0,
        "failed": 3,
        "planned": 6,
    }
    assert analysis.finished
    titles = [remark.title for remark in caveats(analysis)]
    assert "Trials without a result" in titles
    assert "Unfinished study" not in titles
    table, numbers = arm_table(analysis), Numbers.fitting(analysis)
    last = table.columns[-1]
    lost = {row["optimizer"]: last.text(numbers, row) for row in table.rows}
    assert lost == {"sgd": "–", "adadecay": "3"}
    assert [arm.scores.size for arm in analysis.arms] == [3, 0]
    assert sorted(analysis.trials["seen"].to_list()) == [0, 0, 0, 2, 2, 2]


def test_they_count_as_failed_and_the_study_as_finished(study):
    assert study.results()["optimizer"].unique().to_list() == ["sgd"]
    check(load(study))


def test_they_are_kept(study, tmp_path):
    keep(study, tmp_path)
    check(read_snapshot(tmp_path))
