"""The networks: pinned sizes, weights from the generator alone, any input and width."""

import sys

import pytest
import torch
from torch import nn

from adadecay.lab import networks
from adadecay.lab.networks import NETWORKS

COUNTS = {
    "nn-2": 89_610,
    "nn-3": 99_710,
    "lenet-4": 21_840,
    "vgg-9": 5_033_610,
    "resnet-18": 11_173_962,
    "resnet-50": 23_520_842,
    "googlenet": 6_166_250,
    "denseconv": 1_000_618,
    "vit-tiny": 204_938,
}
GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(name: str, shape: tuple[int, int, int] = GREY, seed: int = 0, **arguments):
    arguments = {"width": 0.125, **arguments}
    return networks.make(
        name, input_shape=shape, classes=10, generator=seeded(seed), **arguments
    )


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_registry_holds_the_papers_eight_and_a_transformer():
    assert NETWORKS.names() == tuple(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count_is_pinned(name):
    entry = NETWORKS.get(name)
    shape = GREY if entry.facts["depth"] == "shallow" else COLOUR
    network = networks.make(name, input_shape=shape, classes=10, generator=seeded())
    assert count(network) == COUNTS[name] == entry.facts["parameters"]


@pytest.mark.parametrize("shape", [GREY, COLOUR, (3, 28, 28), (1, 33, 17)])
@pytest.mark.parametrize("name", COUNTS)
def test_every_network_takes_every_shape_and_reaches_every_weight(name, shape):
    network = small(name, shape)
    x = torch.rand(2, *shape, generator=seeded())
    y = network(x)
    assert y.shape == (2, 10)
    y.square().sum().backward()
    for label, parameter in network.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.isfinite().all(), label
    # Reduced networks have dead units, yet every matrix must get some gradient.
    weights = [p for p in network.parameters() if p.dim() > 1]
    assert all(weight.grad.abs().sum() > 0 for weight in weights)


@pytest.mark.parametrize("name", COUNTS)
def test_weights_come_from_the_generator_and_nothing_else(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = small(name).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = small(name).state_dict(), small(name, seed=1).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    matrices = [key for key, value in first.items() if value.dim() > 1]
    assert matrices
    assert not any(torch.equal(first[key], other[key]) for key in matrices)


def test_weights_are_drawn_as_torch_draws_them():
    network = networks.make("vgg-9", input_shape=GREY, classes=10, generator=seeded())
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            bound = module.weight[0].numel() ** -0.5
            assert module.weight.abs().max() <= bound
            assert module.bias.abs().max() <= bound
            if module.weight.numel() > 10_000:  # a uniform's deviation is bound/√3
                deviation = module.weight.std().item()
                assert deviation == pytest.approx(bound / 3**0.5, rel=0.02)
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
            assert (module.running_mean == 0).all()
            assert (module.running_var == 1).all()


@pytest.mark.parametrize("name", COUNTS)
def test_width_scales_the_network(name):
    assert count(small(name, width=0.0625)) < count(small(name, width=0.25))
    outputs = small(name, width=1 / 64)(torch.zeros(2, *GREY))
    assert outputs.shape == (2, 10)


@pytest.mark.parametrize(("name", "width"), [("lenet-4", 1.0), ("vgg-9", 0.125)])
def test_pooling_before_relu_changes_no_bit(name, width):
    network = networks.make(
        name,
        input_shape=(1, 28, 28),
        classes=10,
        generator=torch.Generator().manual_seed(0),
        width=width,
    )
    layers = list(network)  # as the paper's networks are usually written
    pools = [k for k, each in enumerate(layers) if isinstance(each, nn.MaxPool2d)]
    for k in pools:
        layers[k : k + 2] = layers[k + 1], layers[k]
    assert all(isinstance(layers[k], nn.ReLU) for k in pools)
    x = torch.rand(32, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    x[:, :, :14] = 0  # equal values in a window, as at the edges of digits
    target = torch.arange(32) % 10
    found = []
    for each in (network, nn.Sequential(*layers)):
        output = each(x.contiguous(memory_format=torch.channels_last))
        loss = nn.functional.cross_entropy(output, target)
        grads = torch.autograd.grad(loss, list(network.parameters()))
        found.append([output, *grads])
    assert all(map(torch.equal, *found))


def test_dropout_drops_before_both_dense_layers_in_training_only():
    network = small("lenet-4", width=1.0, dropout=0.25)
    layers = list(network)
    drops = [at for at, layer in enumerate(layers) if isinstance(layer, nn.Dropout)]
    assert [layers[at].p for at in drops] == [0.25, 0.25]
    assert all(isinstance(layers[at + 1], nn.Linear) for at in drops)
    x = torch.rand(4, *GREY, generator=seeded())
    torch.manual_seed(0)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))
    plain = small("lenet-4", width=1.0).train()
    assert torch.equal(plain(x), plain(x))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("vgg-9", {"input_shape": (1, 8, 8)}, "at least 16×16, not 8×8"),
        ("lenet-4", {"input_shape": (1, 28, 15)}, "at least 16×16, not 28×15"),
        ("denseconv", {"input_shape": (1, 4, 4)}, "at least 8×8"),
        ("nn-2", {"input_shape": (784,)}, r"\(channels, height, width\)"),
        ("nn-2", {"classes": 0}, "classes must be at least 1"),
        ("nn-2", {"dropout": 0.5}, "Allowed: width"),
        ("nn-2", {"width": 0.0}, "of at least"),
        ("resnet-19", {}, "Did you mean 'resnet-18'"),
    ],
)
def test_bad_input_is_refused(name, change, words):
    given = {"input_shape": GREY, "classes": 10, "generator": seeded(), **change}
    with pytest.raises(ValueError, match=words):
        networks.make(name, **given)


def test_what_is_no_network_is_refused():
    given = {"input_shape": GREY, "classes": 10, "generator": seeded()}
    words = "math:gcd must return a torch.nn.Module, but it returned int"
    with pytest.raises(TypeError, match=words):
        networks.make("math:gcd", **given)


@pytest.mark.parametrize("name", ["vgg-9", "lenet-4", "denseconv", "resnet-18"])
def test_the_smallest_image_works(name):
    side = NETWORKS.get(name).facts["smallest_image"]
    network = small(name, (1, side, side))
    assert network(torch.rand(2, 1, side, side)).shape == (2, 10)


OWN = """
from torch import nn
def bare(classes, width=3): return nn.Linear(width, classes)
def generous(**given): return nn.Linear(len(given), given["classes"])
"""


def test_a_users_own_network_gets_what_it_names_and_paired_weights(
    tmp_path, monkeypatch
):
    (tmp_path / "own_cast_network.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = small("own_cast_network:bare", width=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert first.weight.shape == (10, 5)
    again = small("own_cast_network:bare", width=5)
    other = small("own_cast_network:bare", width=5, seed=1)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
    # input_shape, classes, generator and width
    assert small("own_cast_network:generous").weight.shape == (10, 4)


@pytest.mark.parametrize("name", COUNTS)
def test_the_layout_changes_no_weight_and_hardly_the_output(name):
    network = small(name)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    wide = [m.weight for m in convolutions if min(m.weight.shape[1:]) > 1]
    last = NETWORKS.get(name).facts["channels_last"]
    for weight in wide:
        ordered = weight.is_contiguous(memory_format=torch.channels_last)
        assert ordered is last
    x = torch.rand(4, *GREY, generator=seeded())
    expected = network(x)
    plain = small(name).to(memory_format=torch.contiguous_format)
    assert all(
        torch.equal(a, b)
        for a, b in zip(network.parameters(), plain.parameters(), strict=True)
    )
    torch.testing.assert_close(plain(x), expected, rtol=1e-4, atol=1e-4)
