"""Bad input: one sentence that says what, where and what would be right."""

import warnings

import pytest
import torch
from routes import FLAGS, PATHS

from adadecay import AdaDecay, by_module, groups, native


def parameter(size=4):
    param = torch.nn.Parameter(torch.ones(size))
    param.grad = torch.arange(float(size))
    return param


def test_a_bad_group_leaves_the_optimizer_as_it_was():
    optimizer = AdaDecay([parameter()], lr=0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match="Invalid alpha: nan"):
        optimizer.add_param_group({"params": [parameter()], "alpha": float("nan")})
    assert len(optimizer.param_groups) == 1
    optimizer.step()


@pytest.mark.parametrize("other", [torch.optim.Adam, torch.optim.RMSprop])
def test_the_state_of_another_optimizer_is_refused(other):
    optimizer = AdaDecay([parameter()], lr=0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match="group 0 of the state is not of an AdaDecay"):
        optimizer.load_state_dict(other([parameter()]).state_dict())
    assert optimizer.param_groups[0]["weight_decay"] == 0.1


def test_layer_of_must_give_a_string():
    with pytest.raises(TypeError, match=r"for parameter 'a.weight' it returned 7"):
        AdaDecay([("a.weight", parameter())], weight_decay=0.1, layer_of=lambda n: 7)


def test_a_group_without_names_needs_none_without_layer_of():
    param = parameter()
    AdaDecay([param], lr=0.1, weight_decay=0.1).step()
    assert not torch.equal(param, torch.ones(4))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("named", [False, True])
def test_sparse_gradients_are_refused_by_name_and_nothing_changes(path, named):
    dense, sparse = parameter(), torch.nn.Parameter(torch.ones(3, 2))
    sparse.grad = torch.sparse_coo_tensor(
        [[1]], [[1.0, 2.0]], (3, 2), check_invariants=True
    ).coalesce()
    params = [("dense", dense), ("table", sparse)] if named else [dense, sparse]
    # The sparse one stands in a later group: the first must not have moved by then.
    optimizer = AdaDecay(
        [{"params": [params[0]]}, {"params": [params[1]]}],
        lr=0.1,
        momentum=0.9,
        weight_decay=0.1,
        **FLAGS[path],
    )
    where = "'table'" if named else "number 0 of its group"
    with pytest.raises(RuntimeError, match=f"sparse gradients.*parameter {where}"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(4))
    assert not optimizer.state


def test_a_closure_that_raises_changes_nothing():
    param = parameter()
    optimizer = AdaDecay([param], lr=0.1, weight_decay=0.1)

    def closure():
        raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        optimizer.step(closure)
    assert torch.equal(param, torch.ones(4))
    assert torch.is_grad_enabled()


def test_too_large_a_decay_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(groups, "_warned", set())
    with pytest.warns(UserWarning, match=r"lr=1.0 and weight_decay=0.5.*changes sign"):
        optimizer = AdaDecay([parameter()], lr=1.0, weight_decay=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            optimizer.step()


def test_a_schedule_that_grows_too_large_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(groups, "_warned", set())
    optimizer = AdaDecay([parameter()], lr=0.01, weight_decay=0.5)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 2.0
    with pytest.warns(UserWarning, match=r"lr=2.0 and weight_decay=0.5"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_no_decay_at_all_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(groups, "_warned", set())
    with pytest.warns(UserWarning, match="every parameter group has weight_decay=0"):
        optimizer = AdaDecay([parameter()], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        AdaDecay([{"params": [parameter()], "weight_decay": 0.1}], lr=0.1)


@pytest.mark.skipif(native.kernel is not None, reason="the kernel is present here")
def test_fused_without_a_kernel_says_so():
    with pytest.raises(RuntimeError, match="fused=True needs the kernel: "):
        AdaDecay([parameter()], weight_decay=0.1, fused=True)


def test_by_module_takes_the_last_part_away():
    assert by_module("features.0.weight") == "features.0"
    assert by_module("weight") == ""
