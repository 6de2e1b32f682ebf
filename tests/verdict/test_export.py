"""Tables as CSV."""

import polars as pl
import pytest
from simulated_study import two_arms

from adadecay.lab.report.export import write_csv
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData


def test_csv_has_the_numbers_unrounded(tmp_path):
    results = two_arms(0.2, trials=6)
    analysis = analyse(StudyData(results, paper=True, name="paper/some"))
    files = write_csv(analysis, tmp_path / "out")
    assert [path.name for path in files] == [
        "settings.csv",
        "comparisons.csv",
        "claims.csv",
        "curves.csv",
    ]
    row = pl.read_csv(files[1]).row(0, named=True)
    (comparison,) = analysis.comparisons
    assert row["difference"] == pytest.approx(comparison.difference, abs=1e-12)
    assert (row["low"], row["high"]) == pytest.approx(
        (comparison.interval.low, comparison.interval.high), abs=1e-12
    )
    assert row["published"] == 0.03
    settings = pl.read_csv(files[0])
    assert settings["average"][0] == pytest.approx(analysis.arms[0].average())
    assert settings["paper_average"].to_list() == [98.53, 98.56]
    assert len(pl.read_csv(files[3])) == 200


def test_an_empty_study_exports_what_there_is(tmp_path):
    analysis = analyse(StudyData(pl.DataFrame()))
    assert [path.name for path in write_csv(analysis, tmp_path)] == ["claims.csv"]
