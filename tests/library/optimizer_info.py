"""AdaDecay as a row of torch's own table of optimizers, inputs and error inputs."""

import torch
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerErrorEnum,
    OptimizerInfo,
    OptimizerInput,
    get_error_inputs_for_all_optims,
    optim_db,
    optim_inputs_func_sgd,
)

from adadecay import AdaDecay

SGD_INFO = next(info for info in optim_db if info.optim_cls is torch.optim.SGD)
OWN_SETTINGS = {
    "alpha": {"alpha": 8.0, "weight_decay": 0.1},
    "negative alpha": {"alpha": -1.0, "weight_decay": 0.1, "momentum": 0.9},
    "decoupled": {"decoupled": True, "weight_decay": 0.1, "momentum": 0.9},
    "unit mean": {"unit_mean": True, "weight_decay": 0.1, "momentum": 0.9},
    "tensor weight decay": {"weight_decay": torch.tensor(0.1), "momentum": 0.9},
    "everything": {
        "lr": torch.tensor(0.01),
        "alpha": 2.0,
        "momentum": 0.9,
        "nesterov": True,
        "maximize": True,
        "decoupled": True,
        "unit_mean": True,
        "weight_decay": 0.1,
    },
}
WRONG_VALUES = {
    "negative lr": ({"lr": -0.5}, ValueError, "Invalid learning rate: -0.5"),
    "NaN lr": ({"lr": float("nan")}, ValueError, "Invalid learning rate: nan"),
    "infinite lr": ({"lr": float("inf")}, ValueError, "Invalid learning rate: inf"),
    "negative tensor lr": (
        {"lr": torch.tensor(-0.5)},
        ValueError,
        "Invalid learning rate: -0.5",
    ),
    "two tensor lrs": (
        {"lr": torch.tensor([0.1, 0.1])},
        ValueError,
        "Tensor lr must be 1-element, but it has 2",
    ),
    "word for lr": ({"lr": "fast"}, TypeError, "lr must be a number.*'fast'"),
    "truth for lr": ({"lr": True}, TypeError, "lr must be a number.*True"),
    "word for decoupled": (
        {"decoupled": "yes"},
        TypeError,
        "decoupled must be True or False, but it is 'yes'",
    ),
    "word for unit_mean": ({"unit_mean": "no"}, TypeError, "unit_mean must be True"),
    "number for rounding": (
        {"stochastic_rounding": 2},
        TypeError,
        "stochastic_rounding must be True or False, but it is 2",
    ),
    "negative decay": ({"weight_decay": -1}, ValueError, "weight_decay value: -1"),
    "NaN decay": (
        {"weight_decay": float("nan")},
        ValueError,
        "Invalid weight_decay value: nan",
    ),
    "two tensor decays": (
        {"weight_decay": torch.tensor([0.1, 0.1])},
        ValueError,
        "Tensor weight_decay must be 1-element",
    ),
    "negative momentum": ({"momentum": -0.5}, ValueError, "momentum value: -0.5"),
    "NaN momentum": (
        {"momentum": float("nan")},
        ValueError,
        "Invalid momentum value: nan",
    ),
    "NaN dampening": (
        {"dampening": float("nan")},
        ValueError,
        "Invalid dampening value: nan",
    ),
    "NaN alpha": ({"alpha": float("nan")}, ValueError, "Invalid alpha: nan.*finite"),
    "infinite alpha": ({"alpha": float("inf")}, ValueError, "Invalid alpha: inf"),
    "no alpha": ({"alpha": None}, TypeError, "alpha must be a number.*None"),
    "nesterov without momentum": (
        {"nesterov": True},
        ValueError,
        "Nesterov momentum requires a momentum and zero dampening.*momentum=0",
    ),
    "nesterov with dampening": (
        {"nesterov": True, "momentum": 0.9, "dampening": 0.1},
        ValueError,
        "Nesterov momentum requires.*dampening=0.1",
    ),
    "foreach and fused": (
        {"foreach": True, "fused": True},
        RuntimeError,
        "`fused` and `foreach` cannot be `True` together",
    ),
    "differentiable foreach": (
        {"foreach": True, "differentiable": True},
        RuntimeError,
        "`foreach` does not support `differentiable`",
    ),
    "differentiable fused": (
        {"fused": True, "differentiable": True},
        RuntimeError,
        "`fused` does not support `differentiable`",
    ),
    "layer_of without names": (
        {"layer_of": lambda name: name},
        ValueError,
        "layer_of=.*needs named parameters.*named_parameters",
    ),
    "unknown argument": ({"allpha": 4}, TypeError, "allpha"),
}


def inputs(device, dtype=None):
    own = [
        OptimizerInput(params=None, kwargs=kwargs, desc=desc)
        for desc, kwargs in OWN_SETTINGS.items()
    ]
    return optim_inputs_func_sgd(device, dtype) + own


def error_inputs(device, dtype):
    own = [
        ErrorOptimizerInput(
            OptimizerInput(params=None, kwargs=kwargs, desc=desc),
            error_on=OptimizerErrorEnum.CONSTRUCTION_ERROR,
            error_type=error_type,
            error_regex=regex,
        )
        for desc, (kwargs, error_type, regex) in WRONG_VALUES.items()
    ]
    return get_error_inputs_for_all_optims(device, dtype) + own


ADADECAY = OptimizerInfo(
    AdaDecay,
    optim_inputs_func=inputs,
    optim_error_inputs_func=error_inputs,
    scheduler_inputs=SGD_INFO.scheduler_inputs,
    supported_impls=("foreach", "differentiable"),
    supports_sparse=False,
)
