"""One job, from checkpoint to result: what every engine's worker does.

In: a job and how to run it. Out: events. Errors in the code that a trial runs become
events as well, with the user's own part of the traceback.
"""

import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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

__all__ = ["choose_device", "run_trial"]

PACKAGE = Path(adadecay.__file__).parent
FRAMES = 6  # of a traceback: enough to see where, short enough to read


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
    """Run one job to its end, or until asked to stop.

    Args:
        job: the trial, and the checkpoint to go on from.
        settings: device, threads and how often to save.
        worker: number of the worker, for events and to choose among devices.
        stopping: asked after each epoch; True puts the trial down.

    Yields:
        ``Started``, an ``EpochDone`` for each epoch, and one event that ends it.
    """
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
    training = prepare(job.trial.definition, device)
    here = environment(device=str(device), threads=settings.threads)
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
    raise RuntimeError(f"training ended before its {training.count} epochs were over")


def _go_on(
    training: Training, checkpoint: Checkpoint | None, here: dict[str, Any]
) -> tuple[int, str]:
    """Load a checkpoint that was made under the same conditions; else start again."""
    if checkpoint is None:
        return 0, ""
    there = checkpoint.environment
    changed = [key for key in here if here[key] != there.get(key)]
    if changed:
        what = ", ".join(f"{key} was {there.get(key)}" for key in changed)
        return 0, f"started again: {what}, and is {here[changed[0]]}"
    if not training.load(bytes(checkpoint.payload)):
        return 0, "started again: it offers no checkpoint that could be read"
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
    if len(outside) > FRAMES:
        users = [frame for frame in outside[:-2] if not _is_installed(frame.filename)]
        users = users or outside[:1]
        left_out = f"  … {len(outside) - len(users[-FRAMES + 2 :]) - 2} more calls …\n"
        lines = traceback.format_list(users[-FRAMES + 2 :])
        lines += [left_out, *traceback.format_list(outside[-2:])]
    else:
        lines = traceback.format_list(outside)
    return "".join([*lines, *traceback.format_exception_only(error)])


def _is_installed(file: str) -> bool:
    paths = sysconfig.get_paths()
    places = [paths[key] for key in ("stdlib", "purelib", "platlib")]
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return bool(installed) or file.startswith((*places, "<"))
