"""The networks of the paper and a transformer, as registry rows; the maker of each.

In: a name, the shape of an input, the number of classes, a generator for the weights.
Out: a ``torch.nn.Module`` on the CPU. A user's own is ``"package.module:function"``.
The registry is plain data: torch is imported by :func:`make` and not before.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adadecay.lab.registry import Argument, Entry, Registry

if TYPE_CHECKING:
    from torch import Generator, nn

__all__ = ["NETWORKS", "make"]

WIDTH = Argument(
    "width", float, 1.0, "multiplies the channels of each layer", minimum=1 / 64
)
DROPOUT = Argument(
    "dropout",
    float,
    0.0,
    "rate before each fully connected layer",
    minimum=0.0,
    maximum=0.99,
)


def _network(
    name: str,
    maker: str,
    summary: str,
    origin: str,
    *,
    parameters: int,
    shape: tuple[int, int, int],
    smallest: int = 1,
    channels_last: bool = False,
    arguments: tuple[Argument, ...] = (WIDTH,),
) -> Entry:
    facts = {
        "depth": "shallow" if shape[0] == 1 else "deep",
        "parameters": parameters,  # at full width, for ``shape`` and ten classes
        "shape": shape,
        "smallest_image": smallest,
        "channels_last": channels_last,  # where measured to be faster: docs/cast.md
    }
    return Entry(
        name,
        f"adadecay.lab.networks.{maker}",
        arguments=arguments,
        origin=origin,
        summary=summary,
        facts=facts,
    )


GREY, COLOUR = (1, 28, 28), (3, 32, 32)
NETWORKS = Registry(
    "network",
    [
        _network(
            "nn-2",
            "sequential:nn_2",
            "784-100-100-10, ReLU",
            "Blum and Li 1991; width: ours",
            parameters=89_610,
            shape=GREY,
        ),
        _network(
            "nn-3",
            "sequential:nn_3",
            "784-100-100-100-10, ReLU",
            "Blum and Li 1991; width: ours",
            parameters=99_710,
            shape=GREY,
        ),
        _network(
            "lenet-4",
            "sequential:lenet_4",
            "conv 10@5×5, pool, conv 20@5×5, pool, 50, 10; dropout before 50 and 10",
            "ours, after LeCun et al. 1998",
            parameters=21_840,
            shape=GREY,
            channels_last=True,
            smallest=16,
            arguments=(WIDTH, DROPOUT),
        ),
        _network(
            "vgg-9",
            "sequential:vgg_9",
            "conv 64 M 128 M 256 256 M 512 512 M, 512, 512, 10; batch norm",
            "ours, after Simonyan and Zisserman 2014",
            parameters=5_033_610,
            shape=GREY,
            channels_last=True,
            smallest=16,
        ),
        _network(
            "resnet-18",
            "resnet:resnet_18",
            "3×3 stem, basic blocks 2-2-2-2, widths 64 to 512",
            "He et al. 2016, CIFAR form",
            parameters=11_173_962,
            shape=COLOUR,
            channels_last=True,
        ),
        _network(
            "resnet-50",
            "resnet:resnet_50",
            "3×3 stem, bottleneck blocks 3-4-6-3, widths 64 to 512 (×4)",
            "He et al. 2016, CIFAR form",
            parameters=23_520_842,
            shape=COLOUR,
            channels_last=True,
        ),
        _network(
            "googlenet",
            "googlenet:googlenet",
            "192-channel stem, nine inception blocks, batch norm, 5×5 as two 3×3",
            "Szegedy et al. 2015, CIFAR form",
            parameters=6_166_250,
            shape=COLOUR,
            channels_last=True,
        ),
        _network(
            "denseconv",
            "densenet:denseconv",
            "DenseNet-BC, blocks 6-12-24-16, growth 12",
            "Huang et al. 2017; growth ours",
            parameters=1_000_618,
            shape=COLOUR,
            channels_last=True,
            smallest=8,
        ),
        _network(
            "vit-tiny",
            "vit:vit_tiny",
            "patches of 7×7, width 64, four blocks with four heads, mean of tokens",
            "Dosovitskiy et al. 2021; sizes ours",
            parameters=204_938,
            shape=GREY,
            smallest=7,
        ),
    ],
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
    if entry.own:
        given = {"input_shape": input_shape, "classes": classes, "generator": generator}
        return _make_own(maker, given, checked, generator)
    _check_input(entry, input_shape, classes)

    import torch

    from adadecay.lab.networks.weights import build

    network = build(
        lambda: maker(input_shape=input_shape, classes=classes, **checked), generator
    )
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
        return maker(**given, **arguments)
