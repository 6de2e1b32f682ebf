"""Every example runs, offline, and does what it says."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(*command):
    done = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "JAX_PLATFORMS": "cpu",
            "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_ADDR": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "least"), [("plain_loop", 85), ("lightning_module", 80)]
)
def test_digits_are_learnt_and_theta_is_shown(name, least):
    output = run(EXAMPLES / f"{name}.py")
    accuracies = re.findall(r"accuracy ([\d.]+)%", output)
    assert float(accuracies[-1]) > least
    assert "mean θ" in output


def test_trainer():
    output = run(EXAMPLES / "trainer.py")
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+)", output).groups()
    assert float(last) < 0.8 * float(first)
    assert "mean θ of transformer.wte.weight" in output


def test_a_study_whose_trainer_is_transformers(tmp_path):
    """Its seeds suit transformers' set_seed and NumPy's."""
    study, results = EXAMPLES / "trainer_study.toml", ["--results", tmp_path]
    few = ["--trials", "1", "--epochs", "2"]
    output = run("-m", "adadecay", "run", study, "--plain", *few, *results)
    assert "2 of 2 trials done" in output
    losses = re.findall(r"epoch 2/2, loss ([\d.]+)", output)
    assert len(losses) == 2
    assert all(0 < float(loss) < 4 for loss in losses)


def test_optax():
    accuracies = re.findall(r"accuracy ([\d.]+)%", run(EXAMPLES / "optax_example.py"))
    assert len(accuracies) == 2
    assert all(float(accuracy) > 80 for accuracy in accuracies)


def test_fsdp2():
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    output = run(*torchrun, EXAMPLES / "fsdp2.py")
    before, after = re.findall(r"loss ([\d.]+)", output)
    assert "1 collective in the optimizer's step" in output
    assert float(after) < float(before)
