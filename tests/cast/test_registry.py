"""The registry: near names offered, arguments checked, makers imported late."""

import subprocess
import sys
from pathlib import Path

import pytest

from adadecay.lab.registry import (
    Argument,
    Entry,
    Registry,
    UnknownNameError,
    load_object,
)

ROWS = Registry(
    "network",
    [
        Entry(
            "resnet-18",
            "json:loads",
            arguments=(
                Argument("width", float, 1.0, "multiplier", minimum=0.25, maximum=4),
                Argument("depth", int, None, "layers"),
                Argument("norm", str, "batch", "which", choices=("batch", "group")),
                Argument("bias", bool, False, "whether"),
                Argument("slope", float, 1.0, "anything finite"),
            ),
            facts={"parameters": 7},
        ),
        Entry("nn-2", "json:dumps"),
    ],
)


def test_defaults_fill_in_and_ints_become_floats():
    checked = ROWS.check("resnet-18", {"width": 2, "bias": True})
    assert checked == {
        "width": 2.0,
        "depth": None,
        "norm": "batch",
        "bias": True,
        "slope": 1.0,
    }
    assert type(checked["width"]) is float


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        (
            "resnet18",
            {},
            UnknownNameError,
            ["'resnet-18'?", "resnet-18, nn-2, or your own"],
        ),
        ("zzz", {}, UnknownNameError, ["Unknown network 'zzz'. Allowed:"]),
        ("resnet-18", {"widht": 1.0}, UnknownNameError, ["'width'?", "width, depth"]),
        ("nn-2", {"width": 1.0}, UnknownNameError, ["Allowed: none."]),
        ("resnet-18", {"width": "wide"}, TypeError, ["'width'", "a finite number"]),
        ("resnet-18", {"width": True}, TypeError, ["not True"]),
        ("resnet-18", {"width": None}, TypeError, ["not None"]),
        ("resnet-18", {"width": 0.1}, ValueError, ["at least 0.25", "not 0.1"]),
        ("resnet-18", {"width": 5}, ValueError, ["at most 4"]),
        ("resnet-18", {"width": float("nan")}, ValueError, ["finite"]),
        ("resnet-18", {"slope": float("nan")}, ValueError, ["a finite number"]),
        ("resnet-18", {"slope": float("-inf")}, ValueError, ["not -inf"]),
        ("resnet-18", {"depth": 1.5}, TypeError, ["a whole number"]),
        ("resnet-18", {"bias": 1}, TypeError, ["a bool"]),
        ("resnet-18", {"norm": "layer"}, ValueError, ["'batch', 'group'"]),
    ],
)
def test_bad_names_and_arguments_are_refused_in_one_sentence(
    name, arguments, error, words
):
    with pytest.raises(error) as caught:
        ROWS.check(name, arguments)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_name_is_a_value_error():
    with pytest.raises(ValueError, match="Did you mean 'nn-2'"):
        ROWS.get("nn2")


def test_a_users_own_passes_its_arguments_on_unchecked():
    entry = ROWS.get("json:loads")
    assert entry.own
    assert ROWS.check("json:loads", {"anything": [1]}) == {"anything": [1]}


def test_rows_are_ordered():
    assert ROWS.names() == ("resnet-18", "nn-2")
    assert len([*ROWS]) == 2
    assert "nn-2" in ROWS
    assert "nn2" not in ROWS


def test_load_object_imports_nested_names():
    assert load_object("json:decoder.JSONDecoder").__name__ == "JSONDecoder"


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("json", ValueError, "'package.module:function'"),
        ("json:", ValueError, "'package.module:function'"),
        ("json:load_s", UnknownNameError, "Did you mean 'loads'?"),
        ("jsonn:loads", UnknownNameError, "neither installed nor in the current"),
        ("json.nowhere:loads", UnknownNameError, "'json.nowhere'"),
    ],
)
def test_load_object_says_what_is_missing(path, error, words):
    with pytest.raises(error, match=words):
        load_object(path)


def test_load_object_finds_modules_in_the_current_folder(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def network(): return 'mine'\n")
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    program = (
        "import sys; sys.path = [p for p in sys.path if p]\n"
        "from adadecay.lab.registry import load_object\n"
        "print(load_object('mine:network')())\n"
        "try: load_object('broken:network')\n"
        "except ModuleNotFoundError as error: print(error.name)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["mine", "nowhere_at_all"]
