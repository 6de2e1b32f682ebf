"""Real trainers from their own packages: train, checkpoint, resume, same numbers."""

import json
import sys
import warnings

import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay, param_groups


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    # Their own deprecations and advice are no concern of these tests.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def adamw(params, **settings):
    return adaptive_decay(torch.optim.AdamW(params, **settings))


class AdamWForTrainer:
    """What transformers calls a factory: made first, then called with the model."""

    def __call__(self, model, *, weight_decay, **settings):
        return adamw(param_groups(model, weight_decay), **settings)


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


# transformers


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        tokens = (torch.arange(12) * (i % 5 + 1) + i) % 30
        return {"input_ids": tokens, "labels": tokens}


def hugging_face(folder, optimizer, *, steps, callbacks=()):
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(7)
    config = GPT2Config(
        vocab_size=30,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=5,
        per_device_train_batch_size=8,
        learning_rate=0.05,
        weight_decay=0.1,
        lr_scheduler_type="constant",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=100,
    )
    return Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Sentences(),
        callbacks=list(callbacks),
        optimizer_cls_and_kwargs=optimizer,
    )


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
    assert hasattr(inner, "_adaptation") or inner.param_groups[0]["alpha"] == 3.0
    decays = [group["weight_decay"] for group in whole.optimizer.param_groups]
    assert decays == [0.1, 0.0]
    assert not torch.equal(start[0], next(whole.model.parameters()))
    hugging_face(tmp_path / "parts", optimizer, steps=5).train()
    resumed = hugging_face(tmp_path / "parts", optimizer, steps=10)
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-5"))
    assert resumed.state.global_step == 10
    assert_same(whole.model.parameters(), resumed.model.parameters())


def test_transformers_callback_watches_theta(tmp_path):
    from adadecay.integrations.transformers import RatesMonitor

    optimizer = (AdaDecay, {"lr": 0.05, "momentum": 0.9})
    trainer = hugging_face(
        tmp_path, optimizer, steps=7, callbacks=[RatesMonitor(every=3)]
    )
    trainer.train()
    lines = (tmp_path / "adadecay.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert sorted({line["step"] for line in found}) == [0, 3, 6]
    assert "transformer.wte.weight" in {line["layer"] for line in found}
    assert all(0 < line["mean"] < 2 for line in found)
    assert not any("ln_" in line["layer"] for line in found)  # spared of decay


# Lightning


class Module:
    """Makes the LightningModule late, because importing lightning takes a while."""

    def __new__(cls, make):
        from lightning.pytorch import LightningModule

        class Regression(LightningModule):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                self.net = nn.Sequential(
                    nn.Linear(6, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 2)
                )

            def training_step(self, batch, index):
                x, y = batch
                loss = nn.functional.mse_loss(self.net(x), y)
                self.log("loss", loss)
                return loss

            def configure_optimizers(self):
                optimizer = make(param_groups(self.net, weight_decay=0.1))
                schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
                return [optimizer], [schedule]

        return Regression()


def lightning_fit(folder, make, *, epochs, resume=None, callbacks=(), logger=False):
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=generator)
    data = torch.utils.data.TensorDataset(x, x[:, :2].square())
    module = Module(make)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=logger,
        callbacks=[ModelCheckpoint(dirpath=folder, save_last=True), *callbacks],
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    trainer.fit(module, loader, ckpt_path=resume, weights_only=True)
    return module, trainer


MAKERS = {
    "AdaDecay": lambda groups: AdaDecay(groups, lr=0.1, momentum=0.9),
    "AdamW": lambda groups: adamw(groups, lr=0.01),
}


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


def test_lightning_callback_watches_theta(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    from adadecay.integrations.lightning import RatesMonitor

    seen = []
    for callback, logger in (
        (RatesMonitor(every=4, writers=[lambda step, _: seen.append(step)]), False),
        (RatesMonitor(every=5), CSVLogger(tmp_path)),
    ):
        lightning_fit(
            tmp_path,
            MAKERS["AdaDecay"],
            epochs=2,
            callbacks=[callback],
            logger=logger,
        )
        assert callback._monitors == []
    assert seen == [0, 4, 8]
    logged = next(tmp_path.rglob("metrics.csv")).read_text()
    assert "adadecay/mean/0.weight" in logged.splitlines()[0]


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
    with pytest.raises(TypeError, match="only stands in front of another optimizer"):
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
