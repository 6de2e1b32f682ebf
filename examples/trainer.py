"""A small text model with transformers' Trainer: python examples/trainer.py.

The model is built from its config and the text is made up, so nothing is downloaded.
"""

import tempfile

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

from adadecay import AdaDecay
from adadecay.integrations.transformers import RatesMonitor


class Counting(torch.utils.data.Dataset):
    """Sequences that count up by one, two, three..., modulo 30."""

    def __init__(self, start=0, rows=320):
        self.start = start
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        tokens = (torch.arange(12) * (i % 5 + 1) + self.start + i) % 30
        return {"input_ids": tokens, "labels": tokens}


def text_model(layers=2):
    config = GPT2Config(
        vocab_size=30,
        n_positions=16,
        n_embd=32,
        n_layer=layers,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def main():
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=text_model(),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=4,
                per_device_train_batch_size=16,
                weight_decay=0.1,  # for the weights; Trainer spares biases and norms
                logging_steps=20,
                use_cpu=True,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Counting(),
            optimizer_cls_and_kwargs=(AdaDecay, {"lr": 0.1, "momentum": 0.9}),
            callbacks=[RatesMonitor(every=40, writers=[show])],
        )
        trainer.train()
        losses = [
            entry["loss"] for entry in trainer.state.log_history if "loss" in entry
        ]
    print(f"loss {float(losses[0]):.2f} -> {float(losses[-1]):.2f}")


def show(step, layers):
    first = layers[0]
    print(f"step {step}: mean θ of {first.name} is {first.mean:.2f}")


if __name__ == "__main__":
    main()
