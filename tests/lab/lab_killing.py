"""A process that runs a study and is killed over and over, at chosen moments.

Run as a script: ``lab_killing.py RESULTS KILLS SEED OPTIMIZER…``. It runs
the study elsewhere first and then forks a child for each attempt, so that an attempt
costs no more than its training: nothing is imported or planned again.
The child runs the study in its own process and is killed with SIGKILL by itself, at a
moment that the seed chooses: in the middle of a checkpoint, between an epoch's line and
its checkpoint, in the middle of a line, at any call of the store, or after some time.
"""

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from adadecay.lab.files import trial_folder

MOMENTS = ("half checkpoint", "after line", "half line", "any call", "any time")
CHECKPOINT = b'{"format":1,"epoch":'
LINE = b'{"epoch":'


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyOs:
    """The module os as the store sees it, with a moment at which the process dies."""

    def __init__(self, moment, countdown):
        self.moment = moment
        self.countdown = countdown
        self.after_header = False

    def __getattr__(self, name):
        if name in ("open", "close", "fsync", "ftruncate", "fstat"):
            return lambda *args: self._call(getattr(os, name), args)
        return getattr(os, name)

    def _call(self, function, args):
        if self.moment == "any call":
            self._tick()
        return function(*args)

    def _tick(self):
        self.countdown -= 1
        if self.countdown < 0:
            die()

    def write(self, descriptor, data):
        data = bytes(data)
        payload, self.after_header = self.after_header, data.startswith(CHECKPOINT)
        line = data.startswith(LINE)
        if self.moment == "half checkpoint" and payload:
            self._half(descriptor, data)
        if self.moment == "half line" and line:
            self._half(descriptor, data)
        written = self._call(os.write, (descriptor, data))
        if self.moment == "after line" and line:
            self._tick()
        return written

    def _half(self, descriptor, data):
        self.countdown -= 1
        if self.countdown < 0:
            os.write(descriptor, data[: len(data) // 2])
            die()


def attempt(study, moment, rng):
    """Run the study in a child; return whether it was killed."""
    countdown = rng.randrange({"any call": 40}.get(moment, 3))
    delay = rng.uniform(0.0, 0.4)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            from adadecay.lab import store
            from adadecay.lab.study import run

            if moment == "any time":
                threading.Thread(
                    target=lambda: (time.sleep(delay), die()), daemon=True
                ).start()
            elif moment is not None:
                store.os = DeadlyOs(moment, countdown)
            outcome = run(study, workers=0, checkpoint_seconds=0, progress=False)
            status = 0 if not outcome.left else 2
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        assert os.WTERMSIG(ended) == signal.SIGKILL, ended
        return True
    assert os.WEXITSTATUS(ended) == 0, os.WEXITSTATUS(ended)
    return False


def main(results, kills, seed, optimizers):
    sys.path.insert(0, str(Path(__file__).parent))
    import torch
    from lab_runs import small_study

    from adadecay.lab.study import run

    torch.set_num_threads(1)
    told = {}
    with tempfile.TemporaryDirectory() as elsewhere:
        warm = small_study(Path(elsewhere), *optimizers, epochs=1)
        run(warm, workers=0, checkpoint_seconds=0, progress=False)
    for optimizer in optimizers:
        rng = random.Random(f"{optimizer} {seed}")
        told[optimizer] = kill_often(small_study(results, optimizer), kills, rng)
    print(json.dumps(told))


def kill_often(study, kills, rng):
    """Kill a study so often, then let it finish; say how often at which moment."""
    done = dict.fromkeys(MOMENTS, 0)
    trials = study.plan.unique  # planned here, once, and not in each child
    # Every moment in turn, each at a random place; a finished run starts over, so
    # that all the kills fall on runs that are under way.
    while sum(done.values()) < kills:
        moment = MOMENTS[sum(done.values()) % len(MOMENTS)]
        if attempt(study, moment, rng):
            done[moment] += 1
        else:
            for trial in trials:
                for file in trial_folder(study.folder, trial.id).iterdir():
                    file.unlink()
    assert not attempt(study, None, rng)
    return done


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
