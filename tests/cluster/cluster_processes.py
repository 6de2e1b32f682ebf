"""Ray's processes, and the trials that they run, seen from outside."""

import contextlib
import os
import time
from pathlib import Path

import psutil

import adadecay

HERE = Path(__file__).parent
# For other processes: the package that is tested here, and the users' own modules.
PACKAGE = Path(adadecay.__file__).parents[1]
PATH = os.pathsep.join(map(str, (PACKAGE, HERE, HERE.parent / "lab")))


def family(pid):
    """Every living descendant of a process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def started_since(before):
    """What this process has started since then, and may end.

    Python's own tracker of shared memory is no Ray: the next test needs it.
    """
    found = []
    for process in alive(set(family(os.getpid())) - set(before)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "resource_tracker" not in " ".join(process.cmdline()):
                found.append(process)
    return found


def alive(processes):
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def running_trials(pids):
    """The processes below these that are in the middle of a trial."""
    found = []
    for process in (child for pid in pids for child in family(pid)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "ray::trial" in " ".join(process.cmdline()):
                found.append(process)
    return found


def at_gate(folder):
    """AdaDecay's trials that wait at their gate, saved after three epochs."""
    return [
        log.parent.name
        for log in folder.glob("trials/*/*/epochs.jsonl")
        if '{"name":"adadecay"' in (log.parent / "trial.json").read_text()
        and len(log.read_bytes().splitlines()) == 3
        and (log.parent / "checkpoint").exists()
    ]


def patiently(start, attempts=3):
    """Start something of Ray's, which gives a node 30 s and a busy machine may not."""
    for attempt in range(attempts):
        before = family(os.getpid())
        try:
            return start()
        except Exception as error:
            for process in started_since(before):
                process.kill()
            if "timed out during startup" not in str(error) or attempt + 1 == attempts:
                raise
    return None


def raylet_of(node):
    """The process id of a simulated node's raylet."""
    return node.all_processes["raylet"][0].process.pid


def wait_for(condition, seconds=240.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
