"""``adadecay data``: what it prints, and the status it leaves."""

import pytest
from small_sets import good, idx_files, idx_item, put, random_arrays, serving
from typer.testing import CliRunner

from adadecay.commands.data import app
from adadecay.lab.datasets import DATASETS, catalog
from adadecay.lab.datasets.cache import file_of
from adadecay.lab.registry import Entry, Registry

ARRAYS = random_arrays()
CATALOG = catalog.CATALOG


@pytest.fixture
def run(cache, monkeypatch):
    """The command with one more dataset, small and served on loopback."""
    from adadecay.lab import datasets

    def call(*words, url="http://127.0.0.1:9/"):
        item = idx_item(url)
        facts = {"train": 40, "test": 10, "bytes": item.size}
        entry = Entry("tiny", "nowhere:at_all", facts=facts)
        known = {**CATALOG, "tiny": item}
        monkeypatch.setattr(catalog, "CATALOG", known)
        known = Registry("dataset", [*DATASETS, entry])
        monkeypatch.setattr(datasets, "DATASETS", known)
        return CliRunner().invoke(app, list(words))

    return call


def test_list_shows_sizes_states_and_places(run, cache, tmp_path):
    before = run("list")
    assert before.exit_code == 0
    lines = {line.split()[0]: line for line in before.stdout.splitlines()}
    for name in DATASETS.names():
        assert name in lines
    assert "60,000 + 10,000" in lines["mnist"]
    assert "184.4 MB" in lines["cifar-10"]
    assert "absent" in lines["tiny"]
    assert "embedded" in lines["digits"]
    assert str(cache) in before.stdout
    assert "ADADECAY_DATA" in before.stdout
    run("fetch", "tiny", "--folder", str(put(tmp_path / "named", idx_files(ARRAYS))))
    path = file_of("tiny", cache)
    assert f"cached    {path}" in run("list").stdout
    path.write_bytes(path.read_bytes()[:-1])
    assert "damaged" in run("list").stdout


def test_fetch_then_verify_then_damage(run, cache):
    with serving(good(ARRAYS)) as server:
        fetched = run("fetch", "tiny", "digits", "tiny", url=server.url)
        assert sum(server.asked.values()) == 4
    path = file_of("tiny", cache)
    assert fetched.exit_code == 0
    assert f"tiny: ready, in {path}" in fetched.stdout
    sound = run("verify")
    assert sound.exit_code == 0
    assert f"tiny: OK, {path} (from official {server.url})" in sound.stdout
    assert "digits: OK" in sound.stdout
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    damaged = run("verify", "tiny")
    assert damaged.exit_code == 1
    assert f"DAMAGED, moved to {path.with_suffix('.damaged')}" in damaged.stdout
    assert "adadecay data fetch tiny" in damaged.stderr
    assert not path.exists()
    assert run("verify", "tiny").exit_code == 1


def test_what_cannot_be_had_is_told_and_ends_in_1(run):
    result = run("fetch", "tiny", "digits", "--offline")
    assert result.exit_code == 1
    assert "skipped (offline)" in result.stderr
    assert "could not fetch tiny" in result.stderr
    assert "digits: ready" in result.stdout  # one failure does not stop the rest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fetch", "mnits"], "Did you mean 'mnist'? Allowed: mnist, "),
        (["verify", "mnits"], "Did you mean 'mnist'?"),
        (["fetch", "own.data"], "Unknown dataset 'own.data'. Allowed: "),
        (["fetch", "package.module:function"], "your own dataset"),
        (["fetch"], "Missing argument"),
    ],
)
def test_wrong_input_ends_in_2_with_one_message(run, words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "as module:function" not in result.stderr  # nothing to fetch there
    assert "Traceback" not in result.output
