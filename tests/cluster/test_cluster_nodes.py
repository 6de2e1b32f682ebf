"""Four nodes on one machine: two workers killed, a node removed."""

import contextlib
import os
import signal

import pytest
from cluster_processes import (
    family,
    patiently,
    raylet_of,
    running_trials,
    started_since,
)
from lab_runs import numbers, trainer_study

from adadecay.lab.engines import EpochDone, Finished, Lost, Settings, Started
from adadecay.lab.engines.ray import RayEngine
from adadecay.lab.study import make_engine, run

HOST = "127.0.0.1"
NODE = {
    "node_ip_address": HOST,
    "include_dashboard": False,
    "object_store_memory": 80 << 20,
}
SETTINGS = Settings("cpu", 1, checkpoint_seconds=0)
PATIENCE = 200.0  # seconds, for a machine that is busy with other things


@pytest.fixture
def cluster(one_ray):
    """A head, where the driver runs, and four nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    before = family(os.getpid())
    made = patiently(lambda: Cluster(True, head_node_args={**NODE, "num_cpus": 0}))
    for _ in range(4):
        patiently(lambda: made.add_node(num_cpus=1, wait=False, **NODE))
    made.wait_for_nodes(timeout=PATIENCE)
    yield made
    with contextlib.suppress(Exception):  # the head may be gone already
        made.shutdown()
    for process in started_since(before):
        process.kill()


class Havoc:
    """Kills two workers and then a node, each early in a trial that it has."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.events = []
        self.hit = []
        self.removed = False

    def __call__(self, event):
        self.events.append(event)
        saved = isinstance(event, EpochDone) and event.checkpoint is not None
        # So early that, being four messages ahead at most, it cannot be done yet.
        if not saved or event.row["epoch"] > 1 or event.trial in self.hit:
            return
        if any(isinstance(each, Finished) for each in self.events) and not self.removed:
            self._strike(event.trial)

    def _strike(self, trial):
        for node in self.cluster.worker_nodes:
            for process in running_trials([raylet_of(node)]):
                if trial not in " ".join(process.cmdline()):
                    continue
                self.hit.append(trial)
                if len(self.hit) <= 2:
                    process.send_signal(signal.SIGKILL)
                else:
                    self.removed = True
                    self.cluster.remove_node(node, allow_graceful=False)
                return


def _study(folder, gate):
    trainer = {"name": "cluster_own:train_slowly", "pause": 0.15, "gate": str(gate)}
    optimizers = ["sgd", "adadecay"]
    return trainer_study(folder, trainer, trials=5, epochs=8, optimizers=optimizers)


def test_a_study_survives_its_cluster(cluster, tmp_path):
    gate = tmp_path / "gate"
    study = _study(tmp_path / "havoc", gate)
    havoc = Havoc(cluster)
    engine = make_engine(study, None, SETTINGS, "ray", address=cluster.address)
    assert isinstance(engine, RayEngine)
    assert engine.workers == 4
    outcome = run(study, engine=engine, watch=havoc)

    assert (len(havoc.hit), havoc.removed) == (3, True)
    lost = [event.reason for event in havoc.events if isinstance(event, Lost)]
    assert len([reason for reason in lost if "worker died" in reason]) == 2
    # Ray may send the trial to the dead node once more before it has noticed.
    by_node = [reason for reason in lost if "node" in reason]
    assert 1 <= len(by_node) <= 2, lost
    assert all(HOST in reason for reason in by_node)
    assert (outcome.done, outcome.left, outcome.failed) == (10, 0, {})
    finished = set()
    for event in havoc.events:
        if isinstance(event, Finished):
            finished.add(event.trial)
        else:
            assert event.trial not in finished, "what was finished ran again"
    went_on = [e for e in havoc.events if isinstance(e, Started) and e.epoch > 0]
    assert {event.trial for event in went_on} == set(havoc.hit), (
        "what was lost goes on from its checkpoint"
    )
    gate.touch()
    calm = _study(tmp_path / "calm", gate)
    run(calm, workers=0)
    assert numbers(study) == numbers(calm)
