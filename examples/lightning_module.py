"""Lightning, with adaptive decay around AdamW: python examples/lightning_module.py."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn

from adadecay import adaptive_decay, param_groups
from adadecay.integrations.lightning import RatesMonitor


class Digits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10)
        )

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        groups = param_groups(self.net, weight_decay=0.05)  # biases and norms spared
        return adaptive_decay(torch.optim.AdamW(groups, lr=1e-3), alpha=4.0)


def main():
    pl.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32) / 16
    y = torch.tensor(labels)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True
    )
    module = Digits()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=10,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[RatesMonitor(every=100, writers=[show])],
    )
    trainer.fit(module, loader)
    correct = module.net(x[1400:]).argmax(1) == y[1400:]
    print(f"test accuracy {correct.float().mean():.1%}")


def show(step, layers):
    means = ", ".join(f"{layer.name} {layer.mean:.2f}" for layer in layers)
    print(f"step {step}: mean θ: {means}")


if __name__ == "__main__":
    main()
