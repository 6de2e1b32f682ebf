"""Starting weights that come from a passed generator and from nothing else."""

import math
from collections.abc import Callable

import torch
from torch import Generator, nn
from torch.nn import init


def build(maker: Callable[[], nn.Module], generator: Generator) -> nn.Module:
    """Build a network on the CPU with weights from ``generator``, module by module."""
    with torch.device("meta"):
        network = maker()
    network = network.to_empty(device="cpu")
    for module in network.modules():
        draw(module, generator)
    return network


def draw(module: nn.Module, generator: Generator) -> None:
    """Draw one module's own parameters: torch's defaults, uniform in ±1/√(fan in).

    Embeddings are normal with a deviation of 0.02, as transformers have them.
    """
    if isinstance(module, nn.Linear | nn.Conv2d):
        # a = √5 makes the He bound √(6/((1+a²)·fan in)) equal to 1/√(fan in).
        init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
        if module.bias is not None:
            bound = 1 / math.sqrt(module.weight[0].numel())
            init.uniform_(module.bias, -bound, bound, generator=generator)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, std=0.02, generator=generator)
    elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        module.reset_parameters()
    elif next(module.parameters(recurse=False), None) is not None:
        raise TypeError(
            f"No rule draws the weights of {type(module).__name__}: add it to "
            f"adadecay.lab.networks.weights.draw."
        )


def scaled(channels: int, width: float) -> int:
    """Multiply a number of channels by the width, and keep at least one."""
    return max(1, round(channels * width))
