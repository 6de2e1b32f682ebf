"""A study is validated before anything runs, and every mistake names its place."""

import json
import re

import pytest

from adadecay.lab import Study, run
from adadecay.lab.plan import make_plan
from adadecay.lab.spec import StudySpec
from adadecay.lab.spec_file import SpecError, built_in_names, make_spec, read_spec
from adadecay.lab.variants import Variant, parse_only, vary

STUDY = """\
title = "A study"
trials = 3
epochs = 2

[[cells]]
dataset = "digits"
network = ["nn-2", "nn-3"]

[[optimizers]]
name = "sgd"

[[optimizers]]
name = "adadecay"
alpha = [1.0, 4.0]
"""


def varied(spec, **changes):
    return vary(spec, **changes)[0]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.parametrize("name", ["controls", "tuned[x=1]", "paper/mine", "smoke"])
def test_a_study_of_ones_own_does_not_pass_for_the_labs(tmp_path, name):
    """Its settings may be anything, and the lab's are judged by the paper."""
    path = tmp_path / f"{name.rpartition('/')[2]}.toml"
    path.write_text(f'name = "{name}"\n{STUDY}')
    with pytest.raises(SpecError, match="is a built-in study") as caught:
        read_spec(path)
    assert str(path) in str(caught.value)
    keys = {"dataset": "digits", "network": "nn-2", "optimizers": ["sgd"]}
    with pytest.raises(SpecError, match="is a built-in study"):
        Study(name=name, results=tmp_path, **keys)


def test_what_is_chosen_is_an_argument_of_some_optimizer(file):
    head = 'holdout = 0.1\nchosen = ["alfa"]\n'
    file.write_text(head + STUDY)
    with pytest.raises(SpecError, match=r"chosen: 'alfa' is not an arg.*'alpha'\?"):
        read_spec(file)
    file.write_text(head.replace("alfa", "alpha") + STUDY)
    spec = read_spec(file)
    assert spec.chosen == ("alpha",)
    assert varied(spec, trials=2).chosen == ("alpha",)
    assert varied(spec, only={"optimizer": ["sgd"]}).chosen == ()


def test_what_is_chosen_needs_held_out_data(file):
    file.write_text(
        'trials = 2\nchosen = ["alpha"]\n' + STUDY.replace("trials", "seed")
    )
    with pytest.raises(SpecError, match=r"mine.toml:2: chosen: needs.*holdout = 0.1"):
        read_spec(file)
    keys = {"name": "mine", "trainer": "lab_own:train_plain", "chosen": ["lr"]}
    keys["optimizers"] = [{"name": "sgd", "lr": [0.1, 0.2]}]
    with pytest.raises(
        SpecError, match=r"validation_accuracy.*score = 'test_accuracy'"
    ):
        make_spec({**keys, "score": "accuracy"})
    assert make_spec({**keys, "score": "test_accuracy"}).chosen == ("lr",)


def _error(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    return str(caught.value)


def test_a_file_becomes_a_study(file):
    spec = read_spec(file)
    assert (spec.name, spec.trials, spec.epochs) == ("mine", 3, 2)
    assert [named.name for named in spec.cells[0].network] == ["nn-2", "nn-3"]
    labels = {trial.label for trial in make_plan(spec).trials}
    assert labels == {"sgd", "adadecay(alpha=1)", "adadecay(alpha=4)"}


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("trials = 3", "trails = 3", [":2: trails: unknown key", "'trials'?"]),
        ("trials = 3", "trials = 0", [":2: trials:", "must be greater", "it is 0"]),
        ('"digits"', "3", ["dataset", "must be a name or a table (it is 3)"]),
        ("trials = 3", 'trials = "3"', [":2: trials:", "integer", "it is '3'"]),
        ("trials = 3", "trials = true", [":2: trials:", "it is True"]),
        ("epochs = 2", "epochs = 2.5", [":3: epochs:", "it is 2.5"]),
        ('"digits"', '"digit"', [":6: cells[0].dataset", "Did you mean 'digits'?"]),
        ('"nn-3"', '"nn-4"', [":7: cells[0].network", "'nn-4'", "Allowed: nn-2"]),
        ('"sgd"', '"sdg"', [":10: optimizers[0]", "Did you mean 'sgd'?"]),
        ("alpha =", "alhpa =", ["optimizers[1]", "'alhpa'", "Did you mean 'alpha'?"]),
        ("[1.0, 4.0]", '"four"', ["optimizers[1]", "a finite number, not 'four'"]),
        ("[1.0, 4.0]", "[]", ["optimizers[1]", "the list alpha is empty"]),
        ("[1.0, 4.0]", "[1.0, inf]", ["optimizers[1]", "finite number, not inf"]),
        ('title = "A study"', "device = 'gpu'", [":1: device:", "'auto'", "'gpu'"]),
        ('title = "A study"', "holdout = 1.0", [":1: holdout:", "less than 1"]),
        ('title = "A study"', "schedule = 'cosine'", [":1: schedule", "sigmoid"]),
        (
            'title = "A study"',
            "baseline = 'SGD'",
            ["baseline: 'SGD' is", "n 'sgd'?"],
        ),
        ('title = "A study"', "loss = 'mine'", [":1: loss:", "package.module:func"]),
        ('title = "A study"', "name = '../x'", [":1: name:", "letters, digits"]),
        ('title = "A study"', "name = 'a/../x'", [":1: name:", "letters, digits"]),
        ('title = "A study"', "name = 'x..y'", [":1: name:", "letters, digits"]),
        ('title = "A study"', "name = 'x y'", [":1: name:", "letters, digits"]),
        ('title = "A study"', "name = 'x[../y]'", [":1: name:", "letters, digits"]),
        ('name = "sgd"', 'name = "sgd"\nlr = -1.0', ["[0].lr", "greater than 0"]),
        ('name = "sgd"', 'name = "sgd"\nlr = "1"', ["[0].lr: must be a valid number"]),
        ('name = "sgd"', 'name = "sgd"\nlr = [1, "1"]', ["[0].lr[1]: must be a valid"]),
        ('name = "sgd"', 'name = "my:opt"', ["optimizers[0]", "needs lr"]),
        ("[[cells]]", "[cells]", ["cells:", "list of tables: write [["]),
        ("trials = 3", "trials = = 3", ["not valid TOML", "line 2"]),
        ('dataset = "digits"\n', "", ["cells[0].dataset: missing"]),
        ("[[cells]]\n", "[[cells]]\nepoch = 1\n", ["cells[0].epoch: unknown key"]),
        ("[1.0, 4.0]", "[1.0, 4.0", ["not valid TOML", "array"]),
    ],
)
def test_every_mistake_names_file_place_value_and_what_is_allowed(
    file, old, new, parts
):
    message = _error(file, old, new)
    assert message.startswith(str(file))
    for part in parts:
        assert part in message


def test_a_table_of_an_unknown_key_is_told_at_its_first_line(file):
    lines = _error(file, "[[optimizers]]", "[[optimizer]]").splitlines()
    wrong = f"{file}:9: optimizer: unknown key. Did you mean 'optimizers'?"
    assert lines == [f"{file}: optimizers: missing.", wrong]
    file.write_text(STUDY)
    dotted = 'dataset.name = "digit"'
    assert _error(file, 'dataset = "digits"', dotted).startswith(f"{file}:6: ")


TABLE = "lr, label, schedule"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"sgd"', '"sgd"\nlearning_rate = 0.1', f"n 'lr'? Allowed: w*, {TABLE}, rule."),
        ("alpha =", "learning_rate =", f"n 'lr'? Allowed: weight_decay, *, {TABLE}."),
        ("alpha =", "unit_mean =", "Did you mean the optimizer 'unit-mean'?"),
        ("alpha =", "layer_of =", "Did you mean 'pooling'?"),
        ("alpha =", "lrr =", "Did you mean 'lr'?"),
        ('"sgd"', '"adamw"', "Did you mean 'torch.optim:AdamW'?"),
        ('"sgd"', '"AdamW"', "Did you mean 'torch.optim:AdamW'?"),
        ('"sgd"', '"torch.optim.Adam"', "Did you mean 'torch.optim:Adam'?"),
        ('"nn-3"', '"blobs.network"', "Did you mean 'blobs:network'? Allowed: nn-2"),
        ('"nn-3"', '"blobs.py"', "'blobs.py'. Allowed: *, or your own as module:func"),
        ('"digits"', '"blobs.py:data"', "'blobs.py', which * file: write it without"),
        ("trials", 'schedule = "cosine"\ntrials', "'cosine'. Allowed: sigmoid, const"),
        ("trials", 'schedule = "cosine"\ntrials', "staircase, or your own as module:"),
        ("trials", "rubbish = 1\ntrials", "rubbish: unknown key. Allowed: name"),
    ],
)
def test_what_is_meant_is_told_and_nothing_that_is_not_near(file, old, new, said):
    words = map(re.escape, said.split("*"))
    assert re.search("[^.]*".join(words), _error(file, old, new))


def test_without_optimizers_nothing_else_is_said_of_them(file):
    head = 'baseline = "sgd"\nholdout = 0.1\nchosen = ["lr"]\n'
    file.write_text(head + STUDY.partition("[[optimizers]]")[0])
    with pytest.raises(SpecError) as caught:
        read_spec(file)
    assert str(caught.value) == f"{file}: optimizers: missing."


def test_a_learning_rate_that_is_chosen_is_called_lr(file):
    head = 'holdout = 0.1\nchosen = ["learning_rate"]\n'
    file.write_text(head + STUDY.replace('"sgd"', '"sgd"\nlr = [0.1, 0.2]'))
    with pytest.raises(SpecError, match=r"optimizer in the study. Did you mean 'lr'\?"):
        read_spec(file)


def test_all_mistakes_are_told_at_once(file):
    message = _error(file, "trials = 3\nepochs = 2", "trials = 0\nepochs = 0")
    assert len(message.splitlines()) == 2


def test_all_mistakes_of_one_table_are_told_at_the_line_of_their_key(file):
    lines = _error(file, '"sgd"', '"sgdd"\nlr = [0.03, -0.1]').splitlines()
    assert [line.partition(" ")[0] for line in lines] == [f"{file}:10:", f"{file}:11:"]
    assert "unknown optimizer 'sgdd'" in lines[0]
    assert "greater than 0" in lines[1]
    file.write_text(STUDY)
    wrong = 'aplha = 2\nmomentum = 0.9\nweight_decay = "5e-4"'
    lines = _error(file, "alpha = [1.0, 4.0]", wrong).splitlines()
    assert [line.partition(" ")[0] for line in lines] == [f"{file}:14:", f"{file}:16:"]
    assert "Did you mean 'alpha'?" in lines[0]
    assert "must be a finite number of at least 0, not '5e-4'" in lines[1]


def test_tables_within_a_table_do_not_count_as_one_more(file):
    rule = 'name = "torch.optim:AdamW"\nlr = 1e-3\n[[optimizers.rule]]\n'
    rule += 'name = "cautious"\n'
    file.write_text(STUDY.replace('name = "sgd"\n', rule))
    message = _error(file, "alpha = [1.0, 4.0]", "alhpa = 3")
    assert message.startswith(f"{file}:17: optimizers[1].alhpa")


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"trainer": "a:b", "score": "x", "loss": "a:c"}, "loss cannot be used"),
        ({"trainer": "a:b", "score": "x", "holdout": 0.1}, "holdout cannot be used"),
        ({"trainer": "a:b"}, "needs score"),
        ({"trainer": "ab", "score": "x"}, "must have the form"),
        ({}, "needs at least one [[cells]]"),
    ],
)
def test_a_trainer_and_cells_exclude_each_other(keys, part):
    with pytest.raises(SpecError, match=part.replace("[", r"\[")):
        make_spec({"name": "x", "optimizers": ["sgd"], **keys})


def test_names_that_do_not_exist(tmp_path):
    with pytest.raises(SpecError, match="Did you mean 'paper/comparison'"):
        read_spec("paper/comparisons")
    with pytest.raises(SpecError, match="No such file"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "moons.toml").touch()
    with pytest.raises(SpecError, match=r"Did you mean '.*moons.toml'\?"):
        read_spec(tmp_path / "moon")
    with pytest.raises(SpecError) as caught:
        read_spec(tmp_path / "nope")
    assert "Did you mean" not in str(caught.value)


def test_every_built_in_study_is_valid_and_says_what_it_asks():
    names = built_in_names()
    wanted = {"decay", "alpha", "randomized", "dropout", "comparison", "annealing"}
    wanted = {f"paper/{name}" for name in {*wanted, "tuning"}}
    wanted |= {"controls", "miniature", "readings", "rules", "transformer", "tuned"}
    wanted |= {"quickstart", "smoke"}
    assert wanted == set(names)
    for name in names:
        spec = read_spec(name)
        assert spec.name == name
        assert spec.title
        assert spec.summary
        assert make_plan(spec).trials


def test_a_variant_says_what_was_changed():
    spec = read_spec("paper/comparison")
    changed = varied(
        spec, trials=5, epochs=10, only={"network": ["nn-2", "resnet-18"]}, width=0.25
    )
    assert changed.name == (
        "paper/comparison[trials=5,epochs=10,network=nn-2+resnet-18,width=0.25]"
    )
    plan = make_plan(changed)
    assert len(plan.trials) == 5 * 6 * 3
    assert {cell.network for cell in plan.cells} == {"nn-2", "resnet-18"}
    assert {t.definition.network.arguments["width"] for t in plan.trials} == {0.25}
    assert {t.definition.epochs for t in plan.trials} == {10}
    again = varied(changed, seed=1)
    assert again.name.endswith("width=0.25,seed=1]")
    assert not {t.id for t in make_plan(again).trials} & {t.id for t in plan.trials}


VARIANTS = [
    (
        Variant("paper/alpha", (("trials", 10), ("network", ("nn-2", "nn-3")))),
        "paper/alpha[trials=10,network=nn-2+nn-3]",
        "adadecay run paper/alpha --trials 10 --only network=nn-2,nn-3",
    ),
    (
        Variant("controls", (("optimizer", ("sgd", "adadecay, pooled")),)),
        "controls[optimizer=sgd+adadecay,pooled]",
        "adadecay run controls --only 'optimizer=sgd,adadecay, pooled'",
    ),
    (
        Variant("smoke", (("batch_size", 8), ("holdout", 0.125), ("width", 2.0))),
        "smoke[batch_size=8,holdout=0.125,width=2]",
        "adadecay run smoke --batch-size 8 --holdout 0.125 --width 2",
    ),
    (
        Variant("mine", (("optimizer", ("größer/1",)),)),
        "mine[optimizer=grer.1-0966ea]",
        "adadecay run mine --only 'optimizer=größer/1'",
    ),
    (
        Variant("smoke", (("trials", 2), ("seed", 1))),
        "smoke[trials=2,seed=1]",
        "adadecay run smoke --trials 2 --seed 1",
    ),
    (Variant("smoke"), "smoke", "adadecay run smoke"),
]


@pytest.mark.parametrize(("variant", "name", "command"), VARIANTS)
def test_name_and_command_of_a_variant_come_from_its_changes(variant, name, command):
    assert variant.name == name
    assert variant.command == command
    assert Variant.from_json(json.loads(json.dumps(variant.to_json()))) == variant


def test_a_variant_of_a_variant_is_read_as_earlier_versions_stored_it():
    inner = {"base": "smoke", "changes": [["trials", 2]]}
    outer = {"base": inner, "changes": [["optimizer", ["sgd"]]]}
    changes = (("trials", 2), ("optimizer", ("sgd",)))
    assert Variant.from_json(outer) == Variant("smoke", changes)


def test_a_stored_variant_knows_what_was_changed(tmp_path):
    study = Study("smoke", results=tmp_path).vary(trials=1, epochs=1, examples=8)
    study = study.vary(only={"optimizer": ["sgd"]})
    run(study, workers=0, progress=False)
    again = Study(study.name, results=tmp_path)
    assert again.variant == study.variant
    command = "adadecay run smoke --trials 1 --epochs 1 --examples 8"
    assert again.variant.command == f"{command} --only optimizer=sgd"


def test_two_variants_never_share_a_name():
    """A label may hold what a file's name may not: what was lost still counts."""
    spec = read_spec("quickstart")
    labels = ["sgd, λ", "sgd, μ"]
    twins = [{"name": "sgd", "label": label} for label in labels]
    both = make_spec({**spec.model_dump(exclude_unset=True), "optimizers": twins})
    one, other = (varied(both, only={"optimizer": [label]}).name for label in labels)
    assert one != other


def test_nothing_changed_is_the_study_itself():
    spec = read_spec("quickstart")
    assert varied(spec, trials=None, only={}) is spec


def test_a_variant_without_the_baseline_has_none():
    spec = varied(read_spec("quickstart"), only={"optimizer": ["adadecay"]})
    assert spec.baseline is None
    assert isinstance(spec, StudySpec)


def test_a_label_is_meant_before_a_name():
    spec = read_spec("controls")
    for names, labels in (
        (["sgd"], [None]),
        (["sgd(weight_decay=0.00035)"], ["sgd(weight_decay=0.00035)"]),
        (["adadecay, pooled", "matched"], [None, None, "adadecay, pooled"]),
    ):
        kept = varied(spec, only={"optimizer": names}).optimizers
        assert [each.label for each in kept] == labels
    grid = varied(read_spec("paper/alpha"), only={"optimizer": ["adadecay"]})
    assert len(make_plan(grid).trials) == len(
        make_plan(read_spec("paper/alpha")).trials
    )


@pytest.mark.parametrize(
    ("only", "part"),
    [
        ({"network": ["nn-9"]}, "no such network; it has denseconv"),
        ({"optimizer": ["lion"]}, "no such optimizer; it has accelerated-sgd"),
    ],
)
def test_keeping_what_is_not_there(only, part):
    with pytest.raises(SpecError, match=part):
        varied(read_spec("paper/comparison"), only=only)


def test_a_point_of_a_grid_is_kept_by_what_tables_call_it():
    spec = read_spec("paper/dropout")
    names = ["lenet-4(dropout=0.125)", "lenet-4(dropout=0)"]
    few = varied(spec, only={"network": names, "dataset": ["mnist"]})
    (cell,) = few.cells
    assert [each.name for each in cell.dataset] == ["mnist"]
    assert [each.arguments for each in cell.network] == [
        {"dropout": 0.0},
        {"dropout": 0.125},
    ]
    cells = {trial.cell.name for trial in make_plan(few).trials}
    assert cells == {f"mnist/{name}" for name in names}
    whole = varied(spec, only={"network": ["lenet-4"]})
    every = {trial.id for trial in make_plan(spec).trials}
    assert {trial.id for trial in make_plan(whole).trials} == every


def test_the_same_trials_are_kept_whether_named_or_all():
    """So that nothing is computed again in a smaller study."""
    spec = read_spec("paper/dropout")
    few = varied(spec, only={"network": ["lenet-4(dropout=0.25)"]})
    ids = {trial.id for trial in make_plan(few).trials}
    assert ids
    assert ids < {trial.id for trial in make_plan(spec).trials}


@pytest.mark.parametrize("name", ["lab_own:small_network", "small_network"])
def test_a_users_own_is_kept_whole_by_its_long_or_short_name(name):
    own = {"name": "lab_own:small_network", "width": [1, 2]}
    both = [{"dataset": ["digits"], "network": ["nn-2", own]}]
    spec = make_spec(
        {"name": "n", "title": "t", "cells": both, "optimizers": ["sgd"]},
        file="own.toml",
    )
    (cell,) = varied(spec, only={"network": [name]}).cells
    assert [(each.name, each.arguments) for each in cell.network] == [
        ("lab_own:small_network", {"width": width}) for width in (1, 2)
    ]


def test_an_argument_that_is_a_list_stays_one_when_named():
    own = {"name": "lab_own:small_network", "width": [[16, 8]]}
    adamw = {"name": "torch.optim:AdamW", "label": "a", "betas": [[0.9, 0.99]]}
    adamw |= {"lr": [1e-3], "rule": ["cautious", "stable"]}
    cells = [{"dataset": ["digits"], "network": [own]}]
    keys = {"name": "n", "title": "t", "cells": cells, "optimizers": [adamw, "sgd"]}
    spec = make_spec(keys, file="own.toml")
    every = [trial.id for trial in make_plan(spec).trials]
    for only in ({"network": ["small_network"]}, {"optimizer": ["a", "sgd"]}):
        few = varied(spec, only=only)
        assert [trial.id for trial in make_plan(few).trials] == every


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ["a", "b"]),
        ("a(x=1, y=2),b(x=1,y=3)", ["a(x=1, y=2)", "b(x=1,y=3)"]),
        ("adadecay, pooled,sgd", ["adadecay, pooled", "sgd"]),
    ],
)
def test_commas_within_a_label_do_not_part_it(text, names):
    assert parse_only([f"network={text}"]) == {"network": names}


def test_only_on_the_command_line():
    both = parse_only(["network=nn-2,nn-3", "dataset=mnist"])
    assert both == {"network": ["nn-2", "nn-3"], "dataset": ["mnist"]}
    for wrong in ("network", "width=3", "network="):
        with pytest.raises(SpecError, match="must be KIND=NAME"):
            parse_only([wrong])


def direction(**keys):
    return StudySpec(name="mine", optimizers=["sgd"], **keys).larger_is_better


def test_a_loss_that_is_the_score_is_better_where_it_is_smaller():
    cells = ({"dataset": "digits", "network": "nn-2"},)
    assert direction(cells=cells) is True
    assert direction(cells=cells, loss="own:mse") is False
    assert direction(cells=cells, loss="own:mse", larger_is_better=True) is True
    assert direction(cells=cells, loss="own:mse", metric="own:r2") is True


@pytest.mark.parametrize("name", ["mse", "val_loss", "Perplexity", "error_rate"])
def test_the_direction_of_a_score_is_asked_for_where_its_name_leaves_doubt(name):
    cells = ({"dataset": "digits", "network": "nn-2"},)
    own = [{"cells": cells, "metric": f"own:{name}"}]
    own += [{"trainer": "own:train", "score": name}]
    for keys in own:
        with pytest.raises(ValueError, match=f"is a smaller {name} better"):
            direction(**keys)
        assert direction(**keys, larger_is_better=False) is False
    assert direction(trainer="own:train", score="lossless_share") is True
