"""LaTeX in the layout of the original, CSV, and figures as files."""

import re
from pathlib import Path

import polars as pl
import pytest
from simulated_study import (
    alpha_settings,
    comparison_settings,
    randomized_settings,
    simulate,
    two_arms,
)

from adadecay.lab import paper
from adadecay.lab.report.export import (
    IMAGES,
    escape,
    tex_tables,
    write_csv,
    write_images,
    write_tex,
)
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData

ORIGINAL = Path(__file__).with_name("published_tables.tex").read_text("utf-8")


def exactly(settings, cells):
    """Results whose averages and maxima are those of the paper, to the last digit."""
    results = simulate(settings, trials=2, epochs=100)
    frames = []
    for (_, rows), cell in zip(
        results.group_by("dataset", "network", "optimizer", maintain_order=True),
        cells,
        strict=True,
    ):
        first = pl.col("epoch") == 0
        level = pl.when(first).then(cell.maximum).otherwise(cell.average)
        frames.append(rows.with_columns(score=level))
    return analyse(StudyData(pl.concat(frames), paper=True, name="paper/some"))


def rows_of(text: str) -> list[str]:
    """The heads and numbers of a table, without what TeX does not see."""
    kept = [
        re.sub(r"\s+", "", line)
        for line in text.splitlines()
        if line.startswith(("ave", "max")) or "multicolumn" in line or " & " in line
    ]
    return [line for line in kept if not line.startswith("%")]


@pytest.mark.parametrize(
    ("label", "settings", "cells"),
    [
        ("alpha", alpha_settings(), paper.ALPHA),
        ("randomized", randomized_settings(), paper.RANDOMIZED),
        ("comparison", comparison_settings(), paper.COMPARISON),
    ],
)
def test_the_papers_numbers_give_the_papers_table(label, settings, cells):
    """Line for line, bold and all; only the paper's two slips of the pen differ."""
    ours = tex_tables(exactly(settings, cells))[label]
    original = ORIGINAL.split(f"% table {label}\n")[1].split("% table ")[0]
    original = original.replace("rnd & our &", "rnd & ours &")
    original = original.replace("& cons &", "& const &")
    assert rows_of(ours) == rows_of(original)


@pytest.mark.parametrize("larger", [True, False])
def test_a_table_is_trimmed_as_asked_and_marks_the_best(larger):
    results = two_arms(0.5, trials=10, epochs=10)
    evidence = StudyData(results, larger_is_better=larger, name="mine")
    found = {}
    for trim in (0.0, 0.3):
        analysis = analyse(evidence, trim=trim)
        text = tex_tables(analysis)["comparison"]
        row = next(line for line in text.splitlines() if line.startswith("ave"))
        averages = {arm.optimizer: arm.average(trim=trim) for arm in analysis.arms}
        first, last = f"{averages['sgd']:.2f}", f"{averages['adadecay']:.2f}"
        worse, best = (first, last) if larger else (last, first)
        assert rf"\textbf{{{best}}}" in row
        assert f"& {worse} &" in row or f"& {worse}\\" in row
        found[trim] = row
    assert found[0.0] != found[0.3]


def test_missing_cells_are_dashes():
    found = analyse(
        StudyData(
            simulate(comparison_settings()[:6], trials=2), paper=True, name="paper/some"
        )
    )
    text = tex_tables(found)["comparison"]
    row = next(line for line in text.splitlines() if line.startswith("ave"))
    assert row.count("--") == 6
    assert "Fashion" not in text


def test_differences_of_any_study():
    analysis = analyse(StudyData(two_arms(0.2, trials=6), name="mine_50%"))
    tables = tex_tables(analysis)
    assert list(tables) == ["comparison", "differences"]
    assert r"MNIST $\cdot$ NN-2 & adadecay $-$ sgd & 6 & +" in tables["differences"]


def test_text_is_escaped():
    assert escape(r"a_b & 5% {x} \y <z>") == (
        r"a\_b \& 5\% \{x\} \textbackslash{}y \textless{}z\textgreater{}"
    )
    assert escape("#1 $2 ~3 ^4") == (r"\#1 \$2 \textasciitilde{}3 \textasciicircum{}4")


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
    assert [path.name for path in write_tex(analysis, tmp_path)] == ["differences.tex"]
    assert write_images(analysis, tmp_path, ["svg"]) == []


def test_figures_in_every_format(tmp_path):
    analysis = analyse(StudyData(two_arms(trials=3, epochs=10)))
    files = write_images(analysis, tmp_path, IMAGES)
    assert {path.name for path in files} == {
        f"{name}.{kind}" for name in ("differences-1", "curves-1") for kind in IMAGES
    }
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    for path in files:
        assert path.read_bytes().startswith(starts[path.suffix[1:]])
        assert path.stat().st_size > 3000
