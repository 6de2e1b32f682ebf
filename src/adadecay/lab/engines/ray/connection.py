"""Ray, found or started: the connection, its head, and what its nodes have room for."""

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
from adadecay.lab.engines import AGAIN, EngineDiedError, EngineError, Settings
from adadecay.lab.engines.local import default_workers
from adadecay.lab.engines.ray.task import pack_modules
from adadecay.lab.usercode import LIVE

LOOPBACK: Final = "127.0.0.1"
QUIET: Final = {"log_to_driver": False, "logging_level": logging.ERROR}
GLANCE: Final = 5.0  # seconds between looks at Ray's head
PATIENCE: Final = 30.0  # seconds that it may be away; Ray itself gives up after 60
RAYLET_DIED: Final = (
    "Ray's process on this machine (the raylet) died, and no trial can run without it. "
    + AGAIN
)


@dataclass(frozen=True)
class Connection:
    """A connection to Ray."""

    owned: bool  # whether this Ray was started here, so that it shares this disk
    close: Callable[[], None]  # lets go of it


@dataclass(frozen=True)
class Need:
    """What one trial takes of a node."""

    cpus: float | None = None  # as many as it has threads if None
    gpus: float | None = None  # a share too; one, where there are any and device ≠ cpu


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
        return Connection(False, lambda: None)
    variables = {"OMP_NUM_THREADS": str(settings.threads)}
    with _signals_kept():
        if address is None:
            _start(ray, settings, workers, need, variables)
        else:
            _join(ray, address, variables, own)
    return Connection(address is None, ray.shutdown)


def _start(
    ray: Any,
    settings: Settings,
    workers: int | None,
    need: Need,
    variables: dict[str, str],
) -> None:
    cpus = need.cpus or settings.threads
    slots = workers or default_workers(device=settings.device, threads=math.ceil(cpus))
    # The same disk: whatever can be imported here can be imported there.
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        with loopback_allowed():
            ray.init(
                address="local",
                num_cpus=math.ceil(slots * cpus),
                include_dashboard=False,
                runtime_env={"env_vars": variables},
                _node_ip_address=LOOPBACK,
                **QUIET,
            )
    except Exception as error:  # Ray raises no narrower one for a start that takes long
        raise EngineDiedError(
            f"Ray could not be started on this machine: {_first_line(error)} {AGAIN}"
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


def _join(ray: Any, address: str, variables: dict[str, str], own: list[str]) -> None:
    if address.startswith("ray://"):
        raise EngineError(
            f"{address} is an address for Ray's client, which cannot stream results: "
            f"run the command on a node of the cluster with --address auto."
        )
    options: dict[str, Any] = dict(QUIET)
    if address != "auto":
        host = _require_reachable(address)
        options |= {"_node_ip_address": host} if host.startswith("127.") else {}
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


def _require_reachable(address: str) -> str:
    """Fail in seconds where Ray would try for a quarter of an hour; return the host."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise EngineError(f"--address {address}: must be HOST:PORT, or auto.")
    try:
        check_port(host, int(port))
    except OSError as error:
        raise EngineError(
            f"No Ray cluster at {address}: {error.strerror or error}. Its head is "
            f"started with: ray start --head --port {port}"
        ) from error
    return host


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
    """Notices a lost head and a dead raylet, as Ray itself does late or never."""

    def __init__(self, ray: Any) -> None:
        here = ray.get_runtime_context()
        self._ray, self._node = ray, here.get_node_id()
        self.address = here.gcs_address
        host, _, port = self.address.rpartition(":")
        self._place = host, int(port)
        self._looked = self._seen = time.monotonic()

    def answers(self) -> bool:
        """Whether the head can be reached now."""
        with contextlib.suppress(OSError):
            check_port(*self._place)
            return True
        return False

    def check(self) -> None:
        """Raise EngineDiedError when the head is away for long, or the raylet died."""
        now = time.monotonic()
        if now - self._looked < GLANCE:
            return
        self._looked = now
        if self.answers():
            self._seen = now
            living = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
            if self._node not in living:
                raise EngineDiedError(RAYLET_DIED)
        if now - self._seen > PATIENCE:
            raise EngineDiedError(
                f"Ray's head at {self.address} has not answered for "
                f"{now - self._seen:.0f} s. {AGAIN}"
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
    """Return how many trials the living nodes have room for."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(room(node, need) for node in nodes)


def room(resources: dict[str, float], need: Need) -> int:
    """Return how many trials fit on a node with these resources."""
    wanted = {"CPU": need.cpus, "GPU": need.gpus}
    shares = [resources.get(kind, 0.0) / n for kind, n in wanted.items() if n]
    return math.floor(min(shares, default=0.0) + 1e-9)


def require_room(ray: Any, need: Need) -> None:
    """Refuse to wait forever for a node that does not exist."""
    if not count_slots(ray, need):
        raise EngineError(
            f"No node of the cluster has {need.cpus:g} CPUs and {need.gpus:g} GPUs for "
            f"a trial. Change resources in the study; or, where an autoscaler starts "
            f"nodes on demand, give --workers."
        )
