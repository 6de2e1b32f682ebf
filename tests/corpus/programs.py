"""Short training programs whose final bits are frozen: every engine × option × dtype.

Each program is a name and the tensors to digest. ``main`` runs all of them on one rank
and those on DTensors on several, and writes their digests as JSON; ``test_corpus.py``
starts it with the instruction set pinned and compares with ``digests.json``.
"""

import functools
import hashlib
import json
import multiprocessing
import pathlib
import sys
import warnings

import numpy as np
import torch
import torch._dynamo  # what the first optimizer imports: once, not in each rank
import torch.distributed.tensor

from adadecay import AdaDecay, adaptive_decay, by_module
from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Stable,
)

SHAPES = {"a.weight": (31, 17), "a.bias": (17,), "b.weight": (5, 7, 3), "b.bias": ()}
LARGE = {"a.weight": (540, 500), "a.bias": (500,), "b.weight": (333,), "b.bias": (1,)}
STEPS = 4
ENGINES = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "default": {}}
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "complex64": torch.complex64,
}
MOMENTUM = {"momentum": 0.9}
OPTIONS = {
    "plain": {},
    "momentum": MOMENTUM,
    "dampening": {**MOMENTUM, "dampening": 0.3},
    "nesterov": {**MOMENTUM, "nesterov": True},
    "nesterov maximize": {**MOMENTUM, "nesterov": True, "maximize": True},
    "maximize": {"maximize": True},
    "alpha -1": {**MOMENTUM, "alpha": -1.0},
    "alpha 0": {**MOMENTUM, "alpha": 0.0},
    "no decay": {**MOMENTUM, "weight_decay": 0.0},
    "unit mean": {**MOMENTUM, "unit_mean": True},
    "pooled": {**MOMENTUM, "layer_of": by_module},
    "pooled unit mean": {"layer_of": by_module, "unit_mean": True},
    "tensor lr": {**MOMENTUM, "lr": "tensor"},
    "decoupled": {"decoupled": True},
    "decoupled momentum": {**MOMENTUM, "decoupled": True},
    "decoupled nesterov unit mean": {
        **MOMENTUM,
        "nesterov": True,
        "decoupled": True,
        "unit_mean": True,
    },
    "decoupled maximize": {**MOMENTUM, "decoupled": True, "maximize": True},
}
RULES = {
    "AdamW": (torch.optim.AdamW, {}),
    "AdamW foreach": (torch.optim.AdamW, {"foreach": True}),
    "Adam": (torch.optim.Adam, {"maximize": True}),
    "SGD nesterov": (torch.optim.SGD, {**MOMENTUM, "nesterov": True, "foreach": True}),
    "RMSprop": (torch.optim.RMSprop, {}),
}
WRAPS = {
    "decoupled": {},
    "coupled": {"decoupled": False},
    "unit mean": {"unit_mean": True},
    "pooled": {"layer_of": by_module},
    "alpha 0": {"alpha": 0.0},
}


def values(seed, shape, dtype):
    """Return normal numbers that depend on nothing but the seed."""
    return drawn(seed, shape, dtype.is_complex).to(dtype, copy=True)


@functools.cache
def drawn(seed, shape, is_complex):
    numbers = np.random.default_rng(seed).standard_normal(shape)
    if is_complex:
        more = np.random.default_rng(seed + 10**6).standard_normal(shape)
        numbers = numbers + 1j * more
    return torch.as_tensor(numbers)


def parameters(shapes, dtype):
    return [
        (name, torch.nn.Parameter(values(i, shape, dtype)))
        for i, (name, shape) in enumerate(shapes.items())
    ]


def set_gradients(named, step):
    for i, (_, param) in enumerate(named):
        grad = values(1000 * (step + 1) + i, param.shape, param.dtype)
        # One layer comes late, one is constant in one step.
        late = i == 3 and step == 0
        param.grad = None if late else grad if step != 2 or i != 1 else grad * 0 + 0.5


def train(named, optimizer):
    for step in range(STEPS):
        set_gradients(named, step)
        optimizer.step()
    return final(named, optimizer)


def final(named, optimizer):
    tensors = [param.detach() for _, param in named]
    for _, param in named:
        state = optimizer.state.get(param, {})
        tensors += [v for _, v in sorted(state.items()) if isinstance(v, torch.Tensor)]
    return tensors


def digest(tensors):
    total = hashlib.sha256()
    for tensor in tensors:
        raw = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        total.update(raw.detach().contiguous().flatten().view(torch.uint8).numpy())
    return total.hexdigest()[:12]


def settings(options):
    merged = {"lr": 0.05, "weight_decay": 0.1, **options}
    if merged["lr"] == "tensor":
        merged["lr"] = torch.tensor(0.05)
    return merged


def plain_programs():
    """AdaDecay by each engine; "default" is the kernel where there is one."""
    for engine, flags in ENGINES.items():
        for kind, dtype in DTYPES.items():
            for option, chosen in OPTIONS.items():
                named = parameters(SHAPES, dtype)
                optimizer = AdaDecay(named, **settings(chosen), **flags)
                yield f"{engine} | {kind} | {option}", train(named, optimizer)
        for option in ("momentum", "unit mean", "pooled", "decoupled"):
            named = parameters(LARGE, torch.float32)
            optimizer = AdaDecay(named, **settings(OPTIONS[option]), **flags)
            yield f"{engine} | large | {option}", train(named, optimizer)


def wrapped_programs():
    for rule, (kind, arguments) in RULES.items():
        for wrap, how in WRAPS.items():
            for name in ("float32", "float64", "bfloat16"):
                named = parameters(SHAPES, DTYPES[name])
                inner = kind(named, lr=0.01, weight_decay=0.1, **arguments)
                optimizer = adaptive_decay(inner, **how)
                yield f"{rule} | {name} | {wrap}", train(named, optimizer)


def control_programs():
    from adadecay.lab import optimizers

    generator = torch.Generator().manual_seed(5)
    for engine, flags in ENGINES.items():
        for option in ("momentum", "decoupled", "pooled"):
            for name, kind, more in (
                ("matched mean", "matched", {"by": "mean"}),
                ("matched power", "matched", {"by": "power"}),
                ("shuffled", "shuffled", {}),
                ("randomized", "randomized", {}),
            ):
                named = parameters(SHAPES, torch.float32)
                chosen = {"momentum": 0.0, **settings(OPTIONS[option]), **more}
                if chosen.pop("layer_of", None) and kind != "randomized":
                    chosen["pooling"] = "module"
                optimizer = optimizers.make(kind, named, generator=generator, **chosen)
                for group in optimizer.param_groups:
                    group.update(flags)
                yield f"{engine} | {name} | {option}", train(named, optimizer)


def rule_programs():
    chosen = {
        "cautious": Cautious(),
        "cautious adadecay": [AdaDecayRule(), Cautious()],
        "corrected stable": [Corrected(0.02), Stable(0.9)],
        "independent": Independent(0.5),
        "gradient norm": GradientNorm(),
    }
    for name, rule in chosen.items():
        for kind, shapes in (
            ("float32", SHAPES),
            ("float64", SHAPES),
            ("bfloat16", SHAPES),
            ("float32", LARGE),
        ):
            named = parameters(shapes, DTYPES[kind])
            inner = torch.optim.AdamW(named, lr=0.01, weight_decay=0.1)
            size = "large" if shapes is LARGE else kind
            yield f"{name} | {size}", train(named, adaptive_decay(inner, rule=rule))


def rank_programs(folder, rank, size):
    """AdaDecay and a wrapped AdamW on DTensors; each rank digests its own part."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    shapes = {**SHAPES, "b.bias": (2,)}

    def cut(tensor):
        return distribute_tensor(tensor, mesh, [Shard(0)])

    def train_sharded(make):
        named = [
            (name, torch.nn.Parameter(cut(param.detach())))
            for name, param in parameters(shapes, torch.float32)
        ]
        optimizer = make(named)
        for step in range(STEPS):
            whole = parameters(shapes, torch.float32)
            set_gradients(whole, step)
            for (_, param), (_, full) in zip(named, whole, strict=True):
                param.grad = None if full.grad is None else cut(full.grad)
            optimizer.step()
        return [
            getattr(t, "to_local", lambda t=t: t)() for t in final(named, optimizer)
        ]

    for engine, flags in ENGINES.items():
        for option in (
            "momentum",
            "unit mean",
            "pooled",
            "decoupled nesterov unit mean",
        ):
            chosen = {**settings(OPTIONS[option]), **flags}
            yield (
                f"{engine} | {option}",
                train_sharded(lambda named, chosen=chosen: AdaDecay(named, **chosen)),
            )
    for wrap in ("decoupled", "coupled"):
        yield (
            f"AdamW | {wrap}",
            train_sharded(
                lambda named, wrap=wrap: adaptive_decay(
                    torch.optim.AdamW(named, lr=0.01, weight_decay=0.1), **WRAPS[wrap]
                )
            ),
        )
    dist.barrier()
    dist.destroy_process_group()


ALONE = {
    "plain": plain_programs,
    "wrapped": wrapped_programs,
    "controls": control_programs,
    "rules": rule_programs,
}


def run_rank(folder, rank, size):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # one of the options has no decay
    alone = {name: programs() for name, programs in ALONE.items()} if size == 1 else {}
    found = {
        f"{section} | {name}": digest(tensors)
        for section, programs in {
            **alone,
            "ranks": rank_programs(folder, rank, size),
        }.items()
        for name, tensors in programs
    }
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(found))


def main(folder, sizes):
    """Fork the ranks from a process that has imported torch and computed nothing."""
    fork = multiprocessing.get_context("fork")
    for size in sizes:
        place = pathlib.Path(folder, str(size))
        place.mkdir()
        ranks = [
            fork.Process(target=run_rank, args=(place, rank, size), daemon=True)
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if worst := max(abs(rank.exitcode) for rank in ranks):
            sys.exit(worst)


if __name__ == "__main__":
    main(sys.argv[1], [int(size) for size in sys.argv[2:]])
