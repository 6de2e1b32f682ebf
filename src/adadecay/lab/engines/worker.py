"""The other end of the local engine's pipe: a process that runs job after job.

In: jobs, and the wish to stop, over a pipe. Out: events, over the same pipe. A worker
never outlives its driver: a thread waits for the pipe to close, and on Linux the kernel
kills it when its parent dies, even within a long computation.
"""

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Final

import torch  # here, so that the process from which all workers fork has it loaded

from adadecay.lab.engines import Job, Lost, Settings
from adadecay.lab.engines.run_trial import run_trial

__all__ = ["STOP", "work"]

STOP: Final = "stop"
PR_SET_PDEATHSIG: Final = 1
GONE: Final = 3  # exit status when the driver is gone
# The first optimizer that is made loads torch's compiler, which takes a second: once,
# before the workers fork, rather than in each of them.
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def work(
    connection: "Connection[object, object]", number: int, settings: Settings
) -> None:
    """Run the jobs that come over a pipe until it closes.

    Args:
        connection: this worker's end of the pipe.
        number: which worker this is, from 0.
        settings: device, threads and how often to save.
    """
    _die_with_parent()
    # Ctrl-C reaches the whole terminal; only the driver acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(settings.threads)
    # The process that it was forked from may have been started for another number.
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    stopping = threading.Event()
    listener = threading.Thread(
        target=_listen, args=(connection, jobs, stopping), daemon=True
    )
    listener.start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            _run(jobs.get(), connection, number, settings, stopping)


def _run(
    job: Job,
    connection: "Connection[object, object]",
    number: int,
    settings: Settings,
    stopping: threading.Event,
) -> None:
    for event in run_trial(job, settings, worker=number, stopping=stopping.is_set):
        connection.send(event)
        if isinstance(event, Lost):
            os._exit(GONE)  # memory ran out: give all of it back
    sys.stdout.flush()


def _listen(
    connection: "Connection[object, object]",
    jobs: "queue.SimpleQueue[Job]",
    stopping: threading.Event,
) -> None:
    """Pass on what comes; the end of the pipe is the end of the driver."""
    try:
        while True:
            message = connection.recv()
            if isinstance(message, Job):
                jobs.put(message)
            else:
                stopping.set()
    except (EOFError, OSError):
        os._exit(GONE)


def _die_with_parent() -> None:
    """Have the kernel end us, for a thread cannot while a computation holds the GIL."""
    # The process that we were forked from is our parent, and it lives as long as
    # anyone holds this pipe: we let go, so that it ends with the driver.
    server = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
