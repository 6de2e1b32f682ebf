"""The networks of the paper and a transformer, as registry rows; the maker of each."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adadecay.lab.registry import Entry, Registry, read_entries

if TYPE_CHECKING:
    from torch import Generator, nn

__all__ = ["NETWORKS", "make"]

NETWORKS = Registry(
    "network",
    read_entries("network", depth="shallow", smallest_image=1, channels_last=False),
)
"""The registry of networks: ``adadecay list networks``."""


def make(
    name: str,
    *,
    input_shape: tuple[int, int, int],
    classes: int,
    generator: "Generator",
    **arguments: Any,
) -> "nn.Module":
    """Build a network with weights drawn from ``generator``.

    Args:
        name: a row of :data:`NETWORKS`, or a user's ``"package.module:function"``,
            which gets those of ``input_shape``, ``classes`` and ``generator`` that it
            names, and its own arguments.
        input_shape: channels, height and width of one input.
        classes: number of outputs.
        generator: where the weights come from; on the CPU.
        **arguments: what the row takes, such as ``width``.

    Returns:
        The network in training mode, on the CPU.

    Example:
        >>> import torch
        >>> from adadecay.lab import networks
        >>> seeded = torch.Generator().manual_seed(0)
        >>> network = networks.make(
        ...     "nn-2", input_shape=(1, 28, 28), classes=10, generator=seeded
        ... )
        >>> sum(parameter.numel() for parameter in network.parameters())
        89610
    """
    entry = NETWORKS.get(name)
    checked = NETWORKS.check(name, arguments)
    maker = entry.load()
    given = {"input_shape": input_shape, "classes": classes}
    if entry.own:
        given |= {"generator": generator}
        return _make_own(name, maker, given, checked, generator)
    _check_input(entry, input_shape, classes)

    import torch

    from adadecay.lab.networks.weights import build

    network = build(lambda: maker(**given, **checked), generator)
    # Weights in this order are enough: convolutions then take any input to it.
    if entry.facts["channels_last"]:
        # torch's types leave out what its documentation offers here.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _check_input(entry: Entry, shape: tuple[int, int, int], classes: int) -> None:
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"The input_shape of network {entry.name!r} must be (channels, height, "
            f"width), each at least 1, not {tuple(shape)}."
        )
    smallest = entry.facts["smallest_image"]
    if min(shape[1:]) < smallest:
        raise ValueError(
            f"Network {entry.name!r} needs images of at least {smallest}×{smallest}, "
            f"not {shape[1]}×{shape[2]}."
        )
    if classes < 1:
        raise ValueError(f"classes must be at least 1, not {classes}.")


def _make_own(
    name: str,
    maker: Callable[..., "nn.Module"],
    given: dict[str, Any],
    arguments: dict[str, Any],
    generator: "Generator",
) -> "nn.Module":
    import torch

    parameters = inspect.signature(maker).parameters.values()
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        named = {each.name for each in parameters}
        given = {key: value for key, value in given.items() if key in named}
    # Most people's networks draw from torch's global generator: seed it from ours, so
    # that they start from paired weights too, and put it back as it was.
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        network = maker(**given, **arguments)
    if not isinstance(network, torch.nn.Module):
        raise TypeError(
            f"{name} must return a torch.nn.Module, but it returned "
            f"{type(network).__name__}."
        )
    return network
