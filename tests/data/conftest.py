"""The real datasets, fetched at most once per run whatever the number of workers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from adadecay.lab.datasets import Dataset, DatasetError, load


@pytest.fixture(scope="session")
def real(tmp_path_factory, worker_id) -> Callable[[str], Dataset]:
    """Return a real dataset from the user's cache, or skip and say why."""
    base: Path = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def get(name: str) -> Dataset:
        note = shared / f"real-{name}.json"
        with FileLock(shared / f"real-{name}.lock"):
            if not note.exists():  # the first worker tries, and tells the others
                try:
                    load(name)
                    note.write_text("null")
                except DatasetError as error:
                    note.write_text(json.dumps(str(error)))
            reason = json.loads(note.read_text())
        if reason:
            pytest.skip(f"the real {name} cannot be had here: {reason}")
        return load(name, offline=True)

    return get


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ADADECAY_DATA", str(folder))
    return folder
