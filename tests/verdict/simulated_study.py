"""Simulated studies: tables as ``Study.results()`` and ``Study.rates()`` give them.

Scores follow a curve that rises to the setting's level, with a part that a seed shares
among all optimizers and a part of its own, so that pairs correlate as they do in truth.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from adadecay.lab import paper


@dataclass(frozen=True)
class Setting:
    dataset: str = "mnist"
    network: str = "nn-2"
    optimizer: str = "sgd"
    name: str | None = None
    method: str | None = None
    arguments: str = "{}"
    weight_decay: float = 5e-4
    alpha: float | None = None
    dropout: float | None = None
    schedule: str = "sigmoid"
    width: float = 1.0
    level: float = 98.5

    @property
    def cell(self) -> str:
        varied = f"(dropout={self.dropout})" if self.dropout else ""
        return f"{self.dataset}/{self.network}{varied}"

    @property
    def definition(self) -> str:
        """What defines a trial, as the lab writes it."""
        optimizer = {"weight_decay": self.weight_decay} | json.loads(self.arguments)
        optimizer |= {} if self.alpha is None else {"alpha": self.alpha}
        rate = {"lr": optimizer.pop("lr")} if "lr" in optimizer else {}
        network = {"dropout": self.dropout, "width": self.width}
        name = self.name or self.optimizer
        found = {
            "dataset": {"name": self.dataset},
            "network": {"name": self.network, "arguments": network},
            "optimizer": {"name": name, "arguments": optimizer},
            "schedule": {"name": self.schedule},
        }
        return json.dumps(found | rate)


def simulate(
    settings: Sequence[Setting],
    *,
    trials: int | Sequence[int] = 10,
    epochs: int = 100,
    spread: float = 0.1,
    shared: float = 0.5,
    seed: int = 0,
    status: Callable[[int, int], str] = lambda setting, number: "done",
    validation: bool = False,
) -> pl.DataFrame:
    """Return one row for each trial and epoch of every setting."""
    rng = np.random.default_rng(seed)
    counts = [trials] * len(settings) if isinstance(trials, int) else list(trials)
    common = rng.normal(size=max(counts))
    parts = [
        _rows(i, s, counts[i], epochs, spread, shared, common, rng, status, validation)
        for i, s in enumerate(settings)
    ]
    return pl.concat(parts)


def _rows(i, setting, trials, epochs, spread, shared, common, rng, status, validation):
    own = rng.normal(size=trials)
    offset = spread * (np.sqrt(shared) * common[:trials] + np.sqrt(1 - shared) * own)
    epoch = np.arange(epochs)
    rise = 12.0 * np.exp(-6 * epoch / max(epochs - 1, 1))
    rise = rise - rise[-max(1, epochs // 10) :].mean()
    noise = rng.normal(scale=spread / 5, size=(trials, epochs))
    scores = setting.level + offset[:, None] - rise[None, :] + noise
    states = [status(i, number) for number in range(trials)]
    seen = np.array([epochs if s == "done" else max(1, epochs // 3) for s in states])
    keep = (epoch[None, :] < seen[:, None]).ravel()
    number = np.repeat(np.arange(trials), epochs)
    name = setting.name or setting.optimizer
    table = pl.DataFrame(
        {
            "trial": np.repeat([f"{i:04x}-{n:04x}" for n in range(trials)], epochs),
            "cell": setting.cell,
            "dataset": setting.dataset,
            "network": setting.network,
            "optimizer": setting.optimizer,
            "optimizer_name": name,
            "setting": setting.definition,
            "method": setting.method or name,
            "arguments": setting.arguments,
            "weight_decay": setting.weight_decay,
            "alpha": pl.Series([setting.alpha], dtype=pl.Float64).new_from_index(
                0, trials * epochs
            ),
            "dropout": pl.Series([setting.dropout], dtype=pl.Float64).new_from_index(
                0, trials * epochs
            ),
            "schedule": setting.schedule,
            "width": setting.width,
            "number": number,
            "seed": number + 1000,
            "epoch": np.tile(epoch, trials),
            "epochs": epochs,
            "lr": 0.1,
            "train_loss": np.exp(-np.tile(epoch, trials) / 30.0),
            "test_accuracy": scores.ravel(),
            "test_loss": (100 - scores.ravel()) / 30,
            "validation_score": scores.ravel() - 0.3 if validation else None,
            "seconds": 1.0,
            "status": np.repeat(states, epochs),
            "score_name": "test_accuracy",
            "score": scores.ravel(),
        },
        schema_overrides={
            "validation_score": pl.Float64,
        },
    )
    return table.filter(pl.Series(keep))


def simulate_rates(
    results: pl.DataFrame,
    *,
    layers: Sequence[str] = ("0.weight", "0.bias", "2.weight"),
    mean: float = 0.7,
    seed: int = 0,
) -> pl.DataFrame:
    """Return θ for each trial, epoch and layer of the AdaDecay trials."""
    rng = np.random.default_rng(seed)
    who = results.filter(pl.col("optimizer_name") == "adadecay").select(
        "trial", "epoch"
    )
    parts = [
        who.with_columns(
            layer=pl.lit(layer),
            mean_theta=pl.Series(
                mean + 0.08 * k + rng.normal(scale=0.02, size=len(who))
            ),
            power_theta=pl.Series(
                mean + 0.1 + 0.05 * k + rng.normal(scale=0.02, size=len(who))
            ),
        )
        for k, layer in enumerate(layers)
    ]
    return pl.concat(parts)


def two_arms(gain: float = 0.2, **options) -> pl.DataFrame:
    """SGD and AdaDecay on MNIST with NN-2."""
    sgd = Setting()
    ours = replace(sgd, optimizer="adadecay", alpha=4.0, level=sgd.level + gain)
    return simulate([sgd, ours], **options)


def comparison_settings() -> list[Setting]:
    """The 72 settings of Table comparison, at the published levels."""
    return [
        Setting(
            dataset=cell.dataset,
            network=cell.network.lower(),
            optimizer=cell.optimizer,
            alpha=cell.alpha,
            schedule="constant" if cell.optimizer in ("rmsprop", "adam") else "sigmoid",
            level=cell.average,
        )
        for cell in paper.COMPARISON
    ]


def alpha_settings() -> list[Setting]:
    """The 15 settings of Table α."""
    return [
        Setting(
            dataset=cell.dataset,
            network=cell.network.lower(),
            optimizer=f"adadecay(alpha={cell.alpha:g})",
            name="adadecay",
            alpha=cell.alpha,
            arguments=json.dumps({"alpha": cell.alpha}),
            level=cell.average,
        )
        for cell in paper.ALPHA
    ]


def randomized_settings() -> list[Setting]:
    """The 9 settings of Table randomized."""
    return [
        Setting(
            dataset=cell.dataset,
            network=cell.network.lower(),
            optimizer=cell.optimizer,
            alpha=cell.alpha,
            level=cell.average,
        )
        for cell in paper.RANDOMIZED
    ]


def decay_settings() -> list[Setting]:
    """Accuracy over λ: three cells, five λ, two optimizers."""
    found = []
    for dataset, network in [
        ("mnist", "nn-2"),
        ("fashion-mnist", "nn-2"),
        ("cifar-10", "resnet-18"),
    ]:
        for k, decay in enumerate([1e-4, 3e-4, 5e-4, 7e-4, 1e-3]):
            for name in ("sgd", "adadecay"):
                base = paper.published(dataset, network, name).average
                found.append(
                    Setting(
                        dataset=dataset,
                        network=network,
                        optimizer=f"{name}(weight_decay={decay:g})",
                        name=name,
                        arguments=json.dumps({"weight_decay": decay}),
                        weight_decay=decay,
                        alpha=4.0 if name == "adadecay" else None,
                        level=base - 0.05 * (k - 2) ** 2,
                    )
                )
    return found


def dropout_settings() -> list[Setting]:
    """Accuracy over dropout: two cells, four rates, two optimizers."""
    return [
        Setting(
            dataset=dataset,
            network="lenet-4",
            optimizer=name,
            alpha=4.0 if name == "adadecay" else None,
            dropout=rate,
            level=paper.published(dataset, "lenet-4", name).average - rate,
        )
        for dataset in ("mnist", "fashion-mnist")
        for rate in (0.0, 0.0625, 0.125, 0.25)
        for name in ("sgd", "adadecay")
    ]


def whole_paper() -> list[Setting]:
    """Every setting of the paper, each once."""
    merged: dict[tuple, Setting] = {}
    for setting in [
        *comparison_settings(),
        *alpha_settings(),
        *randomized_settings(),
        *decay_settings(),
        *dropout_settings(),
    ]:
        key = (
            setting.dataset,
            setting.network,
            setting.name or setting.optimizer,
            setting.alpha,
            setting.weight_decay,
            setting.dropout or 0.0,
        )
        merged.setdefault(key, setting)
    return list(merged.values())
