"""HTTP against servers that are slow, broken, lying or vanishing."""

import gzip
import hashlib
import threading

import numpy as np
import pytest
from small_sets import (
    cifar_archive,
    cifar_item,
    good,
    idx_item,
    random_arrays,
    send,
    serving,
)

from adadecay.lab.datasets import BadDataError, DatasetError
from adadecay.lab.datasets import download as downloading
from adadecay.lab.datasets.cache import open_arrays
from adadecay.lab.datasets.download import Progress, download
from adadecay.lab.datasets.fetch import obtain

QUIET = Progress(quiet=True)
ARRAYS = random_arrays()
FIRST = "/t10k-labels-idx1-ubyte.gz"
LARGE = "/train-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nobody waits for silence, and neither npm nor apt-get is there."""
    monkeypatch.setattr(downloading, "TIMEOUTS", (1.0, 0.5))
    monkeypatch.setenv("PATH", "")


def fetch(item, cache):
    return obtain(item, cache=cache, progress=QUIET)


def assert_holds(path, item, arrays):
    found, _ = open_arrays(path, item.parts)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def assert_nothing_left(cache):
    assert [path.name for path in cache.iterdir()] == ["tiny.lock"]


def refused(answers, cache, item=idx_item):
    """Ask only a bad server; return the message, and see that nothing stays."""
    with serving(answers) as server, pytest.raises(DatasetError) as caught:
        fetch(item(server.url), cache)
    assert_nothing_left(cache)
    return str(caught.value)


def test_a_good_server_is_asked_once_for_each_file_small_ones_first(cache):
    with serving(good(ARRAYS)) as server:
        item = idx_item(server.url)
        path = fetch(item, cache)
        assert_holds(path, item, ARRAYS)
        assert list(server.asked.values()) == [1, 1, 1, 1]
        assert list(server.asked)[:2] == [FIRST, FIRST.replace("t10k", "train")]
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.lock", "tiny.npy"]


def test_an_archive_is_fetched_and_read(cache):
    arrays = random_arrays((32, 32, 3))
    with serving({"/tiny-binary.tar.gz": cifar_archive(arrays)}) as server:
        item = cifar_item(server.url)
        assert_holds(fetch(item, cache), item, arrays)


def test_slow_silence_before_and_within_the_answer(cache):
    release = threading.Event()

    def silent(handler):
        release.wait(20)

    def stalled(handler):
        send(handler, b"\x1f\x8b", promise=2000)
        release.wait(20)

    try:
        assert "Read timed out" in refused({"*": silent}, cache)
        assert "Read timed out" in refused({"*": stalled}, cache)
    finally:
        release.set()


def halved(handler):
    data = good(ARRAYS)[handler.path]
    send(handler, data[: len(data) // 2], promise=len(data))


def test_broken_transfers_are_repeated(cache):
    answers = dict(good(ARRAYS))
    whole = answers[LARGE]
    calls = []

    def broken_once(handler):
        calls.append(1)
        halved(handler) if len(calls) == 1 else send(handler, whole)

    with serving({**answers, LARGE: broken_once}) as server:
        item = idx_item(server.url)
        assert_holds(fetch(item, cache), item, ARRAYS)
        assert server.asked[LARGE] == 2


def test_broken_for_ever(cache):
    assert "IncompleteRead" in refused({"*": halved}, cache)


def test_broken_without_a_promised_length(cache):
    """Nothing in HTTP tells that this answer is half of one; the hash does."""

    def cut(handler):
        data = good(ARRAYS)[handler.path]
        send(handler, data[: len(data) // 2], promise=-1)

    assert "not have the published SHA-256" in refused({"*": cut}, cache)


def test_broken_inside_the_server(cache):
    def fails(handler):
        handler.send_error(503)

    with serving({"*": fails}) as server, pytest.raises(DatasetError, match="503"):
        fetch(idx_item(server.url), cache)
    assert server.asked[FIRST] == 2  # once, and once again
    assert_nothing_left(cache)


POISONED = {**ARRAYS, "train_images": ARRAYS["train_images"] ^ np.uint8(1)}
LIES = {
    "a page": {"*": b"<html>Login"},
    "other data of the same shape": good(random_arrays(seed=1)),
    "the last file only": good(POISONED),
    "a gzip bomb": {"*": gzip.compress(bytes(10_000_000))},
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_servers_are_refused(lie, cache):
    assert "does not have the published SHA-256" in refused(LIES[lie], cache)


def vanish(handler):
    handler.server.shutdown()
    handler.server.server_close()


def vanish_after(handler):
    vanish(handler)
    send(handler, good(ARRAYS)[handler.path])


def vanish_within(handler):
    vanish(handler)
    halved(handler)


def vanish_before(handler):
    vanish(handler)
    handler.connection.close()


@pytest.mark.parametrize("moment", [vanish_before, vanish_within, vanish_after])
def test_vanishing(moment, cache):
    message = refused({**good(ARRAYS), FIRST: moment}, cache)
    assert "the transfer failed" in message


BAD = {
    "broken": {"*": halved},
    "lying": good(random_arrays(seed=1)),
    "vanishing": {"*": vanish_within},
    "missing": {},
}


@pytest.mark.parametrize("kind", BAD)
def test_the_next_mirror_serves_where_the_first_fails(kind, cache):
    with serving(BAD[kind]) as bad, serving(good(ARRAYS)) as fine:
        item = idx_item(bad.url, fine.url)
        path = fetch(item, cache)
        assert_holds(path, item, ARRAYS)
        assert bad.asked
        assert sum(fine.asked.values()) == 4
    _, source = open_arrays(path, item.parts)
    assert source == f"official {fine.url}"


def test_no_server_at_all(cache):
    with serving({}) as server:
        url = server.url
    with pytest.raises(DatasetError, match="Connection refused"):
        fetch(idx_item(url), cache)


def test_files_are_asked_for_as_they_are(tmp_path):
    data = gzip.compress(b"idx")

    def plain(handler):
        assert handler.headers["Accept-Encoding"] == "identity"
        send(handler, data)

    with serving({"/file.gz": plain}) as server:
        known = hashlib.sha256(data).hexdigest()
        path = download(f"{server.url}file.gz", tmp_path, known, progress=QUIET)
    assert path.read_bytes() == data


def test_a_failed_download_leaves_no_file(tmp_path):
    with (
        serving({"*": bytes(200)}) as server,
        pytest.raises(BadDataError, match="not have the published SHA-256"),
    ):
        download(f"{server.url}x", tmp_path, "0" * 64, progress=QUIET)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown_on_a_terminal_and_told_elsewhere(tmp_path):
    from io import StringIO

    from rich.console import Console

    known = hashlib.sha256(bytes(3_000_000)).hexdigest()
    for terminal in (True, False):
        screen = StringIO()
        console = Console(file=screen, force_terminal=terminal, width=200)
        with serving({"/file": bytes(3_000_000)}) as server:
            folder = tmp_path / str(terminal)
            download(f"{server.url}file", folder, known, progress=Progress(console))
        text = screen.getvalue()
        assert "/file" in text
        assert ("3.0/3.0 MB" in text) == terminal
        assert ("\x1b[" in text) == terminal  # a moving bar needs control codes
