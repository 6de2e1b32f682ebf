"""A trial is named by all that defines it, and by nothing else."""

import linecache
import subprocess
import sys
from collections import Counter
from types import ModuleType

import pytest

from adadecay.lab.plan import make_plan
from adadecay.lab.seeds import derive, reseed, trial_seed
from adadecay.lab.spec_file import built_in_names, make_spec, read_spec
from adadecay.lab.usercode import LIVE, name_of, source_digest

BASE = {
    "name": "base",
    "cells": [{"dataset": "digits", "network": "nn-2"}],
    "optimizers": ["sgd", "adadecay"],
    "trials": 2,
    "epochs": 3,
}


def _ids(**changes):
    return {trial.id for trial in make_plan(make_spec({**BASE, **changes})).trials}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"title": "another title"},
        {"baseline": "sgd"},
        {"device": "cpu"},
        {"threads": 2},
        {"schedule": "sigmoid"},
        {"optimizers": [{"name": "sgd", "label": "plain"}, "adadecay"]},
        {"optimizers": ["adadecay", {"name": "sgd", "momentum": 0.9, "lr": 0.1}]},
        {"cells": [{"dataset": "digits", "network": {"name": "nn-2", "width": 1.0}}]},
    ],
    ids=str,
)
def test_what_does_not_define_a_result_does_not_name_it(changes):
    assert _ids(**changes) == _ids()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"epochs": 4},
        {"batch_size": 64},
        {"holdout": 0.1},
        {"examples": 100},
        {"precision": "float64"},
        {"schedule": "exponential"},
        {"metric": "lab_own:absolute_error", "larger_is_better": False},
        {"loss": "lab_own:squared_error"},
        {"cells": [{"dataset": "digits", "network": {"name": "nn-2", "width": 0.5}}]},
        {"cells": [{"dataset": "digits", "network": "nn-3"}]},
        {"optimizers": [{"name": "sgd", "weight_decay": 1e-4}, {"name": "adam"}]},
        {"optimizers": [{"name": "sgd", "lr": 0.05}, {"name": "adadecay", "lr": 1}]},
    ],
    ids=str,
)
def test_what_defines_a_result_names_it(changes):
    assert not _ids(**changes) & _ids()


def test_more_trials_keep_those_that_there_were():
    assert _ids() < _ids(trials=5)


def test_ids_are_the_same_on_every_machine():
    """Changing what a trial is called loses every result: this must be wanted."""
    plan = make_plan(make_spec(BASE))
    assert [trial.id for trial in plan.trials[:2]] == [
        "2ae2652f0c29ffb2758b",
        "e51837edb42f296768bd",
    ]


def test_the_paper_is_as_large_as_it_says():
    plans = {name: make_plan(read_spec(name)) for name in built_in_names()}
    count = {name: len(plan.trials) for name, plan in plans.items()}
    assert count["paper/comparison"] == 8 * 50 * 6 + 4 * 32 * 6 == 3168
    assert count["paper/alpha"] == 5 * (50 + 50 + 32)
    assert count["paper/decay"] == 2 * 5 * 132
    assert count["paper/randomized"] == 3 * 132
    assert count["paper/dropout"] == 2 * 4 * 2 * 50
    assert count["paper/annealing"] == 4 * 132
    tables = ["comparison", "alpha", "decay", "randomized", "dropout"]
    distinct = {t.id for name in tables for t in plans[f"paper/{name}"].trials}
    assert len(distinct) == 5484


def test_studies_share_trials():
    plans = {
        name: {t.id for t in make_plan(read_spec(f"paper/{name}")).trials}
        for name in ("comparison", "alpha", "decay", "randomized", "dropout")
    }
    table = plans["comparison"]
    assert len(plans["alpha"] & table) == 132
    assert len(plans["decay"] & table) == 264
    assert len(plans["randomized"] & table) == 264
    assert len(plans["dropout"] & table) == 200


def test_every_optimizer_has_the_same_seeds_in_every_cell():
    plan = make_plan(read_spec("paper/comparison"))
    seeds = {}
    for trial in plan.trials:
        seeds.setdefault(trial.number, set()).add(trial.definition.seed)
    assert all(len(found) == 1 for found in seeds.values())
    assert len({seed for found in seeds.values() for seed in found}) == 50


def test_trials_go_number_by_number():
    plan = make_plan(read_spec("paper/comparison"))
    numbers = [trial.number for trial in plan.trials]
    assert numbers == sorted(numbers)
    assert Counter(numbers)[0] == 72
    assert Counter(numbers)[49] == 48


def test_deep_and_shallow_networks_get_their_own_settings():
    plan = make_plan(read_spec("paper/comparison"))
    found = {}
    for trial in plan.trials:
        key = trial.cell.network, trial.label
        found[key] = trial.definition
    assert found["nn-2", "adam"].lr == 1e-3
    assert found["resnet-18", "adam"].lr == 1e-4
    assert found["nn-2", "adam"].schedule.name == "constant"
    assert found["nn-2", "sgd"].schedule.name == "sigmoid"
    gamma = {
        network: found[network, "entropy-sgd"].optimizer.arguments["gamma"]
        for network in ("nn-2", "resnet-18")
    }
    assert gamma == {"nn-2": 1e-4, "resnet-18": 0.03}


def test_a_cells_own_numbers_come_before_the_studys():
    own = {"epochs": 7, "batch_size": 32, "trials": 1}
    cells = [{"dataset": "digits", "network": "nn-3", **own}, *BASE["cells"]]
    plan = make_plan(make_spec({**BASE, "cells": cells}))
    found = {
        (t.cell.network, t.definition.epochs, t.definition.batch_size, t.number)
        for t in plan.trials
    }
    assert found == {("nn-3", 7, 32, 0), ("nn-2", 3, 128, 0), ("nn-2", 3, 128, 1)}


def test_no_label_stands_for_two_things():
    for name in built_in_names():
        plan = make_plan(read_spec(name))
        kinds = {}
        for trial in plan.trials:
            key = (trial.cell.name, trial.label, trial.number)
            assert key not in kinds, f"{name}: {key}"
            kinds[key] = trial.id


def test_labels_tell_conditions_apart():
    twice = [{"name": "sgd"}, {"name": "sgd", "weight_decay": 1e-4}, "adadecay"]
    plan = make_plan(make_spec({**BASE, "optimizers": twice}))
    labels = [trial.label for trial in plan.trials if trial.number == 0]
    assert labels == ["sgd", "sgd(weight_decay=0.0001)", "adadecay"]
    with pytest.raises(
        ValueError, match="'sgd' appears twice in the cell 'digits/nn-2'"
    ):
        make_plan(make_spec({**BASE, "optimizers": ["sgd", "sgd"]}))


def test_planning_needs_no_torch():
    code = (
        "import sys\n"
        "from adadecay.lab import Study\n"
        "from adadecay.lab.spec_file import built_in_names\n"
        "n = sum(len(Study(name).plan.trials) for name in built_in_names())\n"
        "assert n > 9000, n\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_source_of_a_users_functions_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, beside = tmp_path / "their_model.py", tmp_path / "their_layers.py"
    module.write_text(
        "from their_layers import layer\n\ndef make():\n    return layer\n"
    )
    beside.write_text("layer = 1\n")
    first = source_digest("their_model:make")
    module.write_text(
        "from their_layers import layer\n\n\n# a comment\ndef make():\n  return layer\n"
    )
    assert source_digest("their_model:make") == first
    beside.write_text("layer = 2\n")
    second = source_digest("their_model:make")
    assert second != first
    module.write_text("from their_layers import layer\n\ndef make():\n    return 3\n")
    assert source_digest("their_model:make") not in (first, second)
    with pytest.raises(ValueError, match="neither installed nor in the current"):
        source_digest("their_modle:make")


def test_another_source_is_another_trial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "their_net.py"
    for key in ("loss", "metric"):
        found = set()
        for body in ("1", "2"):
            module.write_text(f"def f(outputs, targets):\n    return {body}\n")
            found |= _ids(**{key: "their_net:f"})
        assert len(found) == 8
    cells = [{"dataset": "digits", "network": "their_net:f"}]
    module.write_text("def f():\n    return 2\n")
    first = _ids(cells=cells)
    module.write_text("def f():\n    return 3\n")
    assert not first & _ids(cells=cells)


def test_packages_and_relative_imports_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("from .parts import x\nfrom . import more\n")
    (package / "parts.py").write_text("x = 1\n")
    (package / "more.py").write_text("y = 1\n")
    seen = {source_digest("their_package.net:make")}
    for file in ("parts.py", "more.py", "__init__.py"):
        (package / file).write_text("x = y = 2\n")
        seen.add(source_digest("their_package.net:make"))
    assert len(seen) == 4


def test_a_notebooks_cell_that_is_edited_is_another_trial(monkeypatch):
    """A cell has no file; its text is where IPython puts it, in linecache."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.delitem(sys.modules, LIVE, raising=False)
    seen = set()
    for body in ("1", "2"):
        text, cell = f"def train():\n    return {body}\n", f"<cell {body}>"
        lines = text.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, cell, (len(text), None, lines, cell))
        scope = {"__name__": "__main__"}
        exec(compile(text, cell, "exec"), scope)
        assert name_of(scope["train"]) == f"{LIVE}:train"
        seen.add(source_digest(f"{LIVE}:train"))
    assert len(seen) == 2


def test_functions_are_named_by_where_they_stand():
    assert name_of(derive) == "adadecay.lab.seeds:derive"
    with pytest.raises(ValueError, match="define it with `def` at the top level"):
        name_of(lambda: None)


def test_seeds_are_pinned():
    """They decide every number: a change must be wanted."""
    assert trial_seed(0, 0) == 1_408_750_630_455_302_267
    assert derive(trial_seed(0, 0), "batches", 3) == 963_997_339_978_789_198


def test_seeds_differ_by_each_of_their_parts():
    parts = [(a, b, c) for a in range(5) for b in ("x", "y") for c in range(5)]
    seeds = {derive(*part) for part in parts}
    assert len(seeds) == len(parts)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(1, 23) != derive(12, 3)


def test_reseeding_reaches_every_generator():
    import random

    import numpy
    import torch

    def draw():
        return random.random(), float(numpy.random.rand()), float(torch.rand(()))  # noqa: NPY002

    reseed(5, "epoch", 1)
    first = draw()
    reseed(5, "epoch", 2)
    second = draw()
    reseed(5, "epoch", 1)
    assert draw() == first
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_a_revision_is_written_only_where_code_computes_something_else():
    plan = make_plan(read_spec("paper/comparison"))
    parts = {}
    for trial in plan.trials:
        part = trial.definition.optimizer
        parts.setdefault(part.name, set()).add(part.to_json().get("revision"))
    assert parts.pop("entropy-sgd") == {2}
    assert all(found == {None} for found in parts.values())


def test_accelerated_sgd_has_its_authors_kappa_on_deep_networks():
    found = {
        (trial.cell.network, trial.definition.optimizer.arguments["kappa"])
        for trial in make_plan(read_spec("paper/comparison")).trials
        if trial.definition.optimizer.name == "accelerated-sgd"
    }
    shallow = {name for name, kappa in found if kappa == 1e3}
    deep = {name for name, kappa in found if kappa == 1e4}
    assert len(found) == len(shallow) + len(deep)
    assert {"nn-2", "nn-3"} <= shallow
    assert {"resnet-18", "googlenet"} <= deep
