"""Real trainers from their own packages: train, checkpoint, resume, same numbers."""

import sys

import pytest
import torch
from small_trainers import (
    MAKERS,
    AdamWForTrainer,
    Module,
    hugging_face,
    lightning_fit,
)
from torch import nn

from adadecay import AdaDecay, adaptive_decay, param_groups

pytestmark = pytest.mark.usefixtures("quiet")


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


# transformers


@pytest.mark.parametrize(
    "optimizer",
    [
        (AdaDecay, {"lr": 0.05, "momentum": 0.9, "alpha": 3.0}),
        (AdamWForTrainer, {"lr": 0.005, "weight_decay": 0.1}),
    ],
    ids=["AdaDecay", "AdamW"],
)
def test_transformers_trainer_resumes_to_the_same_numbers(tmp_path, optimizer):
    whole = hugging_face(tmp_path / "whole", optimizer, steps=10)
    start = [p.detach().clone() for p in whole.model.parameters()]
    whole.train()
    inner = whole.optimizer.optimizer
    assert hasattr(inner, "_adadecay") or inner.param_groups[0]["alpha"] == 3.0
    decays = [group["weight_decay"] for group in whole.optimizer.param_groups]
    assert decays == [0.1, 0.0]
    assert not torch.equal(start[0], next(whole.model.parameters()))
    hugging_face(tmp_path / "parts", optimizer, steps=5).train()
    resumed = hugging_face(tmp_path / "parts", optimizer, steps=10)
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-5"))
    assert resumed.state.global_step == 10
    assert_same(whole.model.parameters(), resumed.model.parameters())


# Lightning


@pytest.mark.parametrize("name", MAKERS)
def test_lightning_resumes_to_the_same_numbers(tmp_path, name):
    make = MAKERS[name]
    whole, _ = lightning_fit(tmp_path / "whole", make, epochs=4)
    assert not torch.equal(whole.net[0].weight, Module(make).net[0].weight)
    lightning_fit(tmp_path / "part", make, epochs=2)
    resumed, trainer = lightning_fit(
        tmp_path / "rest", make, epochs=4, resume=tmp_path / "part" / "last.ckpt"
    )
    assert trainer.global_step == 20
    assert_same(whole.parameters(), resumed.parameters())


# accelerate


def accelerated(make, folder, *, first, last, seed=3):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
    optimizer = make(param_groups(model, weight_decay=0.1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.9**n)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    if first:
        accelerator.load_state(folder / f"step{first}")
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 6, generator=generator)
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), x[:, :2].square())
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    accelerator.save_state(folder / f"step{last}")
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("name", MAKERS)
def test_accelerate_resumes_to_the_same_numbers(tmp_path, name):
    make = MAKERS[name]
    whole = accelerated(make, tmp_path / "whole", first=0, last=8)
    accelerated(make, tmp_path / "parts", first=0, last=4)
    resumed = accelerated(make, tmp_path / "parts", first=4, last=8, seed=99)
    assert_same(whole, resumed)


def test_a_prepared_optimizer_is_refused_with_advice():
    from accelerate import Accelerator

    params = [nn.Parameter(torch.ones(3))]
    prepared = Accelerator(cpu=True).prepare(torch.optim.AdamW(params))
    with pytest.raises(TypeError, match="only wraps another optimizer"):
        adaptive_decay(prepared)


# timm


def test_timm_registry():
    pytest.importorskip("timm", reason="timm brings torchvision: not in the lock")
    from timm.optim import create_optimizer_v2

    from adadecay.integrations import timm

    timm.register()
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = create_optimizer_v2(
        model, "adadecay", lr=0.1, weight_decay=0.05, momentum=0.8, alpha=2.0
    )
    assert type(optimizer) is AdaDecay
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 0.05}
    assert {group["alpha"] for group in optimizer.param_groups} == {2.0}
    assert {group["momentum"] for group in optimizer.param_groups} == {0.8}


def test_importing_an_integration_imports_only_its_own_trainer():
    import subprocess

    code = (
        "import sys, adadecay.integrations, adadecay.diagnostics; "
        "sys.exit(bool({'lightning', 'transformers', 'timm', 'jax', 'altair'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert done.returncode == 0
