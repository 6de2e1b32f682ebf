"""``adadecay list``: every registry, one row a line, without torch."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.commands.list import rows
from adadecay.lab.datasets import DATASETS
from adadecay.lab.networks import NETWORKS
from adadecay.lab.optimizers import OPTIMIZERS, RULES
from adadecay.lab.schedules import SCHEDULES
from adadecay.lab.spec_file import built_in_names

NAMES = {
    "networks": NETWORKS.names(),
    "optimizers": OPTIMIZERS.names(),
    "rules": RULES.names(),
    "schedules": SCHEDULES.names(),
    "datasets": DATASETS.names(),
    "studies": tuple(built_in_names()),
}


def listed(*arguments: str):
    return CliRunner().invoke(app, ["list", *arguments])


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_stands_at_the_start_of_a_line(kind):
    result = listed(kind)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *NAMES[kind]]


@pytest.mark.parametrize("kind", NAMES)
def test_no_cell_is_empty_but_arguments(kind):
    for row in rows(kind):
        for column, cell in row.items():
            assert cell or column == "arguments", (row["name"], column)


def test_rows_say_what_the_registry_says():
    network = {row["name"]: row for row in rows("networks")}["lenet-4"]
    assert network["parameters"] == "21,840"
    assert network["arguments"] == "width=1, dropout=0"
    optimizer = {row["name"]: row for row in rows("optimizers")}
    assert "gamma=0.0001 (0.03 deep)" in optimizer["entropy-sgd"]["arguments"]
    assert optimizer["adam"]["learning rate"] == "0.001 (0.0001 deep), constant"
    assert optimizer["adadecay"]["learning rate"] == "0.1, sigmoid"
    assert "by=mean|power" in optimizer["matched"]["arguments"]
    study = {row["name"]: row for row in rows("studies")}["paper/comparison"]
    assert study["title"]


@pytest.mark.parametrize("kind", NAMES)
def test_markdown_has_one_row_for_each_name(kind):
    lines = listed(kind, "--markdown").output.splitlines()
    columns = lines[0].count("|")
    assert set(lines[1]) == set("|- ")
    assert [line.split()[1] for line in lines[2:]] == list(NAMES[kind])
    assert {line.replace("\\|", "").count("|") for line in lines} == {columns}


def test_an_unknown_list_is_refused_with_the_known_ones():
    result = listed("network")
    assert result.exit_code == 2
    assert "networks" in result.output
    assert "studies" in result.output


def test_a_list_that_is_nearly_named_is_suggested(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = listed("optimisers")
    assert result.exit_code == 2
    assert "Did you mean 'optimizers'? Allowed: networks, opt" in result.output
    assert "Did you mean" not in listed("nonsense").output


def test_names_are_a_list_for_machines():
    every = json.loads(listed("--json").output)
    assert {row["kind"]: tuple(row["names"]) for row in every} == NAMES
    assert f"optimizers  {', '.join(NAMES['optimizers'])}" in listed().output


def test_listing_does_not_import_torch():
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from adadecay.commands import app\n"
        f"for kind in {list(NAMES)!r}:\n"
        "    assert CliRunner().invoke(app, ['list', kind]).exit_code == 0\n"
        "from adadecay.lab import networks, optimizers, schedules\n"
        "schedules.learning_rates('sigmoid', 9)\n"
        "print('torch' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
