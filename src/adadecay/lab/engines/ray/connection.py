"""Ray, found or started: the connection, its head, and what its nodes have room for.

In: an address, or none, and what the study says a trial needs. Out: a
:class:`Connection` that is to be closed. Without an address everything stays on
loopback, without dashboard and without usage statistics, and ends with the connection.
"""

import contextlib
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adadecay.extras import install_command
from adadecay.lab.engines import EngineError, Settings
from adadecay.lab.engines.local import default_workers
from adadecay.lab.engines.ray.task import pack_modules
from adadecay.lab.usercode import LIVE

__all__ = ["Connection", "Heartbeat", "Need", "connect", "import_ray"]

LOOPBACK: Final = "127.0.0.1"
GLANCE: Final = 5.0  # seconds between looks at Ray's head
PATIENCE: Final = 30.0  # seconds that it may be away; Ray itself gives up after 60
AGAIN: Final = "Nothing that was finished is lost: give the same command again to go on"


@dataclass(frozen=True)
class Connection:
    """A connection to Ray.

    Args:
        head: address of Ray's head.
        owned: whether this Ray was started here, so that it shares this disk.
        close: lets go of it.
    """

    head: str
    owned: bool
    close: Callable[[], None]


@dataclass(frozen=True)
class Need:
    """What one trial takes of a node.

    Args:
        cpus: CPUs; by default as many as it has threads.
        gpus: GPUs or a share of one; by default one where the cluster has any and the
            device is not ``cpu``.
    """

    cpus: float | None = None
    gpus: float | None = None


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
            + install_command("ray")
        ) from None
    return ray


def connect(
    ray: Any,
    address: str | None,
    settings: Settings,
    workers: int | None,
    need: Need,
    names: Iterable[str],
) -> Connection:
    """Join a cluster, or start a Ray of our own."""
    own = sorted(set(names))
    if any(name.startswith(f"{LIVE}:") for name in own):
        raise EngineError(
            f"{own[0]!r} was defined in a notebook and exists only there: write it to "
            f"a module for --engine ray, or run with --workers 0."
        )
    if ray.is_initialized():  # by the caller, who also ends it
        return Connection(ray.get_runtime_context().gcs_address, False, lambda: None)
    variables = {"OMP_NUM_THREADS": str(settings.threads)}
    options: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    with _signals_kept():
        if address is None:
            slots = workers or _room_here(settings, need)
            options |= _alone(slots, need, settings)
            # The same disk: whatever can be imported here can be imported there.
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            _start(ray, {"env_vars": variables}, options)
        else:
            _join(ray, address, variables, own, options)
    head = ray.get_runtime_context().gcs_address
    return Connection(head, address is None, ray.shutdown)


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


def _room_here(settings: Settings, need: Need) -> int:
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
        check_port(host, int(port))
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


def check_port(host: str, port: int) -> None:
    """Raise OSError if nobody listens there."""
    with socket.create_connection((host, port), timeout=5):
        pass


class Heartbeat:
    """Notices that Ray's head is gone before Ray ends this process over it.

    Args:
        address: of the head.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._place = host, int(port)
        self._looked = self._seen = time.monotonic()

    def answers(self) -> bool:
        """Whether the head can be reached now."""
        try:
            check_port(*self._place)
        except OSError:
            return False
        return True

    def check(self) -> None:
        """Raise EngineError when the head has not answered for a while."""
        now = time.monotonic()
        if now - self._looked < GLANCE:
            return
        self._looked = now
        if self.answers():
            self._seen = now
        if now - self._seen > PATIENCE:
            raise EngineError(
                f"Ray's head at {self.address} has not answered for "
                f"{now - self._seen:.0f} s. {AGAIN}.",
                status=1,
            )


def choose_need(ray: Any, need: Need, settings: Settings) -> Need:
    """Fill in what the study leaves open."""
    cpus = float(settings.threads) if need.cpus is None else need.cpus
    gpus = need.gpus
    if gpus is None:
        has = ray.cluster_resources().get("GPU", 0) > 0
        wants = settings.device == "cuda" or (settings.device == "auto" and has)
        gpus = 1.0 if wants else 0.0
    if settings.device == "cuda" and not gpus:
        raise EngineError("device = 'cuda' needs resources.gpus above 0, and it is 0.")
    return Need(cpus, 0.0 if settings.device == "cpu" else gpus)


def count_slots(ray: Any, need: Need) -> int:
    """Return how many trials the living nodes have room for, at least 1."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return max(1, sum(room(node, need) for node in nodes))


def room(resources: dict[str, float], need: Need) -> int:
    """Return how many trials fit on a node with these resources."""
    wanted = {"CPU": need.cpus or 0.0, "GPU": need.gpus or 0.0}
    fits = [
        math.floor(resources.get(kind, 0.0) / amount + 1e-9)
        for kind, amount in wanted.items()
        if amount
    ]
    return min(fits, default=0)


def require_room(ray: Any, need: Need) -> None:
    """Refuse to wait forever for a node that does not exist."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(room(node, need) for node in nodes):
        raise EngineError(
            f"No node of the cluster has {need.cpus:g} CPUs and {need.gpus:g} GPUs for "
            f"a trial. Change resources in the study; or, where an autoscaler starts "
            f"nodes on demand, give --workers."
        )
