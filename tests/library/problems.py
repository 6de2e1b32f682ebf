"""The one table of problems: layers of gradients that every path must get right.

Each problem is the gradient of one layer as float64 values that float32 holds exactly
(so both precisions are given the same numbers), made from a seed. `LAYERS` maps a name
to the array.
"""

import numpy as np

RNG = np.random.default_rng(1907_08931)


def _exact(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def _near_constant(spread: float) -> np.ndarray:
    return _exact(0.7 * (1 + spread * RNG.standard_normal((40, 50))))


def _one_outlier(position: int, size: int = 4000) -> np.ndarray:
    values = _exact(1e-3 * RNG.standard_normal(size))
    values[position] = _exact(100.0)
    return values


def _signs(size: int) -> np.ndarray:
    return RNG.choice([-1.0, 1.0], size)


LAYERS: dict[str, np.ndarray] = {
    "gaussian": _exact(RNG.standard_normal((30, 20))),
    "large gaussian": _exact(RNG.standard_normal((150, 33, 11))),
    "heavy tails": _exact(RNG.standard_cauchy((50, 40)).clip(-1e6, 1e6)),
    "mostly zero": _exact(RNG.standard_normal(999) * (RNG.random(999) < 0.05)),
    "uniform offset": _exact(5 + RNG.random((64, 9))),
    "constant": _exact(0.1 * _signs(257)),
    "constant pair": _exact([0.3, -0.3]),
    "zeros": np.zeros((6, 5)),
    "scalar": _exact(-2.5),
    "one element": _exact([3.0]),
    "two elements": _exact([1.0, -3.0]),
    "near constant 1e-3": _near_constant(1e-3),
    "near constant 1e-6": _near_constant(1e-6),
    "near constant one ulp": _exact(
        np.where(RNG.random(777) < 0.5, 1.0, 1.0 + 2.0**-23) * _signs(777)
    ),
    "constant but one": _exact([1.0] * 500 + [1.0 + 2.0**-20]),
    "outlier first": _one_outlier(0),
    "outlier last": _one_outlier(-1),
    "outlier in a million": _one_outlier(12345, 1_000_000),
    "tiny 1e-30": _exact(1e-30 * RNG.standard_normal((20, 31))),
    "huge 1e30": _exact(1e30 * RNG.standard_normal((20, 31))),
    "denormal": _exact(1e-42 * RNG.standard_normal(300)),
    "denormal and zero": _exact([0.0] * 99 + [1e-45]),
    "around the smallest normal": _exact(1.2e-38 * (1 + RNG.random(200))),
    "both ends": _exact([1e-38, 1e38, 1.0, -1e-20, 1e20]),
}

# Options of a step, beside the learning rate and λ.
SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.4},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "maximize": {"momentum": 0.9, "maximize": True},
    "maximize nesterov": {"momentum": 0.8, "nesterov": True, "maximize": True},
    "negative alpha": {"alpha": -1.0},
    "no decay": {"weight_decay": 0.0, "momentum": 0.9},
    "no decay nesterov": {"weight_decay": 0.0, "momentum": 0.9, "nesterov": True},
    "decoupled": {"decoupled": True},
    "decoupled momentum": {"decoupled": True, "momentum": 0.9, "dampening": 0.1},
    "decoupled nesterov": {"decoupled": True, "momentum": 0.9, "nesterov": True},
    "decoupled maximize": {"decoupled": True, "maximize": True},
    "unit mean": {"unit_mean": True, "momentum": 0.9},
    "unit mean decoupled": {"unit_mean": True, "decoupled": True},
}
