"""What a worker does: one job from checkpoint to result, and job after job from a pipe.

A worker never outlives its driver: a thread waits for the pipe to close, and on Linux
the kernel kills it when its parent dies, even within a long computation.
"""

import contextlib
import ctypes
import os
import queue
import signal
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

import torch

import adadecay
from adadecay.lab.engines import (
    EngineError,
    EpochDone,
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Settings,
    Started,
    Stopped,
)
from adadecay.lab.files import Checkpoint
from adadecay.lab.provenance import environment
from adadecay.lab.training import Training, prepare

PACKAGE = Path(adadecay.__file__).parent
FRAMES = 6  # of a traceback: enough to see where, short enough to read
PR_SET_PDEATHSIG: Final = 1
GONE: Final = 3  # exit status when the driver is gone
KEEP = {-1: 2**31 - 1, -3: 2**25}  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
# The first optimizer that is made loads torch's compiler, which takes a second: once,
# before the workers fork, rather than in each of them.
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def choose_device(wanted: str, worker: int = 0) -> torch.device:
    """Return the device for a worker; several CUDA devices are dealt out in turn."""
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cuda" and not available:
        raise ValueError("device = 'cuda' needs a CUDA device, and torch sees none.")
    if wanted == "cpu" or not available:
        return torch.device("cpu")
    return torch.device("cuda", worker % available)


def run_trial(
    job: Job, settings: Settings, *, worker: int, stopping: Callable[[], bool]
) -> Iterator[Event]:
    """Run one job to its end, or until asked to stop."""
    try:
        yield from _run(job, settings, worker, stopping)
    except EngineError as error:
        yield Failed(job.trial.id, str(error), fatal=True)
    except Exception as error:
        if out_of_memory(error):
            yield Lost(job.trial.id, f"out of memory: {_first_line(error)}")
        else:
            reason = f"{type(error).__name__}: {_first_line(error)}"
            yield Failed(job.trial.id, reason, own_traceback(error))


def _run(
    job: Job, settings: Settings, worker: int, stopping: Callable[[], bool]
) -> Iterator[Event]:
    device = choose_device(settings.device, worker)
    others = {"compile": settings.compile, "cudnn_benchmark": settings.cudnn_benchmark}
    if torch.backends.cudnn.benchmark != settings.cudnn_benchmark:
        torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    training = prepare(job.trial.definition, device, compiled=settings.compile)
    here = environment(device=str(device), threads=settings.threads, **others)
    here["data"] = training.digest
    start, note = _go_on(training, job.checkpoint, here)
    yield Started(job.trial.id, worker, start, here, training.layers, note)
    saved = time.monotonic()
    for row in training.epochs(start):
        epoch = row["epoch"] + 1
        diverged = row.pop("diverged", False)
        last = diverged or epoch == training.count
        stop = not last and stopping()
        due = time.monotonic() - saved >= settings.checkpoint_seconds
        checkpoint = None
        if not last and (stop or due):
            checkpoint = Checkpoint(epoch, here, training.save())
            saved = time.monotonic()
        yield EpochDone(job.trial.id, row, checkpoint)
        if last:
            yield Finished(job.trial.id, "diverged" if diverged else "done")
            return
        if stop:
            yield Stopped(job.trial.id)
            return
    raise RuntimeError(f"training ended before all {training.count} epochs were done")


def _go_on(
    training: Training, checkpoint: Checkpoint | None, here: dict[str, Any]
) -> tuple[int, str]:
    """Load a checkpoint that was made under the same conditions; else start again."""
    if checkpoint is None:
        return 0, ""
    there = checkpoint.environment
    changed = [k for k in {**here, **there} if here.get(k) != there.get(k)]
    if changed:
        what = (f"{key} was {there.get(key)} and is {here.get(key)}" for key in changed)
        return 0, f"started again: {', '.join(what)}"
    if not training.load(bytes(checkpoint.payload)):
        return 0, "started again: it has no checkpoint that can be read"
    return checkpoint.epoch, ""


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out, in any of torch's ways."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def own_traceback(error: Exception) -> str:
    """Return the traceback without this package's frames, and not too long.

    Of a long one, the frames of the user's own files and the last two are shown.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    outside = [
        frame
        for frame in frames
        if PACKAGE not in Path(frame.filename).resolve().parents
        and not frame.filename.startswith("<frozen")
    ] or frames
    lines = traceback.format_list(outside)
    if len(outside) > FRAMES:
        users = [frame for frame in outside[:-2] if not _is_installed(frame.filename)]
        users = (users or outside[:1])[-FRAMES + 2 :]
        left_out = f"  … {len(outside) - len(users) - 2} more calls …\n"
        lines = [*traceback.format_list(users), left_out, *lines[-2:]]
    return "".join([*lines, *traceback.format_exception_only(error)])


def _is_installed(file: str) -> bool:
    paths = sysconfig.get_paths()
    places = [paths[key] for key in ("stdlib", "purelib", "platlib")]
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return bool(installed) or file.startswith((*places, "<"))


def work(pipe: Any, number: int, settings: Settings) -> None:
    """Run the jobs that come over a pipe until it closes."""
    _die_with_parent()
    _keep_memory()
    # Ctrl-C reaches the whole terminal; only the driver acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(settings.threads)
    # The process that it was forked from may have been started for another number.
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(pipe, jobs, stop), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            job = jobs.get()
            for event in run_trial(job, settings, worker=number, stopping=stop.is_set):
                pipe.send(event)
                if isinstance(event, Lost):
                    os._exit(GONE)  # memory ran out: give all of it back
            sys.stdout.flush()


def _listen(
    pipe: Any, jobs: "queue.SimpleQueue[Job]", stopping: threading.Event
) -> None:
    """Pass on what comes; the end of the pipe is the end of the driver."""
    try:
        while True:
            message = pipe.recv()
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


def _keep_memory() -> None:
    """Keep memory that is freed: to get it anew took a fifth of VGG-9's time."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # only glibc can
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in KEEP.items():
            mallopt(option, value)
