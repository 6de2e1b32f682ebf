"""Ray, found or started.

In: an address, or none. Out: a :class:`Link` that is to be closed. Without an address
everything stays on loopback, without dashboard and without usage statistics, and ends
with the link.
"""

import contextlib
import logging
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adadecay.lab.engines import EngineError, Settings
from adadecay.lab.engines.cluster.head import AGAIN, greet
from adadecay.lab.engines.cluster.parcels import pack_modules
from adadecay.lab.engines.cluster.places import Need
from adadecay.lab.engines.local import default_workers
from adadecay.lab.sources import LIVE

__all__ = ["Link", "connect", "import_ray", "loopback_allowed"]

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Link:
    """A connection to Ray.

    Args:
        head: address of Ray's head.
        owned: whether this Ray was started here, so that it shares this disk.
        close: lets go of it.
    """

    head: str
    owned: bool
    close: Callable[[], None]


def import_ray() -> Any:
    """Return the module ray, or say what to install."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when it is imported
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise EngineError(
            "The engine 'ray' needs Ray, which is not installed: "
            "pip install 'adadecay[ray]'"
        ) from None
    return ray


def connect(
    ray: Any,
    address: str | None,
    settings: Settings,
    workers: int | None,
    need: Need,
    names: Iterable[str],
) -> Link:
    """Join a cluster, or start a Ray of our own."""
    own = sorted(set(names))
    if any(name.startswith(f"{LIVE}:") for name in own):
        raise EngineError(
            f"{own[0]!r} was defined in a notebook and exists only there: write it to "
            f"a module for --engine ray, or run with --workers 0."
        )
    if ray.is_initialized():  # by the caller, who also ends it
        return Link(ray.get_runtime_context().gcs_address, False, lambda: None)
    variables = {"OMP_NUM_THREADS": str(settings.threads)}
    options: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    with _signals_kept():
        if address is None:
            slots = workers or _places_here(settings, need)
            options |= _alone(slots, need, settings)
            # The same disk: whatever can be imported here can be imported there.
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            _start(ray, {"env_vars": variables}, options)
        else:
            _join(ray, address, variables, own, options)
    return Link(ray.get_runtime_context().gcs_address, address is None, ray.shutdown)


def _start(ray: Any, environment: dict[str, Any], options: dict[str, Any]) -> None:
    try:
        with loopback_allowed():
            ray.init(runtime_env=environment, **options)
    except Exception as error:  # Ray raises no narrower one for a start that takes long
        raise EngineError(
            f"Ray could not be started on this machine: {_first_line(error)} {AGAIN}.",
            status=1,
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def loopback_allowed() -> Iterator[None]:
    """Let Ray listen on loopback and nowhere else.

    On Linux it takes 127.0.0.1 for a mistake and listens on every interface instead,
    unless this switch is off, which it is on other systems.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _places_here(settings: Settings, need: Need) -> int:
    threads = math.ceil(need.cpus or settings.threads)
    return default_workers(device=settings.device, threads=threads)


def _alone(slots: int, need: Need, settings: Settings) -> dict[str, Any]:
    cpus = math.ceil(slots * (need.cpus or settings.threads))
    return {"address": "local", "num_cpus": cpus, "_node_ip_address": LOOPBACK}


def _join(
    ray: Any,
    address: str,
    variables: dict[str, str],
    own: list[str],
    options: dict[str, Any],
) -> None:
    if address.startswith("ray://"):
        raise EngineError(
            f"{address} is an address for Ray's client, over which results cannot be "
            f"streamed: run the command on a node of the cluster with --address auto."
        )
    options = {key: options[key] for key in ("log_to_driver", "logging_level")}
    host, _, port = _find(address).rpartition(":")
    _require_reachable(address, host, port)
    if host.startswith("127."):
        options["_node_ip_address"] = host
    environment: dict[str, Any] = {"env_vars": variables}
    with tempfile.TemporaryDirectory(prefix="adadecay-") as folder:
        if pack_modules(own, Path(folder)):
            environment["working_dir"] = folder  # sent by init, so it may go then
        try:
            ray.init(address=address, runtime_env=environment, **options)
        except (ConnectionError, ray.exceptions.RayError, ValueError) as error:
            raise EngineError(
                f"No Ray cluster at {address}: {_first_line(error)}. If it asks for a "
                f"token, set RAY_AUTH_MODE=token."
            ) from error


def _find(address: str) -> str:
    """Return HOST:PORT for what Ray calls ``auto``, or for what is that already."""
    from ray._private import services

    try:
        return str(services.canonicalize_bootstrap_address(address))
    except (ConnectionError, ValueError) as error:
        raise EngineError(f"--address {address}: {_first_line(error)}") from error


def _require_reachable(address: str, host: str, port: str) -> None:
    """Fail in seconds where Ray would try for a quarter of an hour."""
    if not (host and port.isdigit()):
        raise EngineError(f"--address {address}: must be HOST:PORT, or auto.")
    try:
        greet(host, int(port))
    except OSError as error:
        raise EngineError(
            f"No Ray cluster at {address}: {error.strerror or error}. Its head is "
            f"started with: ray start --head --port {port}"
        ) from error


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the caller's SIGTERM handler, which ray.init would replace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
