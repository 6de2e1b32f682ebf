"""What the engine asks of Ray, and makes of its answers, with a Ray that is not one."""

import os
import signal
import socket
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cluster_fake import FakeRay, FakeRayError, FakeSetupError, whole

from adadecay.lab.engines import (
    EngineDiedError,
    EngineError,
    EpochDone,
    Finished,
    Job,
    Lost,
    Settings,
    Started,
    run_trial,
)
from adadecay.lab.engines import ray as ray_engine
from adadecay.lab.engines.ray import Need, RayEngine, connection, task

SETTINGS = Settings("cpu", 1)


@pytest.fixture
def address():
    """Where somebody listens, as a head would."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def make(monkeypatch, address):
    """Make an engine on a Ray with these nodes."""

    def made(*nodes, tell=whole, **options):
        ray = FakeRay(address, *nodes, tell=tell)
        monkeypatch.setattr(ray_engine, "import_ray", lambda: ray)
        return ray, RayEngine(SETTINGS, **options)

    return made


def jobs(count):
    """Give out so many jobs, then none; and note how many were asked for."""
    asked = []

    def next_job():
        if len(asked) == count:
            return None
        asked.append(SimpleNamespace(id=f"t{len(asked)}"))
        return Job(asked[-1])

    next_job.asked = asked
    return next_job


def test_a_bounded_number_of_tasks_is_in_flight(make):
    """As many as fit, and a quarter more, or as many as the user says."""
    nodes = [{"CPU": 6.0}, {"CPU": 6.0}]
    ray, engine = make(*nodes)
    ends = [e for e in engine.events(jobs(100)) if isinstance(e, Finished)]
    assert (ray.most, engine.workers, len(ends)) == (15, 12, 100)
    ray, engine = make(*nodes, workers=3)
    assert len(list(engine.events(jobs(20)))) == 40
    assert ray.most == 3


def test_the_next_job_is_asked_for_only_when_there_is_a_place(make):
    _, engine = make({"CPU": 4.0}, workers=2)
    source = jobs(50)
    events = engine.events(source)
    ahead = [len(source.asked) - n // 2 for n, _ in enumerate(events)]
    assert max(ahead) == 2


def test_nodes_that_come_and_go_are_counted_but_not_dead_ones(make, monkeypatch):
    monkeypatch.setattr(ray_engine, "RECOUNT", 0.0)
    ray, engine = make({"CPU": 2.0}, {"CPU": 8.0})
    ray.all_nodes[1]["Alive"] = False
    list(engine.events(jobs(30)))
    assert (engine.workers, ray.most) == (2, 4)


def test_without_a_head_nodes_are_not_counted(make, monkeypatch):
    """Ray would not answer, and the run would hang instead of saying why."""
    monkeypatch.setattr(ray_engine, "RECOUNT", 0.0)
    ray, engine = make({"CPU": 2.0})
    events = engine.events(jobs(30))
    next(events)
    before = ray.looks
    monkeypatch.setattr(engine._head, "answers", lambda: False)
    list(events)
    assert ray.looks == before


def test_what_a_task_asks_of_ray(make):
    ray, _ = make({"CPU": 8.0}, need=Need(2, None))
    assert (ray.options["num_cpus"], ray.options["num_gpus"]) == (2, 0.0)
    assert ray.options["max_retries"] == 0, "the driver has the checkpoint, not Ray"
    assert ray.options["_generator_backpressure_num_objects"] == 4
    assert ray.options["num_returns"] == "streaming"


def test_a_trial_that_fits_on_no_node_is_refused_at_once(make):
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}]
    with pytest.raises(EngineError, match="No node of the cluster has 3 CPUs and 0"):
        make(*nodes, need=Need(3, 0))
    make(*nodes, need=Need(3, 0), workers=1)  # an autoscaler may start one


def test_a_lost_task_is_reported_and_the_others_go_on(make):
    def tell(job):
        messages = whole(job)
        if job.trial.id == "t1":
            messages[1] = FakeRayError("gone\nand more")
        return messages[:1] if job.trial.id == "t2" else messages

    _, engine = make({"CPU": 2.0}, tell=tell)
    events = list(engine.events(jobs(4)))
    assert [e for e in events if isinstance(e, Lost)] == [
        Lost("t1", "FakeRayError: gone"),
        Lost("t2", "its worker ended without a result"),
    ]
    assert {e.trial for e in events if isinstance(e, Finished)} == {"t0", "t3"}


def test_an_environment_that_cannot_be_made_ends_the_run(make):
    _, engine = make({"CPU": 1.0}, tell=lambda job: [FakeSetupError("no pip")])
    closed = []
    note = partial(closed.append, 1)
    engine._connection = connection.Connection(False, note)
    with pytest.raises(EngineDiedError, match="set up a worker: no pip"):
        list(engine.events(jobs(3)))
    assert closed == [1]


def test_stopping_withdraws_what_waits_and_hears_what_runs_to_its_end(make):
    def tell(job):
        first, last = whole(job)
        return [first, (EpochDone(job.trial.id, {"epoch": 0}, None),), last]

    ray, engine = make({"CPU": 2.0}, tell=tell)
    ray.running = 2
    source = jobs(50)
    events = []
    for event in engine.events(source):
        events.append(event)
        if len(events) == 1:
            engine.stop()
    begun = {e.trial for e in events if isinstance(e, Started)}
    assert {e.trial for e in events if isinstance(e, Finished)} == begun
    assert ray.rung == 1
    kept = {s.job.trial.id for s in ray.streams if not s.withdrawn}
    assert kept == begun == {"t0", "t1"}
    assert len(source.asked) == len(ray.streams) == 4


def test_the_callers_sigterm_survives_the_connection():
    before = signal.getsignal(signal.SIGTERM)
    with connection._signals_kept():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as ray.init does
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_ray_of_our_own_is_started_with(monkeypatch):
    """Loopback alone, no dashboard, the threads of a trial, and it ends with us."""
    from ray._private import ray_constants

    begun, ended = {}, []

    def init(**options):
        begun.update(options, cluster=ray_constants.ENABLE_RAY_CLUSTER)

    ray = SimpleNamespace(
        init=init,
        is_initialized=lambda: False,
        get_runtime_context=lambda: SimpleNamespace(gcs_address="127.0.0.1:1"),
        shutdown=lambda: ended.append(1),
    )
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    settings = Settings("cpu", threads=3)
    link = connection.connect(ray, None, settings, 2, Need(2.5), ())
    assert (begun["address"], begun["_node_ip_address"]) == ("local", "127.0.0.1")
    assert begun["cluster"] is False, "or Ray would replace 127.0.0.1"
    assert ray_constants.ENABLE_RAY_CLUSTER is True
    assert begun["include_dashboard"] is False
    assert begun["num_cpus"] == 5
    variables = begun["runtime_env"]["env_vars"]
    assert variables["OMP_NUM_THREADS"] == "3"
    assert str(Path(__file__).parent) in variables["PYTHONPATH"].split(os.pathsep)
    assert (link.owned, ended) == (True, [])
    link.close()
    assert ended == [1]


def test_a_task_sets_its_threads_and_hears_the_bell(monkeypatch):
    import ray

    threads = []
    bell = SimpleNamespace(ready=[])

    def performed(job, settings, *, worker, stopping):
        assert threads == [3], "before anything is computed"
        assert (settings.device, worker) == ("cpu", 5)
        assert not stopping()
        bell.ready = ["bell"]
        yield Finished("t", "done" if stopping() else "deaf")

    monkeypatch.setattr(task, "GLANCE", 0.0)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(run_trial, "run_trial", performed)
    monkeypatch.setattr(ray, "get_gpu_ids", list)
    monkeypatch.setattr(ray, "wait", lambda bells, timeout: (bell.ready, []))
    monkeypatch.setattr(ray, "get", lambda reference: True)
    messages = list(task.run_job(None, Settings("auto", 3), 5, ["bell"]))
    assert messages == [(Finished("t", "done"),)]


def test_a_bell_that_is_lost_does_not_ring(monkeypatch):
    monkeypatch.setattr(task, "GLANCE", 0.0)

    def get(reference):
        raise FakeRayError

    fake = SimpleNamespace(
        wait=lambda bells, timeout: (bells, []),
        get=get,
        exceptions=FakeRay.exceptions,
    )
    assert not task._listen(fake, ["bell"])()
