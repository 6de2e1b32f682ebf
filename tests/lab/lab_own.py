"""What a user might bring: a network, a dataset, a loss, a metric, training loops.

Also those that go wrong. Studies in the tests name them as ``"lab_own:…"``.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn


def small_network(input_shape, classes, width=8, dropout=0.25):
    """Batch norm and dropout, so that buffers and generators matter for resuming."""
    pixels = int(np.prod(input_shape))
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(pixels, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, classes),
    )


def small_dataset(rows=160, seed=0):
    """Two blobs for each of four classes."""
    generator = np.random.default_rng(seed)
    targets = np.arange(rows + 40) % 4
    inputs = generator.normal(size=(rows + 40, 1, 4, 4)) + targets[:, None, None, None]
    inputs = inputs.astype(np.float32)
    train, test = slice(0, rows), slice(rows, None)
    return (inputs[train], targets[train]), (inputs[test], targets[test])


def boxed_dataset(options):
    """The same, with its arguments in a table of their own."""
    return small_dataset(**options)


class Forgetful(torch.optim.SGD):
    """Keeps in its groups what a checkpoint that needs no pickle cannot hold."""

    def __init__(self, parameters, lr):
        super().__init__((value for _, value in parameters), lr)
        self.param_groups[0]["when"] = Path("now")


def lost_schedule(optimizer, epochs):
    """Gives a rate that is no number in the second epoch."""
    rates = [1.0, float("nan"), 1.0]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: rates[epoch % 3])


def rows_from(folder="nowhere", source="none", offline=True):
    """A dataset whose arguments have names that the lab's own loader has, too."""
    assert (folder, source, offline) == ("there", "mine", False)
    return small_dataset(rows=40)


def lines():
    """A regression problem: y = 3x − 1 with noise."""
    generator = np.random.default_rng(1)
    x = generator.uniform(-1, 1, size=(120, 1)).astype(np.float32)
    y = (3 * x - 1 + 0.1 * generator.normal(size=x.shape)).astype(np.float32)
    return (x[:90], y[:90]), (x[90:], y[90:])


def line_network():
    return nn.Linear(1, 1)


def squared_error(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)


def absolute_error(outputs, targets):
    return (outputs - targets).abs().mean()


def blow_up(input_shape, classes):
    """A network whose loss is not finite after the first epoch."""

    class Explosive(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(int(np.prod(input_shape)), classes)
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.passes += 1
            bad = torch.where(self.passes > 12, torch.nan, 0.0)
            return self.inner(x.flatten(1)) + bad

    return Explosive()


def faulty_network(input_shape, classes):
    raise ArithmeticError("the sum of my layers is wrong")


def numbers_only(make_optimizer, *, seed, epochs, gain=1.0, pause=0.0):
    """A training loop without training: fast, and every number is known."""
    for epoch in range(epochs):
        if pause:
            time.sleep(pause)
        yield {"accuracy": gain * (epoch + 1) + (seed % 97) / 97, "train_loss": 1.0}


def tells_its_threads(make_optimizer, *, seed, epochs):
    """What torch, and libraries that ask the environment, were given."""
    for _ in range(epochs):
        asked = float(os.environ["OMP_NUM_THREADS"])
        yield {"accuracy": float(torch.get_num_threads()), "asked": asked}


def counts_page_faults(make_optimizer, *, seed, epochs):
    """Score the pages that the system must supply to allocate 256 MB several times."""
    import resource

    for _ in range(epochs):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            [torch.ones(4 << 20) for _ in range(16)]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        yield {"accuracy": float(after - before)}


def long_epoch(make_optimizer, *, seed, epochs):
    """One quick epoch, then one that would outlast any test."""
    yield {"accuracy": 1.0}
    time.sleep(600)


def stubborn_epoch(make_optimizer, *, seed, epochs):
    """The same in one call of C code that never lets another thread run."""
    yield {"accuracy": 1.0}
    sum(range(10**11))


def train_resumable(make_optimizer, *, seed, epochs, checkpoint=None, pause=0.0):
    """A user's own loop that offers its state, and draws from global generators."""
    torch.manual_seed(seed % 2**31)
    model = nn.Linear(6, 3)
    optimizer = make_optimizer(model.named_parameters())
    start = 0
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"]
    for epoch in range(start, epochs):
        time.sleep(pause)
        x = torch.randn(32, 6)
        target = x[:, :3].argmax(dim=1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        yield {
            "train_loss": loss.item(),
            "accuracy": 100 * (model(x).argmax(1) == target).float().mean(),
            "checkpoint": state | {"epoch": epoch + 1},
        }


def train_plain(make_optimizer, *, seed, epochs):
    """A user's own loop that offers no state."""
    for row in train_resumable(make_optimizer, seed=seed, epochs=epochs):
        row.pop("checkpoint")
        yield row


def waits_in_its_first_epoch(make_optimizer, *, seed, epochs):
    """Long enough to be killed there."""
    time.sleep(60)
    yield {"accuracy": 1.0}


def counts_itself(make_optimizer, *, seed, epochs, called="epoch"):
    """Tells its own count of epochs, from 1, beside the score."""
    for epoch in range(epochs):
        yield {"accuracy": float(epoch), called: epoch + 1, "seconds": 99.0}


def dies_without_a_checkpoint(make_optimizer, *, seed, epochs):
    """Gets as far as its third epoch, always, and offers no state."""
    for epoch in range(epochs):
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"accuracy": float(epoch)}


def diverges_once(make_optimizer, *, seed, epochs):
    """The first trial that is run loses its loss, with a score that looks like one."""
    marker = Path(os.environ["ADADECAY_TEST_MARKER"])
    bad = not marker.exists()
    marker.touch()
    for _ in range(epochs):
        loss = float("nan") if bad else 1.0
        yield {"accuracy": 9.0 if bad else 50.0, "train_loss": loss}


def never_scores(make_optimizer, *, seed, epochs):
    for _ in range(epochs):
        yield {"accuracy": float("nan")}


def halves_its_rate(make_optimizer, *, seed, epochs):
    """A user's own annealing; the score is the rate that an epoch trains with."""
    optimizer = make_optimizer([nn.Parameter(torch.zeros(2))])
    for _ in range(epochs):
        [group] = optimizer.param_groups
        rate, group["lr"] = group["lr"], group["lr"] / 2
        yield {"accuracy": rate}


def die_once(make_optimizer, *, seed, epochs, how, marker):
    """Die in the second epoch, the first time it is run."""
    for epoch in range(epochs):
        if epoch == 1 and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), getattr(signal, how))
        yield {"accuracy": float(epoch)}


def die_always(make_optimizer, *, seed, epochs):
    yield {"accuracy": 1.0}
    os.kill(os.getpid(), signal.SIGILL)


def run_out_of_memory(make_optimizer, *, seed, epochs):
    yield {"accuracy": 1.0}
    raise MemoryError("no room for the activations")


def ends_early(make_optimizer, *, seed, epochs):
    yield {"accuracy": 1.0}


def yields_text(make_optimizer, *, seed, epochs):
    yield {"accuracy": "good"}


def yields_other(make_optimizer, *, seed, epochs):
    yield {"loss": 1.0}


def returns_nothing(make_optimizer, *, seed, epochs):
    return {"accuracy": 1.0}


def offers_objects(make_optimizer, *, seed, epochs, checkpoint=None):
    for _ in range(epochs):
        yield {"accuracy": 1.0, "checkpoint": {"when": Path("x")}}
