"""Files out of folders and archives, never more than was asked for.

Flows in: a folder, a tar archive or a Debian package, and the file names that are
wanted. Flows out: their bytes. Names inside an archive are only compared, never used as
paths, so that nothing is written outside the folder that the caller gives.
"""

import gzip
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterable
from lzma import LZMAError
from pathlib import Path, PurePosixPath

from adadecay.lab.datasets.formats import Files
from adadecay.lab.datasets.parts import BadDataError

__all__ = ["files_in", "holds", "unpack", "unzipped"]

_AR_MAGIC = b"!<arch>\n"
_DPKG_SECONDS = 120


def holds(folder: Path, names: Iterable[str]) -> bool:
    """Whether ``folder`` has every name, as it is or with ``.gz``."""
    return all(_find(folder, name) is not None for name in names)


def files_in(folder: Path) -> Files:
    """Return a reader of the files in ``folder``, each as it is or with ``.gz``."""

    def read(name: str, limit: int) -> bytes:
        path = _find(folder, name)
        if path is None:
            raise BadDataError(f"{name} is not in {folder}")
        return unzipped(path, limit)

    return read


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / name, folder / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def unzipped(path: Path, limit: int) -> bytes:
    """Return the contents of ``path``, gunzipped if need be; refuse over ``limit``."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if zipped:
                with gzip.open(file) as inner:
                    data = inner.read(limit + 1)
            else:
                data = file.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadDataError(f"{path.name} is a broken gzip file: {error}") from error
    if len(data) > limit:
        raise BadDataError(f"{path.name} holds more than the {limit} bytes it should")
    return data


def unpack(archive: Path, folder: Path, names: Iterable[str], *, limit: int) -> None:
    """Write the files called ``names`` from ``archive`` flat into ``folder``.

    Args:
        archive: a tar in any compression, or a .deb.
        folder: existing folder, the only place that is written to.
        names: base names that are wanted; each also counts with ``.gz`` behind it.
        limit: most bytes that one file may have.
    """
    wanted = {form for name in names for form in (name, f"{name}.gz")}
    with archive.open("rb") as file:
        is_package = file.read(len(_AR_MAGIC)) == _AR_MAGIC
    tar = _data_of(archive, folder) if is_package else archive
    try:
        with tarfile.open(tar, "r|*") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                if member.isreg() and name in wanted:
                    wanted.discard(name)  # a second one would replace the first
                    _write(members, member, folder / name, limit)
    except (tarfile.TarError, EOFError, zlib.error, LZMAError, OSError) as error:
        raise BadDataError(f"{archive.name} is no readable archive: {error}") from error


def _write(
    members: tarfile.TarFile, member: tarfile.TarInfo, path: Path, limit: int
) -> None:
    if member.size > limit:
        raise BadDataError(f"{member.name} has {member.size} bytes, over {limit}")
    source = members.extractfile(member)
    if source is None:  # cannot be: only regular files come here
        raise BadDataError(f"{member.name} is no file")
    with path.open("xb") as target:
        shutil.copyfileobj(source, target)


def _data_of(package: Path, folder: Path) -> Path:
    """Cut the data archive out of a .deb, which is an ar archive."""
    with package.open("rb") as file:
        file.seek(len(_AR_MAGIC))
        while header := file.read(60):
            name, size = header[:16].decode("ascii", "replace").strip(), header[48:58]
            if len(header) < 60 or not size.strip().isdigit():
                raise BadDataError(f"{package.name} is a broken Debian package")
            length = int(size)
            if name.startswith("data.tar"):
                if name.rstrip("/").endswith(".zst"):
                    return _data_by_dpkg(package, folder)
                target = folder / "data.tar"
                with target.open("xb") as out:
                    out.write(file.read(length))
                return target
            file.seek(length + length % 2, 1)
    raise BadDataError(f"{package.name} has no data archive")


def _data_by_dpkg(package: Path, folder: Path) -> Path:
    """Let dpkg-deb decompress what Python before 3.14 cannot (zstandard, Ubuntu)."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise BadDataError(f"{package.name} needs dpkg-deb to be decompressed")
    target = folder / "data.tar"
    with target.open("xb") as out:
        done = subprocess.run(
            [program, "--fsys-tarfile", str(package.resolve())],
            stdout=out,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=_DPKG_SECONDS,
            check=False,
        )
    if done.returncode:
        raise BadDataError(f"dpkg-deb cannot read {package.name}")
    return target
