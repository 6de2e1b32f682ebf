"""Real trainers from their own packages, each with something small to train."""

import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay, param_groups


def adamw(params, **settings):
    return adaptive_decay(torch.optim.AdamW(params, **settings))


class AdamWForTrainer:
    """What transformers calls a factory: made first, then called with the model."""

    def __call__(self, model, *, weight_decay, **settings):
        return adamw(param_groups(model, weight_decay), **settings)


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
