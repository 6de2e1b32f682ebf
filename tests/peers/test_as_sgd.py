"""What people do with ``torch.optim.SGD``, done with AdaDecay and the wrapper.

Each test asks a question that a suite of torch, or of another library, asks of SGD.
"""

import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay, groups, native

SETTINGS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}


def wrapped_sgd(params, **options):
    return adaptive_decay(torch.optim.SGD(params, **{**SETTINGS, **options}))


def adadecay(params, **options):
    return AdaDecay(params, **{**SETTINGS, **options})


MAKERS = [adadecay, wrapped_sgd]


def with_gradient(*shape):
    param = nn.Parameter(torch.randn(shape))
    param.grad = torch.randn(shape)
    return param


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("how", ["subset", "new head", "grown", "one of many"])
def test_the_parameters_of_a_group_may_be_replaced(make, how):
    body, bias = with_gradient(6, 4), with_gradient(5)
    optimizer = make([{"params": [body, bias]}, {"params": [with_gradient(3, 4)]}])
    optimizer.step()
    del optimizer.param_groups[1]
    optimizer.step()
    if how == "subset":
        new = bias
        optimizer.param_groups[0]["params"] = [bias]
    elif how == "new head":
        new = with_gradient(7, 4)
        optimizer.add_param_group({"params": [new]})
    elif how == "grown":
        new = with_gradient(60, 4)
        optimizer.param_groups[0]["params"] = [new, bias]
    else:  # one flat tensor, but not one that holds the others
        new = with_gradient(9)
        optimizer.param_groups[0]["params"] = [new]
    before = new.detach().clone()
    optimizer.step()
    assert not torch.equal(new, before)


@pytest.mark.parametrize("make", MAKERS)
def test_lazy_modules(make):
    model = nn.LazyLinear(3)
    optimizer = make(model.parameters())
    model(torch.randn(2, 5)).sum().backward()
    before = model.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.weight, before)


SCRIPT = """
import pickle, sys, torch
for optimizer in pickle.load(open(sys.argv[1], "rb")):
    for param in optimizer.param_groups[0]["params"]:
        param.grad = torch.ones_like(param)
    optimizer.step()
    print(optimizer.param_groups[0]["params"][0].tolist())
"""


def test_pickled_optimizers_step_in_a_fresh_process(tmp_path):
    params = [nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    settings = {"lr": 0.125, "weight_decay": 0.5}
    optimizers = [
        adaptive_decay(torch.optim.AdamW([params[0]], **settings)),
        adaptive_decay(torch.optim.SGD([params[1]], **settings)),
    ]
    (tmp_path / "optimizers").write_bytes(pickle.dumps(optimizers))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "optimizers")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for param, optimizer in zip(params, optimizers, strict=True):
        param.grad = torch.ones(2)
        optimizer.step()
    expected = [str(param.tolist()) for param in params]
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_checkpoint_of_fused_sgd_asks_for_no_kernel(monkeypatch):
    params = [with_gradient(3)]
    sgd = torch.optim.SGD(params, fused=True, **SETTINGS)
    sgd.step()
    monkeypatch.setattr(native, "kernel", None)
    monkeypatch.setattr(native, "unavailable_reason", "it was not built")
    optimizer = adadecay(params)
    optimizer.load_state_dict(sgd.state_dict())
    before = params[0].detach().clone()
    optimizer.step()
    assert not torch.equal(params[0], before)
    assert optimizer.param_groups[0]["fused"] is None


@pytest.mark.parametrize("make", MAKERS)
def test_an_optimizer_may_be_made_in_a_compiled_function(make):
    model = nn.Linear(4, 2)

    def train(x):
        optimizer = make(model.parameters(), foreach=True)
        model(x).sum().backward()
        optimizer.step()

    before = model.weight.detach().clone()
    torch.compile(train, backend="eager")(torch.randn(3, 4))
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("flags", [{}, {"foreach": True}, {"foreach": False}], ids=str)
def test_a_parameter_twice_in_a_group_is_what_it_is_to_sgd(flags):
    """With α = 0, so that the numbers can be compared."""
    torch.manual_seed(3)
    ours, theirs = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        mine = adadecay([ours, ours], alpha=0.0, **flags)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        its = torch.optim.SGD(
            [theirs, theirs], foreach=flags.get("foreach"), **SETTINGS
        )
    for _ in range(3):
        ours.grad = torch.randn(3)
        theirs.grad = ours.grad.clone()
        mine.step()
        its.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_one_warning_a_process_that_nothing_decays(monkeypatch):
    monkeypatch.setattr(groups, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):  # as with an optimizer for each parameter
            AdaDecay([with_gradient(2)], lr=0.1)
    assert [str(w.message)[:36] for w in caught] == [
        "every parameter group has weight_dec"
    ]


@pytest.mark.skipif(native.kernel is None, reason="no kernel in this build")
@pytest.mark.parametrize("where", [{"device": "meta"}, {"dtype": torch.complex64}])
def test_fused_on_meta_or_complex_tensors_is_sgds_error(where):
    messages = []
    for kind in (torch.optim.SGD, AdaDecay):
        param = nn.Parameter(torch.empty(3, **where))
        param.grad = torch.empty(3, **where)
        optimizer = kind([param], fused=True, **SETTINGS)
        with pytest.raises(RuntimeError) as caught:
            optimizer.step()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("expanded", [True, False])
def test_gradients_stay_as_they_were_in_a_group_without_decay(decoupled, expanded):
    params = [with_gradient(4), with_gradient(4)]
    if expanded:
        params[1].grad = torch.tensor(0.5).expand(4)
    groups = [{"params": [params[0]]}, {"params": [params[1]], "weight_decay": 0.0}]
    inner = torch.optim.SGD(groups, nesterov=True, foreach=True, **SETTINGS)
    optimizer = adaptive_decay(inner, decoupled=decoupled)
    before = [(p.grad, p.grad.clone()) for p in params]
    for _ in range(2):
        optimizer.step()
    for param, (grad, values) in zip(params, before, strict=True):
        assert param.grad is grad
        assert torch.equal(grad, values)
