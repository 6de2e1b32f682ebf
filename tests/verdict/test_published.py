"""The published numbers against a second transcription, made from the TeX by parsing.

``published_tables.tex`` holds the rows of the paper's three tables as they stand in its
source; ``lab/paper.py`` was typed by dataset and network. They meet here, and both meet
a checksum that was added up separately.
"""

import re
from pathlib import Path

import pytest

from adadecay.lab import paper
from adadecay.lab.plan import make_plan
from adadecay.lab.spec_file import read_spec

FRAGMENTS = Path(__file__).with_name("published_tables.tex").read_text("utf-8")
NUMBER = re.compile(r"\d\d\.\d\d")


def rows_of(label: str) -> list[tuple[str, list[float]]]:
    part = FRAGMENTS.split(f"% table {label}\n")[1].split("% table ")[0]
    return [
        (line[:3], [float(value) for value in NUMBER.findall(line)])
        for line in part.splitlines()
        if line.startswith(("ave", "max"))
    ]


def in_rows(cells: tuple[paper.Published, ...], width: int) -> list:
    rows = []
    for start in range(0, len(cells), width):
        part = cells[start : start + width]
        rows.append(("ave", [cell.average for cell in part]))
        rows.append(("max", [cell.maximum for cell in part]))
    return rows


@pytest.mark.parametrize(
    ("label", "cells", "width"),
    [
        ("alpha", paper.ALPHA, 15),
        ("randomized", paper.RANDOMIZED, 9),
        ("comparison", paper.COMPARISON, 12),
    ],
)
def test_the_tables_are_those_of_the_paper(label, cells, width):
    assert in_rows(cells, width) == rows_of(label)


def test_complete():
    assert (len(paper.ALPHA), len(paper.RANDOMIZED), len(paper.COMPARISON)) == (
        15,
        9,
        72,
    )
    assert {cell.dataset for cell in paper.COMPARISON} == set(paper.DATASETS)
    for dataset, networks in paper.NETWORKS.items():
        for network in networks:
            for optimizer in {cell.optimizer for cell in paper.COMPARISON}:
                assert paper.published(dataset, network, optimizer) is not None


def test_the_conditions_are_those_of_the_paper_and_of_our_study():
    assert dict(paper.TRIALS) == {"mnist": 50, "fashion-mnist": 50, "cifar-10": 32}
    assert (paper.EPOCHS, paper.BATCH_SIZE) == (100, 128)
    assert (paper.WEIGHT_DECAY, paper.DEFAULT_ALPHA) == (5e-4, 4.0)
    trials = make_plan(read_spec("paper/comparison")).trials
    most = {trial.cell.dataset: 0 for trial in trials}
    for trial in trials:
        place = trial.cell.dataset
        most[place] = max(most[place], trial.number + 1)
        asked = trial.definition
        assert (asked.epochs, asked.batch_size) == (100, 128)
    named = {paper.canonical(place): count for place, count in most.items()}
    assert named == dict(paper.TRIALS)


def test_checksum():
    """Sums in hundredths, added up by awk from the paper's own source."""
    for cells, average, maximum in [
        (paper.ALPHA, 141238, 141595),
        (paper.RANDOMIZED, 84779, 84995),
        (paper.COMPARISON, 674566, 676818),
    ]:
        assert sum(round(cell.average * 100) for cell in cells) == average
        assert sum(round(cell.maximum * 100) for cell in cells) == maximum


def test_the_three_tables_agree_where_they_overlap():
    """A cell is printed up to three times, and the paper agrees with itself."""
    seen: dict[tuple, set] = {}
    for cell in paper.PUBLISHED:
        key = (cell.dataset, cell.network, cell.optimizer, cell.alpha)
        seen.setdefault(key, set()).add((cell.average, cell.maximum))
    assert all(len(values) == 1 for values in seen.values())


def test_gains_over_sgd_are_those_the_protocol_names():
    gains = {
        (dataset, network): paper.published_gain(dataset, network)
        for dataset, networks in paper.NETWORKS.items()
        for network in networks
    }
    assert len(gains) == 12
    assert gains["mnist", "LeNet-4"] == 0.01
    assert gains["fashion-mnist", "NN-2"] == 0.26
    assert gains["cifar-10", "ResNet-18"] == 0.10
    assert min(gains.values()) == 0.01
    assert max(gains.values()) == 0.26


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Fashion-MNIST", "fashion-mnist"),
        ("resnet-50", "ResNet-50"),
        ("lenet-4", "LeNet-4"),
        ("SGD", "sgd"),
        ("some-net", "some-net"),
    ],
)
def test_names(given, expected):
    assert paper.canonical(given) == expected
