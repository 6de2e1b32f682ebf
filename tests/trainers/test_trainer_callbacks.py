"""The callbacks that watch θ in real trainers: when they look, and when they stop."""

import json

import pytest
from small_trainers import MAKERS, hugging_face, lightning_fit

from adadecay import AdaDecay

pytestmark = pytest.mark.usefixtures("quiet")
OPTIMIZER = (AdaDecay, {"lr": 0.05, "momentum": 0.9})


def test_transformers_callback_watches_theta(tmp_path):
    from adadecay.integrations.transformers import RatesMonitor

    trainer = hugging_face(
        tmp_path, OPTIMIZER, steps=7, callbacks=[RatesMonitor(every=3)]
    )
    trainer.train()
    lines = (tmp_path / "adadecay.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert sorted({line["step"] for line in found}) == [0, 3, 6]
    assert "transformer.wte.weight" in {line["name"] for line in found}
    assert all(0 < line["mean"] < 2 for line in found)
    assert not any("ln_" in line["name"] for line in found)  # spared of decay


def test_transformers_callback_counts_on_after_a_resume_and_stops_at_the_end(tmp_path):
    from adadecay.integrations.transformers import RatesMonitor

    hugging_face(tmp_path, OPTIMIZER, steps=5).train()
    seen = []
    callback = RatesMonitor(every=3, writers=[lambda step, _: seen.append(step)])
    trainer = hugging_face(tmp_path, OPTIMIZER, steps=8, callbacks=[callback])
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    for _ in range(3):
        trainer.optimizer.optimizer.step()
    assert seen == [6]


def test_lightning_callback_watches_theta(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    from adadecay.integrations.lightning import RatesMonitor

    seen = []
    for callback, logger in (
        (RatesMonitor(every=4, writers=[lambda step, _: seen.append(step)]), False),
        (RatesMonitor(every=5), CSVLogger(tmp_path)),
    ):
        _, trainer = lightning_fit(
            tmp_path,
            MAKERS["AdaDecay"],
            epochs=2,
            callbacks=[callback],
            logger=logger,
        )
        for _ in range(4):
            trainer.optimizers[0].step()
    assert seen == [0, 4, 8]
    logged = next(tmp_path.rglob("metrics.csv")).read_text()
    assert "adadecay/mean/0.weight" in logged.splitlines()[0]


def test_lightning_callback_counts_on_after_a_resume_and_stops_on_an_error(tmp_path):
    from lightning.pytorch import Callback

    from adadecay.integrations.lightning import RatesMonitor

    class Fault(Callback):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == 13:
                self.optimizer = trainer.optimizers[0]
                raise ArithmeticError("enough")

    make = MAKERS["AdaDecay"]
    lightning_fit(tmp_path, make, epochs=2)
    seen, fault = [], Fault()
    watching = RatesMonitor(every=4, writers=[lambda step, _: seen.append(step)])
    with pytest.raises(ArithmeticError, match="enough"):
        lightning_fit(
            tmp_path / "rest",
            make,
            epochs=4,
            resume=tmp_path / "last.ckpt",
            callbacks=[watching, fault],
        )
    for _ in range(4):
        fault.optimizer.step()
    assert seen == [12]
