"""The cache: mapped, complete or absent, and found out when it was tampered with."""

import io
import time
from dataclasses import replace

import numpy as np
import pytest
from small_sets import idx_item, random_arrays

from adadecay.lab.datasets.cache import (
    cache_folder,
    file_of,
    open_arrays,
    verify,
    write,
)
from adadecay.lab.datasets.catalog import BadDataError

ARRAYS, ITEM = random_arrays(), idx_item()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tiny.npy"
    write(path, ARRAYS, ITEM.parts, "here")
    return path


def test_arrays_come_back_as_they_were(path):
    arrays, source = open_arrays(path, ITEM.parts)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert source == "here"
    assert verify(path, ITEM.parts) == source


def test_arrays_are_mapped_not_read(path):
    arrays, _ = open_arrays(path, ITEM.parts)
    base = arrays["train_images"]
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)


def test_writing_into_an_array_does_not_reach_the_file(path):
    before = path.read_bytes()
    arrays, _ = open_arrays(path, ITEM.parts)
    arrays["train_images"][:] = 0
    del arrays
    assert path.read_bytes() == before
    verify(path, ITEM.parts)


def test_numpy_reads_the_same_file(path):
    record = np.load(path, mmap_mode="r")
    np.testing.assert_array_equal(record["train_images"], ARRAYS["train_images"])


def test_every_truncation_is_found_on_opening(path):
    data = path.read_bytes()
    for length in (0, 4, 8, 50, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(BadDataError):
            open_arrays(path, ITEM.parts)
    path.write_bytes(data + b"\0")
    with pytest.raises(BadDataError):
        open_arrays(path, ITEM.parts)


def test_a_swapped_dataset_is_found_on_opening(path):
    with pytest.raises(BadDataError, match="other data"):
        open_arrays(path, idx_item(seed=1).parts)


def header(**changes):
    fields = {"descr": "|u1", "fortran_order": False, "shape": (4,)} | changes
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


STRANGE = {
    "another array": header(),
    "objects": header(descr="|O"),
    "an endless array": header(shape=(1 << 62,)),
    "an archive": b"PK\x03\x04" + bytes(2000),
    "nested": b"\x93NUMPY\x01\x00\x00\x20" + b"[" * 8192,
    "no dictionary": b"\x93NUMPY\x01\x00\x02\x00[]",
    "a later version": b"\x93NUMPY\x09\x00" + bytes(2000),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_header_is_refused(path, kind):
    path.write_bytes(STRANGE[kind] + bytes(2000))
    with pytest.raises(BadDataError):
        open_arrays(path, ITEM.parts)


@pytest.mark.parametrize(
    ("name", "shape"), [("train_images", (40, 5, 6)), ("pictures", (40, 6, 5))]
)
def test_arrays_of_other_shapes_or_names_are_refused(path, name, shape):
    changed = {key: part for key, part in ITEM.parts.items() if key != "train_images"}
    changed[name] = replace(ITEM.parts["train_images"], shape=shape)
    write(path, ARRAYS | {name: ARRAYS["train_images"].reshape(shape)}, changed, "here")
    with pytest.raises(BadDataError, match="other data"):
        open_arrays(path, ITEM.parts)


def test_one_altered_bit_is_found_by_verify(path):
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))
    open_arrays(path, ITEM.parts)  # sizes and header are right
    with pytest.raises(BadDataError, match="SHA-256"):
        verify(path, ITEM.parts)


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ADADECAY_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("ADADECAY_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert "adadecay" in cache_folder().parts
    assert file_of("mnist", tmp_path).parent == tmp_path


def test_opening_reads_a_small_part_of_the_real_file(real):
    """Counted in bytes, since a clock is no judge on a busy machine."""
    from adadecay.lab.datasets.catalog import CATALOG

    real("cifar-10")
    path = file_of("cifar-10", cache_folder())
    faults = _faults()
    start = time.perf_counter()
    arrays, _ = open_arrays(path, CATALOG["cifar-10"].parts)
    print(f"opened in {1e3 * (time.perf_counter() - start):.2f} ms")
    assert arrays["train_images"].nbytes == 153_600_000
    # 153.6 MB in pages of 4 KiB would be 37,500 faults (fewer if read ahead).
    assert _faults() - faults < 300


def _faults() -> int:
    resource = pytest.importorskip("resource")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt
