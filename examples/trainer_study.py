"""transformers' Trainer inside a study: adadecay run examples/trainer_study.toml.

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


class Counting(torch.utils.data.Dataset):
    """Sequences that count up by one, two, three..., modulo 30."""

    def __init__(self, start, rows):
        self.start = start
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        tokens = (torch.arange(12) * (i % 5 + 1) + self.start + i) % 30
        return {"input_ids": tokens, "labels": tokens}


def train(make_optimizer, *, seed, epochs, layers=2):
    """Train with the optimizer of the study; yield the loss after each epoch."""
    set_seed(seed)
    config = GPT2Config(
        vocab_size=30,
        n_positions=16,
        n_embd=32,
        n_layer=layers,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=16,
                eval_strategy="epoch",
                save_strategy="no",
                use_cpu=True,
                seed=seed,
                report_to=[],
                disable_tqdm=True,
                log_level="error",
            ),
            train_dataset=Counting(0, 320),
            eval_dataset=Counting(7, 64),
            optimizers=(make_optimizer(model.named_parameters()), None),
        )
        trainer.train()
    for entry in trainer.state.log_history:
        if "eval_loss" in entry:
            yield {"loss": entry["eval_loss"]}
