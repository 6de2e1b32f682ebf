"""The attack of issue 23 in a shortened form, from seeds; `make soak` runs it."""

import json
import os
import random
import shutil
import signal
import threading
import time
from multiprocessing import forkserver

import pytest
from lab_runs import numbers, trainer_study
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab.engines import EpochDone, Settings
from adadecay.lab.engines.local import LocalEngine
from adadecay.lab.spec_file import SpecError
from adadecay.lab.study import Study, run

pytestmark = pytest.mark.soak
MUTATIONS, STORES, KILLS = 2000, 50, 20
STUDY = """\
title = "A study"
trials = 3
epochs = 2
schedule = "sigmoid"

[[cells]]
dataset = "digits"
network = ["nn-2", {name = "lenet-4", dropout = [0.0, 0.25]}]

[[optimizers]]
name = "sgd"
lr = [0.1, 0.3]

[[optimizers]]
name = "adadecay"
label = "ours"
alpha = [1.0, 4.0]
"""
TOKENS = (
    *("0", "-1", "1e400", "9" * 30, "9" * 5000, "nan", "inf", "true", "[]", "{}"),
    *('""', '"\\u0000"', '"\\u001b[2J"', '"a:b"', '"../x"', "[" * 400, "1979-05-27"),
    *("[[cells]]", "[cells]", "name", "trials", "=", "\n", '"', "#", "\ufeff", "é"),
)
TRAINER = """\
trainer = "lab_own:numbers_only"
score = "accuracy"
optimizers = ["sgd", "adadecay"]
trials = 2
epochs = 3
device = "cpu"
"""


def _mutated(rng):
    text = STUDY
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + rng.choice(TOKENS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randint(1, 12) :]
        elif kind == 2:
            text = text[:at] + chr(rng.randrange(0x250)) + text[at + 1 :]
        else:
            lines = text.splitlines(keepends=True)
            line = rng.randrange(len(lines))
            key, equals, _ = lines[line].partition("=")
            lines[line] = f"{key}= {rng.choice(TOKENS)}\n" if equals else lines[line]
            text = "".join(lines)
    return text


def test_mutated_studies_are_read_or_refused(tmp_path):
    refused = 0
    for seed in range(MUTATIONS):
        file = tmp_path / "mutated.toml"
        file.write_text(_mutated(random.Random(seed)), "utf-8")
        message = _refusal(file)
        refused += bool(message)
        assert all(c.isprintable() or c == "\n" for c in message), seed
    assert MUTATIONS / 4 < refused < MUTATIONS


def _refusal(file):
    """What is said of a study that is wrong; anything but a SpecError is a fault."""
    try:
        Study(file).plan  # noqa: B018
    except SpecError as error:
        return str(error)
    return ""


def _spoil(rng, victim):
    """Damage one file of a trial, in one of five ways."""
    path = rng.choice([p for p in victim.iterdir() if p.name != "checkpoint"])
    data = path.read_bytes()
    how = rng.randrange(5)
    if how == 0:
        at = rng.randrange(len(data) - 1)
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif how == 1:
        path.write_bytes(data[: rng.randrange(len(data))])
    elif how == 2:
        path.write_bytes(rng.randbytes(len(data)))
    elif how == 3:
        path.unlink()
        path.mkdir()
    else:
        path.unlink()
        path.symlink_to(path.name)


def test_corrupted_stores_are_told_and_mended(tmp_path):
    """No traceback, no altered number, and what is run again gives the same."""
    (tmp_path / "study.toml").write_text(TRAINER)
    whole = tmp_path / "whole"
    words = [str(tmp_path / "study.toml"), "--results"]
    runner = CliRunner()
    assert (
        runner.invoke(app, ["run", *words, str(whole), "--workers", "0"]).exit_code == 0
    )
    expected = _rows(whole)
    for seed in range(STORES):
        rng = random.Random(seed)
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        _spoil(rng, rng.choice(sorted(folder.glob("trials/*/*"))))
        for command in ("status", "report", "run"):
            options = ["--workers", "0"] if command == "run" else []
            told = runner.invoke(app, [command, *words, str(folder), *options])
            assert told.exception is None or isinstance(told.exception, SystemExit), (
                seed,
                command,
            )
        told = runner.invoke(app, ["run", *words, str(folder), "--workers", "0"])
        assert told.exit_code == 0, (seed, told.output)
        assert _rows(folder) == expected, seed


def _rows(folder):
    return {
        log.parent.name: [
            (row["epoch"], row["accuracy"])
            for row in map(json.loads, log.read_text().splitlines())
        ]
        for log in folder.glob("trials/*/*/epochs.jsonl")
    }


def test_kills_of_workers_and_fork_server_change_no_number(tmp_path):
    trainer = {"name": "lab_own:train_resumable", "pause": 0.2}
    keys = {"trials": 4, "epochs": 40}
    calm = trainer_study(tmp_path / "calm", {**trainer, "pause": 0.2}, **keys)
    run(calm, workers=0, progress=False)
    study = trainer_study(tmp_path / "killed", trainer, **keys)
    engine = LocalEngine(2, Settings("cpu", 1, checkpoint_seconds=0))
    rng, killed = random.Random(0), []
    ended, running = threading.Event(), threading.Event()

    def kill():
        while not ended.is_set() and len(killed) < KILLS:
            running.wait()
            running.clear()
            time.sleep(rng.uniform(0.0, 0.3))
            workers = [w.process.pid for w in list(engine._pool.values())]
            server = forkserver._forkserver._forkserver_pid
            victim = server if len(killed) % 4 == 3 else rng.choice(workers or [server])
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(victim)

    def watch(event):
        if isinstance(event, EpochDone):
            running.set()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    outcome = run(study, engine=engine, attempts=100, watch=watch)
    ended.set()
    running.set()
    killer.join()
    assert len(killed) == KILLS
    assert (outcome.done, outcome.failed) == (4, {})
    assert numbers(study) == numbers(calm)
