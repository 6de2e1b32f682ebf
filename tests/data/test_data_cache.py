"""The cache: mapped, complete or absent, and found out when it was tampered with."""

import json
import time

import numpy as np
import pytest
from small_sets import idx_item, random_arrays

from adadecay.lab.datasets.cache import (
    cache_folder,
    file_of,
    open_arrays,
    recorded,
    verify,
    write,
)
from adadecay.lab.datasets.parts import BadDataError

ARRAYS, ITEM = random_arrays(), idx_item()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tiny.safetensors"
    write(path, ARRAYS, {"sha256": recorded(ITEM.parts), "from": "here"})
    return path


def test_arrays_come_back_as_they_were(path):
    arrays, facts = open_arrays(path, ITEM.parts)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert facts["from"] == "here"
    assert verify(path, ITEM.parts) == facts


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


def test_safetensors_reads_the_same_file(path):
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(
        load_file(path)["train_images"], ARRAYS["train_images"]
    )


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


@pytest.mark.parametrize("header", [b"[]", b"not json", b'{"train_images": 3}', b"{}"])
def test_a_strange_header_is_refused(path, header):
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2000))
    with pytest.raises(BadDataError):
        open_arrays(path, ITEM.parts)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"dtype": "F32", "shape": [40, 6, 5], "data_offsets": [0, 1200]},
        {"dtype": "U8", "shape": [40, 5, 6], "data_offsets": [0, 1200]},
        {"dtype": "U8", "shape": [40, 6, 5], "data_offsets": [0, 1100]},
        {"dtype": "U8", "shape": [40, 6, 5], "data_offsets": [-1200, 0]},
        {"dtype": "U8", "shape": [40, 6, 5], "data_offsets": ["a", "b"]},
    ],
)
def test_a_header_that_points_elsewhere_is_refused(path, entry):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["train_images"] = entry
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(BadDataError):
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
    from adadecay.lab.datasets.catalog import CIFAR_10

    real("cifar-10")
    path = file_of("cifar-10", cache_folder())
    faults = _faults()
    start = time.perf_counter()
    arrays, _ = open_arrays(path, CIFAR_10.parts)
    print(f"opened in {1e3 * (time.perf_counter() - start):.2f} ms")
    assert arrays["train_images"].nbytes == 153_600_000
    # 153.6 MB in pages of 4 KiB would be 37,500 faults (fewer if read ahead).
    assert _faults() - faults < 300


def _faults() -> int:
    resource = pytest.importorskip("resource")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt
