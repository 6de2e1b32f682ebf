"""The parts of the cluster engine that need no Ray to be running."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from cluster_fake import FakeRay
from lab_runs import small_study

from adadecay.extras import install_command
from adadecay.lab.engines import (
    EngineDiedError,
    EngineError,
    EpochDone,
    Failed,
    Finished,
    Settings,
    Started,
)
from adadecay.lab.engines.ray import (
    RayEngine,
    cause_of_loss,
    connection,
)
from adadecay.lab.engines.ray.connection import (
    Heartbeat,
    Need,
    choose_need,
    import_ray,
    room,
)
from adadecay.lab.engines.ray.task import on_assigned, pack, pack_modules
from adadecay.lab.files import Checkpoint
from adadecay.lab.spec_file import SpecError
from adadecay.lab.study import run


def _events(*checkpoints):
    rows = [EpochDone("t", {"epoch": n}, c) for n, c in enumerate(checkpoints)]
    return [Started("t", 0, 0, {}), *rows, Finished("t", "done")]


def test_events_come_out_as_they_went_in():
    saved = Checkpoint(2, {"threads": 1}, bytes(range(256)) * 40)
    events = _events(None, saved, None, None, saved)
    messages = list(pack(events))
    assert [event for message in messages for event in message] == events
    assert [len(message) for message in messages] == [1, 2, 3, 1]


def test_slow_epochs_travel_alone_and_a_failure_at_once():
    events = [*_events(None, None)[:-1], Failed("t", "why")]
    assert [len(m) for m in pack(events, blink=0)] == [1, 1, 1, 1]
    assert [len(m) for m in pack(events, blink=60)] == [1, 3]


@pytest.mark.parametrize(
    ("node", "need", "expected"),
    [
        ({"CPU": 8.0}, Need(1, 0), 8),
        ({"CPU": 8.0}, Need(3, 0), 2),
        ({"CPU": 1.0}, Need(0.1, 0), 10),
        ({"CPU": 14.0}, Need(0.56, 0), 25),  # 14 / 0.56 is a little less in floats
        ({"CPU": 8.0, "GPU": 1.0}, Need(1, 0.25), 4),
        ({"CPU": 2.0, "GPU": 1.0}, Need(1, 0.25), 2),
        ({"CPU": 8.0}, Need(1, 0.25), 0),
        ({}, Need(1, 0), 0),
    ],
)
def test_room_on_a_node(node, need, expected):
    assert room(node, need) == expected


def _ray_with(**resources):
    return SimpleNamespace(cluster_resources=lambda: resources)


@pytest.mark.parametrize(
    ("device", "given", "resources", "expected"),
    [
        ("auto", Need(), {"CPU": 4.0}, Need(2.0, 0.0)),
        ("auto", Need(), {"CPU": 4.0, "GPU": 1.0}, Need(2.0, 1.0)),
        ("auto", Need(1, 0.25), {"GPU": 1.0}, Need(1, 0.25)),
        ("cpu", Need(None, 0.25), {"GPU": 1.0}, Need(2.0, 0.0)),
        ("cuda", Need(), {"CPU": 4.0}, Need(2.0, 1.0)),
    ],
)
def test_what_a_trial_needs(device, given, resources, expected):
    settings = Settings(device, threads=2)
    assert choose_need(_ray_with(**resources), given, settings) == expected


def test_cuda_without_a_gpu_is_a_contradiction():
    with pytest.raises(EngineError, match=r"needs resources\.gpus above 0"):
        choose_need(_ray_with(), Need(1, 0), Settings("cuda"))


def test_the_device_is_the_one_that_ray_assigns():
    assert on_assigned(Settings("auto", 3), ["2"]) == Settings("cuda", 3)
    assert on_assigned(Settings("auto", 3), []) == Settings("cpu", 3)


def test_resources_are_checked_and_define_no_result(tmp_path):
    plain = small_study(tmp_path)
    shared = small_study(tmp_path, resources={"cpus": 2, "gpus": 0.25})
    assert (shared.spec.resources.cpus, shared.spec.resources.gpus) == (2, 0.25)
    assert [t.id for t in plain.plan.trials] == [t.id for t in shared.plan.trials]
    for bad in ({"cpus": 0}, {"cpus": 1.5}, {"gpus": -1}, {"gpus": 2}, {"gpu": 1}):
        with pytest.raises(SpecError, match="resources"):
            small_study(tmp_path, resources=bad)


def test_engine_and_address_are_checked(tmp_path):
    study = small_study(tmp_path)
    with pytest.raises(SpecError, match="'rya' is not one of local, ray"):
        run(study, engine="rya")
    with pytest.raises(SpecError, match="be used without engine ray"):
        run(study, address="auto")
    with pytest.raises(SpecError, match="workers = 0"):
        run(study, engine="ray", workers=0)
    with pytest.raises(ValueError, match="at least 1, not -1"):
        RayEngine(Settings(), workers=-1)


def test_wrong_addresses_fail_in_seconds():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    cases = {
        "ray://127.0.0.1:10001": "run the command on a node of the cluster",
        f"127.0.0.1:{port}": f"No Ray cluster at 127.0.0.1:{port}: Connection refused",
        "nowhere": "--address nowhere",
    }
    for address, text in cases.items():
        with pytest.raises(EngineError, match=text) as caught:
            RayEngine(Settings("cpu"), address=address)
        assert not isinstance(caught.value, EngineDiedError)


def test_a_ray_that_does_not_start_is_told_in_a_sentence(monkeypatch):
    import ray

    def init(**options):
        raise Exception("The current node timed out during startup.\nAnd so on.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(EngineDiedError, match=r"during startup\. Nothing"):
        RayEngine(Settings("cpu"), workers=1)


def test_a_notebooks_functions_cannot_travel(tmp_path):
    with pytest.raises(EngineError, match="defined in a notebook"):
        RayEngine(Settings(), names=["adadecay_live:mine"])


def test_without_ray_one_sentence_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['ray'] = None; "
        "from adadecay.__main__ import main; main()"
    )
    words = ["run", "quickstart", "--engine", "ray", "--results", str(tmp_path / "r")]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        "adadecay: The engine 'ray' needs Ray, which is not installed: "
        f"{install_command('ray')}\n"
    )


def test_a_ray_that_lacks_something_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        import_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_head_or_raylet_that_is_gone_is_noticed(monkeypatch):
    monkeypatch.setattr(connection, "GLANCE", 0.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ray = FakeRay(address, {"CPU": 1.0}, {"CPU": 1.0})
        watch = Heartbeat(ray)
        monkeypatch.setattr(connection, "PATIENCE", 0.0)
        watch.check()
        ray.all_nodes[1]["Alive"] = False
        watch.check()  # another machine's: its trials are lost, and others go on
        ray.all_nodes[0]["Alive"] = False
        with pytest.raises(EngineDiedError, match="the raylet"):
            watch.check()
    with pytest.raises(EngineDiedError, match=f"head at {address}"):
        watch.check()
    monkeypatch.setattr(connection, "GLANCE", 60.0)
    watch.check()  # which is not looked at every time
    monkeypatch.setattr(connection, "GLANCE", 0.0)
    monkeypatch.setattr(connection, "PATIENCE", 60.0)
    watch.check()  # it may come back


def test_losses_are_told_in_a_few_words():
    def made(name, text):
        return type(name, (Exception,), {})(text)

    node = made("NodeDiedError", "It died. Node IP: 10.0.0.7, node ID: abc. More.")
    assert cause_of_loss(node) == "the node that it ran on is gone (10.0.0.7)"
    assert "worker died" in cause_of_loss(made("WorkerCrashedError", "x\ny"))
    assert "memory" in cause_of_loss(made("OutOfMemoryError", "x"))
    assert cause_of_loss(made("ObjectLostError", "one\ntwo")) == "ObjectLostError: one"
    begun = made("RayTaskError", "a\nlong\ntraceback")
    begun.cause = OSError("no space left")
    assert cause_of_loss(begun) == "the worker could not start: OSError: no space left"


def test_modules_travel_with_those_beside_them(tmp_path, monkeypatch):
    home, there = tmp_path / "home", tmp_path / "there"
    (home / "mine" / "deep").mkdir(parents=True)
    there.mkdir()
    (home / "mine" / "__init__.py").write_text("import besides\n")
    (home / "mine" / "deep" / "__init__.py").write_text("")
    (home / "mine" / "deep" / "loop.py").write_text("from mine import other\n")
    (home / "mine" / "other.py").write_text("import numpy\n")
    (home / "besides.py").write_text("")
    (home / "unrelated.py").write_text("")
    monkeypatch.syspath_prepend(home)
    assert pack_modules(["mine.deep.loop:train", "numpy:array"], there)
    names = {str(path.relative_to(there)) for path in there.rglob("*.py")}
    package = {"mine/__init__.py", "mine/deep/__init__.py", "mine/deep/loop.py"}
    assert names == package | {"mine/other.py", "besides.py"}
    (tmp_path / "empty").mkdir()
    assert not pack_modules(["numpy:array"], tmp_path / "empty")
