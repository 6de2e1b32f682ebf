"""torch's own expectations of an optimizer, over torch's own table of inputs."""

import copy
import io
import itertools
import pickle

import pytest
import torch
from optimizer_info import ADADECAY
from routes import FLAGS, PATHS

from adadecay import AdaDecay, by_module

pytestmark = pytest.mark.filterwarnings("ignore:every parameter group")

INPUTS = ADADECAY.optim_inputs_func("cpu")
every_input = pytest.mark.parametrize("given", INPUTS, ids=lambda i: i.desc)
every_path = pytest.mark.parametrize("path", PATHS)


def kwargs_of(given, path=None):
    return {**copy.deepcopy(given.kwargs), **(FLAGS[path] if path else {})}


def network(dtype=torch.float32):
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    ).to(dtype)


def backward(model, seed=0):
    """Fill the gradients from a seeded batch; give the loss."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    batch = torch.randn(16, 6, generator=generator).to(dtype)
    model.zero_grad()
    loss = (model(batch) - batch[:, :3]).square().mean()
    loss.backward()
    return loss


def train(model, optimizer, seeds):
    for seed in seeds:
        backward(model, seed)
        optimizer.step()


def assert_same_parameters(one, two):
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


ERRORS = ADADECAY.optim_error_inputs_func("cpu", torch.float32)


@pytest.mark.parametrize("case", ERRORS, ids=lambda c: c.optimizer_error_input.desc)
def test_errors(case):
    given = case.optimizer_error_input
    params = given.params if given.params is not None else [torch.ones(2, 2)]
    warns = issubclass(case.error_type, Warning)
    expected = pytest.warns if warns else pytest.raises
    with expected(case.error_type, match=case.error_regex):
        AdaDecay(params, **given.kwargs)


@every_input
def test_foreach_is_the_loop(given):
    results = []
    for path in ("loop", "foreach"):
        model = network(torch.float64)
        train(model, AdaDecay(model.parameters(), **kwargs_of(given, path)), range(8))
        results.append(list(model.parameters()))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@every_input
@every_path
def test_the_state_goes_through_a_file_without_pickle(given, path):
    model = network()
    optimizer = AdaDecay(model.parameters(), **kwargs_of(given, path))
    train(model, optimizer, range(3))
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    twin = network()
    twin.load_state_dict(weights)
    resumed = AdaDecay(twin.parameters(), lr=123.0, weight_decay=1e-9)
    resumed.load_state_dict(state)
    train(model, optimizer, range(3, 6))
    train(twin, resumed, range(3, 6))
    assert_same_parameters(model, twin)


@every_input
@every_path
@pytest.mark.parametrize(
    "copier", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_copies_go_on_alike(given, path, copier):
    model = network()
    optimizer = AdaDecay(
        model.named_parameters(), layer_of=by_module, **kwargs_of(given, path)
    )
    train(model, optimizer, range(2))
    twin, again = copier((model, optimizer))
    assert again.layer_of is by_module
    assert next(twin.parameters()) is again.param_groups[0]["params"][0]
    train(model, optimizer, range(2, 5))
    train(twin, again, range(2, 5))
    assert_same_parameters(model, twin)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_loading_keeps_the_parameters_dtypes(dtype):
    model = network()
    optimizer = AdaDecay(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    train(model, optimizer, [0])
    other = network(dtype)
    loaded = AdaDecay(other.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    loaded.load_state_dict(optimizer.state_dict())
    buffers = [loaded.state[p]["momentum_buffer"] for p in other.parameters()]
    assert {b.dtype for b in buffers} == {dtype}
    train(other, loaded, [1])


@every_path
def test_a_group_added_later_has_its_own_settings(path):
    first, second = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    optimizer = AdaDecay([first], lr=0.1, weight_decay=0.1, **FLAGS[path])
    optimizer.add_param_group({"params": [second], "alpha": 0.0, "weight_decay": 0.5})
    for param in (first, second):
        param.grad = torch.tensor([0.0, 1.0, 4.0])
    optimizer.step()
    plain = torch.nn.Parameter(torch.ones(3))
    plain.grad = second.grad.clone()
    torch.optim.SGD([plain], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(second, plain)
    assert not torch.equal(first, second)


@every_path
def test_pooling_stays_within_a_parameter_group(path):
    model = network()
    weights = [(n, p) for n, p in model.named_parameters() if n.endswith("weight")]
    biases = [(n, p) for n, p in model.named_parameters() if n.endswith("bias")]
    groups = [{"params": weights}, {"params": biases, "weight_decay": 0.2}]
    pooled = AdaDecay(
        groups, lr=0.1, weight_decay=0.1, layer_of=by_module, **FLAGS[path]
    )
    twin = copy.deepcopy(model)
    names = dict(twin.named_parameters())
    apart = AdaDecay(
        [
            {"params": [names[n] for n, _ in weights]},
            {"params": [names[n] for n, _ in biases], "weight_decay": 0.2},
        ],
        lr=0.1,
        weight_decay=0.1,
        **FLAGS[path],
    )
    train(model, pooled, range(3))
    train(twin, apart, range(3))
    assert_same_parameters(model, twin)


@every_path
def test_step_hooks_run_around_the_step(path):
    model, seen = network(), []
    optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=0.1, **FLAGS[path])
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    train(model, optimizer, range(2))
    assert seen == ["before", "after", "before", "after"]


@every_path
def test_the_closure_is_called_with_gradients_on_and_its_loss_returned(path):
    model = network()
    optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=0.1, **FLAGS[path])
    twin = copy.deepcopy(model)
    other = AdaDecay(twin.parameters(), lr=0.1, weight_decay=0.1, **FLAGS[path])
    loss = optimizer.step(lambda: backward(model))
    assert loss.item() == backward(twin).item()
    other.step()
    assert_same_parameters(model, twin)


@pytest.mark.parametrize("schedulers", ADADECAY.scheduler_inputs, ids=len)
@every_path
def test_schedulers_of_torch_drive_it(path, schedulers):
    model = network()
    optimizer = AdaDecay(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01, **FLAGS[path]
    )
    active = [make(optimizer) for make in schedulers]
    first = backward(model).item()
    for _ in range(30):
        loss = backward(model)
        optimizer.step()
        for scheduler in active:
            if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                scheduler.step(loss.item())
            else:
                scheduler.step()
    assert backward(model).item() < 0.9 * first
    assert optimizer.param_groups[0]["lr"] != 0.05


@every_input
@every_path
def test_the_loss_goes_the_right_way(given, path):
    model = network()
    options = kwargs_of(given, path)
    decay = float(options.get("weight_decay", 0))
    optimizer = AdaDecay(model.parameters(), **{**options, "lr": 0.05})
    before = backward(model).item()
    for _ in range(20):
        backward(model)
        optimizer.step()
    after = backward(model).item()
    if options.get("maximize"):
        assert after > before
    elif decay < 0.2:  # a strong decay is allowed to win over this loss
        assert after < before


@pytest.mark.parametrize("path", ["loop", "foreach"])
def test_complex_parameters_use_the_modulus(path):
    weight = torch.randn(5, 3, dtype=torch.complex64)
    param = torch.nn.Parameter(weight.clone())
    param.grad = torch.randn(5, 3, dtype=torch.complex64)
    optimizer = AdaDecay([param], lr=0.1, weight_decay=0.2, alpha=4.0, **FLAGS[path])
    optimizer.step()
    modulus = param.grad.abs().double()
    normal = (modulus - modulus.mean()) / modulus.std(correction=0)
    theta = 2 * torch.sigmoid(4 * normal)
    wanted = weight - 0.1 * (param.grad + 0.2 * theta * weight)
    torch.testing.assert_close(param.detach(), wanted.to(torch.complex64))


@pytest.mark.parametrize("given", INPUTS, ids=lambda i: i.desc)
def test_differentiable(given):
    # Autograd goes through the step: weights, gradients and momentum are its inputs.
    options = {**kwargs_of(given), "differentiable": True}

    def step(weight, grad, buffer):
        param = weight.clone()
        param.grad = grad
        optimizer = AdaDecay([param], **options)
        optimizer.state[param]["momentum_buffer"] = buffer.clone()
        optimizer.step()
        return param, optimizer.state[param]["momentum_buffer"]

    tensors = [torch.randn(6, dtype=torch.float64, requires_grad=True) for _ in "abc"]
    assert torch.autograd.gradcheck(step, tensors)


def test_differentiable_hyperparameters():
    lr, decay = (
        torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.1, 0.2)
    )
    weight = torch.randn(6, dtype=torch.float64)
    grad = torch.randn(6, dtype=torch.float64)

    def step(lr, decay):
        param = weight.clone()
        param.grad = grad
        AdaDecay([param], lr=lr, weight_decay=decay, differentiable=True).step()
        return param

    assert torch.autograd.gradcheck(step, [lr, decay])


@pytest.mark.parametrize(
    ("source", "target", "momentum"),
    list(
        itertools.product(
            [torch.optim.SGD, AdaDecay], [torch.optim.SGD, AdaDecay], [0.0, 0.9]
        )
    ),
)
def test_a_run_switches_between_sgd_and_adadecay(source, target, momentum):
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": 0.05}
    neutral = {AdaDecay: {"alpha": 0.0, "foreach": False}, torch.optim.SGD: {}}
    model = network()
    first = source(model.parameters(), **options, **neutral[source])
    train(model, first, range(3))
    second = target(model.parameters(), lr=9.0, **neutral[target])
    second.load_state_dict(first.state_dict())
    for group in second.param_groups:  # SGD's state brings None, and so the kernel
        group["foreach"] = False
    train(model, second, range(3, 6))
    twin = network()
    train(twin, torch.optim.SGD(twin.parameters(), **options), range(6))
    assert_same_parameters(model, twin)


def test_options_that_a_state_of_sgd_lacks_keep_their_value():
    model = network()
    saved = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.05).state_dict()
    groups = [
        {"params": [p], "alpha": float(i)} for i, p in enumerate(model.parameters())
    ]
    saved["param_groups"] = [
        {**saved["param_groups"][0], "params": [i]} for i in range(4)
    ]
    optimizer = AdaDecay(groups, unit_mean=True)
    optimizer.load_state_dict(saved)
    assert [g["alpha"] for g in optimizer.param_groups] == [0.0, 1.0, 2.0, 3.0]
    assert all(g["unit_mean"] for g in optimizer.param_groups)
    assert {g["weight_decay"] for g in optimizer.param_groups} == {0.05}
    train(model, optimizer, range(2))


def test_a_state_with_other_groups_is_refused_and_nothing_changes():
    model = network()
    optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=0.1)
    other = AdaDecay([{"params": [p]} for p in model.parameters()], weight_decay=0.1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(other.state_dict())
    assert len(optimizer.param_groups) == 1
    train(model, optimizer, range(2))
