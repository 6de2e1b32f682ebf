"""transformers' Trainer inside a study: adadecay run examples/trainer_study.toml.

Model and data are those of trainer.py, beside this file.
"""

import tempfile

from trainer import Counting, text_model
from transformers import Trainer, TrainingArguments, set_seed


def train(make_optimizer, *, seed, epochs, layers=2):
    """Train with the optimizer of the study; yield the loss after each epoch."""
    set_seed(seed)
    model = text_model(layers)
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
            train_dataset=Counting(),
            eval_dataset=Counting(start=7, rows=64),
            optimizers=(make_optimizer(model.named_parameters()), None),
        )
        trainer.train()
    for entry in trainer.state.log_history:
        if "eval_loss" in entry:
            yield {"loss": entry["eval_loss"]}
