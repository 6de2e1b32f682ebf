"""What is not a dataset's file, in the place of one: named, kept, and no traceback."""

import io
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from small_sets import good, idx_files, idx_item, put, random_arrays, serving
from typer.testing import CliRunner

from adadecay import commands
from adadecay.commands import data
from adadecay.lab.datasets import DatasetError, catalog
from adadecay.lab.datasets.cache import file_of, verify
from adadecay.lab.datasets.catalog import Part, joint_digest
from adadecay.lab.datasets.download import Progress
from adadecay.lab.datasets.fetch import obtain

QUIET = Progress(quiet=True)
STUDY = """\
cells = [{ dataset = "mnist", network = "nn-2" }]
optimizers = ["sgd"]
trials = 1
epochs = 1
"""


def _folder(path):
    path.mkdir()
    (path / "mine").write_text("mine")


def _loop(path):
    path.symlink_to(path.name)


KINDS = {"folder": _folder, "loop": _loop}


def _invoke(app, *words):
    told = CliRunner().invoke(app, list(words))
    assert told.exception is None or isinstance(told.exception, SystemExit), words
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_named_by_every_command(kind, cache, tmp_path):
    cache.mkdir()
    path = file_of("mnist", cache)
    KINDS[kind](path)
    listed = _invoke(data.app, "list")
    assert listed.exit_code == 0
    [line] = [x for x in listed.output.splitlines() if x.startswith("mnist ")]
    assert str(path) in line
    assert "move it away" in line
    (tmp_path / "study.toml").write_text(STUDY)
    results = ("--results", str(tmp_path / "results"), "--workers", "0")
    for app, words in [
        (data.app, ("verify",)),
        (data.app, ("verify", "mnist")),
        (data.app, ("fetch", "mnist", "--offline")),
        (commands.app, ("run", str(tmp_path / "study.toml"), *results)),
    ]:
        told = _invoke(app, *words)
        assert told.exit_code == 1, words
        assert f"{path} cannot be read" in told.output, words
        assert "move it away, or name another folder in ADADECAY_DATA" in told.output
    assert os.path.lexists(path)
    if kind == "folder":
        assert (path / "mine").read_text() == "mine"


def _break(kind, path):
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path)


@pytest.mark.parametrize("file", ["tiny.lock", ".", "tiny.npy"])
@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_a_cache_that_cannot_be_used_is_one_sentence(kind, file, cache, tmp_path):
    named = put(tmp_path / "named", idx_files(random_arrays()))
    if file == "." and kind == "folder":
        cache.write_text("a file")
    else:
        _break(kind, cache / file)
    if (kind, file) == ("loop", "tiny.npy"):  # nothing is lost with a loop
        verify(obtain(idx_item(), folder=named, progress=QUIET), idx_item().parts)
        return
    with pytest.raises(DatasetError) as caught:
        obtain(idx_item(), folder=named, progress=QUIET)
    assert str(cache / file) in str(caught.value)
    assert "ADADECAY_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)


def _written(parts):
    """A cache file of these parts without its arrays."""
    file = io.BytesIO()
    fields = [("digest", "S64"), ("source", "S256")]
    fields += [(name, "|u1", parts[name].shape) for name in sorted(parts)]
    header = {"descr": fields, "fortran_order": False, "shape": ()}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + joint_digest(parts).encode()


FOREIGN = {
    "nothing": b"",
    "text": b"my notes\n" * 100,
    "another dataset": _written({"pixels": Part((100,), "0")}) + bytes(400),
    "nested": b"\x93NUMPY\x01\x00\x00\x20" + b"[" * 200_000,
    "no arrays": _written(idx_item().parts),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_content_is_set_aside_and_the_dataset_fetched(content, cache):
    path = file_of("tiny", cache)
    put(cache, {path.name: content})
    aside = path.with_suffix(".damaged")
    with pytest.raises(DatasetError, match=str(aside)):
        obtain(idx_item(), offline=True, progress=QUIET)
    assert aside.read_bytes() == content
    put(cache, {path.name: content})
    with serving(good(random_arrays())) as server:
        item = idx_item(server.url)
        verify(obtain(item, progress=QUIET), item.parts)
    assert aside.read_bytes() == content


def test_where_data_came_from_is_shown_without_being_obeyed(cache, monkeypatch):
    item = idx_item()
    monkeypatch.setattr(catalog, "CATALOG", {**catalog.CATALOG, "mnist": item})
    named = put(cache / "named", idx_files(random_arrays()))
    path = obtain(item, folder=named, progress=QUIET)
    text = path.read_bytes()
    place = text.index(b"folder ")
    path.write_bytes(text[:place] + b"\x1b[31m \xff" + text[place + 7 :])
    path.replace(file_of("mnist", cache))
    told = _invoke(data.app, "verify", "mnist")
    assert told.exit_code == 0, told.output
    assert "mnist: OK" in told.output
    assert "\x1b" not in told.output


SCRIPT = """
import resource, sys
from pathlib import Path
from small_sets import idx_item
from adadecay.lab.datasets import DatasetError
from adadecay.lab.datasets.fetch import obtain
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    obtain(idx_item(), folder=sys.argv[1], cache=Path(sys.argv[2]))
except DatasetError as error:
    print(error)
"""


def test_a_disk_that_is_full_is_one_sentence(tmp_path):
    named = put(tmp_path / "named", idx_files(random_arrays()))
    command = [sys.executable, "-c", SCRIPT, str(named), str(tmp_path / "cache")]
    here = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=here, check=True)
    assert str(tmp_path / "cache") in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "cannot be written" in done.stdout
