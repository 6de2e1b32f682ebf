"""Decoding: every published form gives the same arrays, and hostile files give none."""

import io
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from PIL import Image
from small_sets import (
    binary_files,
    cifar_item,
    deb_of,
    idx_files,
    idx_item,
    png_files,
    put,
    random_arrays,
    tar_of,
)

from adadecay.lab.datasets.cache import digest
from adadecay.lab.datasets.catalog import BadDataError
from adadecay.lab.datasets.formats import FORMATS, decode, unpack

GREY, COLOUR = random_arrays(), random_arrays((32, 32, 3))
FORMS = {
    "idx": ("idx", idx_files, GREY, idx_item),
    "binary": ("cifar-binary", binary_files, COLOUR, cifar_item),
    "png": ("cifar-png", png_files, COLOUR, cifar_item),
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def test_every_form_gives_the_same_arrays(form, tmp_path):
    kind, write, arrays, item = form
    put(tmp_path, write(arrays))
    found = decode(kind, tmp_path, item().parts)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.uint8


def test_every_form_lists_the_names_it_reads(form):
    kind, write, arrays, _ = form
    assert sorted(write(arrays)) == sorted(FORMATS[kind].names)


def test_every_form_refuses_truncated_and_altered_files(form, tmp_path):
    kind, write, arrays, item = form
    files = write(arrays)
    for name, data in files.items():
        middle = len(data) // 2
        altered = bytearray(data)
        altered[middle] ^= 0x10
        wrongs = [data[:middle], b"", bytes(altered), b"\xff" * len(data)]
        if not name.endswith((".png", ".json")):  # where the last bytes carry nothing
            wrongs += [data[:-1], data + b"\0" * 4000]
        for wrong in wrongs:
            put(tmp_path, {**files, name: wrong})
            with pytest.raises(BadDataError):
                decode(kind, tmp_path, item().parts)


@pytest.mark.parametrize(
    ("size", "mode"), [((64, 32), "RGB"), ((1024, 2), "L"), ((1024, 2), "RGBA")]
)
def test_pictures_of_another_size_or_kind_are_refused(tmp_path, size, mode):
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, "PNG")
    files = {**png_files(COLOUR), "test_batch.png": buffer.getvalue()}
    with pytest.raises(BadDataError, match="cannot be read"):
        decode("cifar-png", put(tmp_path, files), cifar_item().parts)


@pytest.mark.parametrize("labels", [b"{}", b"[1, null]", b"[1e999]", b"[" * 100_000])
def test_labels_that_are_no_labels(tmp_path, labels):
    files = {**png_files(COLOUR), "test_lables.json": labels}
    with pytest.raises(BadDataError):
        decode("cifar-png", put(tmp_path, files), cifar_item().parts)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_tar_in_every_compression(tmp_path, mode):
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of({"one": b"1", "two.gz": b"2"}, mode=mode))
    out = put(tmp_path / "out", {})
    unpack(archive, out, ["one", "two"])
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {
        "one": b"1",
        "two.gz": b"2",
    }


def test_archives_are_unpacked_only_inside_their_folder(tmp_path):
    """Climbing, absolute, linked and doubled members, and devices."""
    outside = tmp_path / "outside"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("../../one", str(outside), "package/one", "x/../../two"):
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(name[-3:].encode()))
        for name, kind in {
            "package/three": tarfile.SYMTYPE,
            "package/four": tarfile.LNKTYPE,
            "package/five": tarfile.FIFOTYPE,
            "package/six": tarfile.DIRTYPE,
        }.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    archive = tmp_path / "a.tgz"
    archive.write_bytes(buffer.getvalue())
    out = put(tmp_path / "deep" / "out", {})
    before = set(tmp_path.rglob("*"))
    unpack(archive, out, ["one", "two", "three", "four", "five", "six"])
    new = set(tmp_path.rglob("*")) - before
    assert new == {out / "one", out / "two"}
    assert all(path.is_file() and not path.is_symlink() for path in new)
    assert not outside.exists()


@pytest.mark.parametrize("mode", ["w:xz", "w:gz", "w"])
def test_debian_packages(tmp_path, mode):
    inner = tar_of(idx_files(GREY, zipped=True), prefix="./usr/share/x/", mode=mode)
    members = {"debian-binary": b"2.0\n", "control.tar": b"odd", "data.tar": inner}
    deb = tmp_path / "a.deb"
    deb.write_bytes(deb_of(members))
    out = put(tmp_path / "out", {})
    unpack(deb, out, FORMATS["idx"].names)
    found = decode("idx", out, idx_item().parts)
    assert digest(found["train_images"]) == digest(GREY["train_images"])


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is missing")
def test_debian_packages_in_zstandard(tmp_path):
    put(tmp_path / "tree" / "usr", idx_files(GREY))
    control = (
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    put(tmp_path / "tree" / "DEBIAN", {"control": control.encode()})
    (tmp_path / "tree" / "DEBIAN").chmod(0o755)
    deb = tmp_path / "a.deb"
    command = ["dpkg-deb", "-Zzstd", "--build", str(tmp_path / "tree"), str(deb)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"this dpkg-deb writes no zstandard: {made.stderr}")
    assert b"data.tar.zst" in deb.read_bytes()
    out = put(tmp_path / "out", {})
    unpack(deb, out, FORMATS["idx"].names)
    decode("idx", out, idx_item().parts)


def test_broken_archives(tmp_path):
    tgz = tar_of({"one": np.random.default_rng(0).bytes(100_000)})
    inner = tar_of({"one": bytes(1000)}, mode="w:xz")
    deb = deb_of({"debian-binary": b"2.0\n", "data.tar.xz": inner})
    wrong = {
        "cut tar": tgz[: len(tgz) // 2],
        "page": b"<html>not found</html>",
        "empty": b"",
        "cut deb": deb[: len(deb) // 2],
        "deb without data": deb_of({"debian-binary": b"2.0\n"}),
        "deb with odd header": b"!<arch>\n" + b"x" * 60,
        "deb with short header": b"!<arch>\n" + b"x" * 30,
    }
    for name, data in wrong.items():
        archive = tmp_path / f"{name}.bin"
        archive.write_bytes(data)
        out = put(tmp_path / f"out {name}", {})
        with pytest.raises(BadDataError):
            unpack(archive, out, ["one"])
