"""Numbers on the pages come from the snapshots, and drift is noticed."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import polars as pl
import pytest
from doc_commands import complaint
from doc_pages import ROOT
from docs_values import Values
from scipy import stats
from simulated_study import (
    alpha_settings,
    decay_settings,
    simulate,
    simulate_rates,
    two_arms,
)
from typer.testing import CliRunner

import docs as tool
from adadecay.benchmark import train
from adadecay.benchmark.train import EpochCosts
from adadecay.commands import app
from adadecay.lab import Study
from adadecay.lab.paper import spell
from adadecay.lab.stats.claims import CLAIMS
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.snapshot import write_snapshot

TEMPLATES = ROOT / "docs" / "templates"
CELL = "mnist/nn-2"


def put(root, place, results, **facts):
    folder = root / "evidence" / place
    folder.mkdir(parents=True, exist_ok=True)
    # Simulated studies number their trials alike: these are not the same trials.
    results = results.with_columns(pl.concat_str(pl.lit(place), "trial").alias("trial"))
    rates = simulate_rates(results)
    facts = {"name": place, "facts": {"torch": ("2.13.0",)}, "paper": True, **facts}
    write_snapshot(StudyData(results, rates=rates, **facts), folder)


def make_root(root):
    """A repository with the tables of ours, one page, and nothing kept."""
    folder = root / "docs" / "templates"
    shutil.copytree(TEMPLATES, folder)
    (folder / "findings.md.jinja").unlink()
    page = '{% from "tables.md.jinja" import cells_table, claims_table, machine,'
    page += " overview_picture, studies_table, tuned_table with context %}\n"
    page += "{{ cells_table() }}\n{{ claims_table() }}\n{{ machine() }}\n"
    page += '{{ studies_table() }}\n{{ overview_picture("pictures") }}\n'
    page += "{{ tuned_table() }}\n"
    (folder / "results.md.jinja").write_text(page)
    text = "# Top\n<!-- docs:cost -->\n<!-- /docs -->\nThe end.\n"
    text += "<!-- docs:results -->\nold\n<!-- /docs -->\n"
    (root / "README.md").write_text(text)
    return root


@pytest.fixture
def root(tmp_path):
    return make_root(tmp_path)


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory):
    """The same with two studies, one of them unfinished, written."""
    root = make_root(tmp_path_factory.mktemp("filled"))

    def status(setting, number):
        return "running" if (setting, number) == (0, 4) else "done"

    put(root, "paper/comparison", two_arms(0.3, trials=5, status=status), planned=12)
    settings = [s for s in alpha_settings() if s.dataset == "fashion-mnist"]
    name = "paper/alpha[trials=3,network=nn-2]"
    put(root, "paper/alpha", simulate(settings, trials=3), name=name, planned=15)
    tool.renew(Values(root))
    return root


@pytest.fixture
def filled(filled_once, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(filled_once, tmp_path / "filled")


def page(root, name="docs/results.md"):
    return (root / name).read_text("utf-8")


def row(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def drift(root):
    return list(tool.drifted(Values(root)))


def test_the_pages_of_this_repository_are_what_its_snapshots_say():
    command = [sys.executable, ROOT / "tools" / "docs.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_answers_in_five_lines_and_has_every_cell_and_claim():
    text = page(ROOT)
    lines = text.partition("## Should I use it?\n")[2].partition("\n\n")[0]
    heads = ["For whom", "With which α and λ", "What to expect", "At what cost"]
    heads += ["Not known"]
    assert [line[:40].split("**")[1] for line in lines.splitlines()] == heads
    for cell in Values(ROOT).cells:
        assert len(row(text, spell(*cell.split("/")))) == 7
    for claim in CLAIMS:
        assert f"| {claim.statement}" in text
    assert text.count("](pictures/overview.svg)") == 1


def test_sentences_of_the_readme_hold_no_generated_numbers():
    section = page(ROOT, "README.md").partition("## Does it help?")[2]
    sentences = section.partition("<!-- docs:results -->")[0]
    assert not re.search(r"\d\.\d|interval|pairs", sentences)
    assert "](docs/pictures/overview.svg)" in section


def test_nothing_kept_says_so(root):
    tool.renew(Values(root))
    assert "| Fashion-MNIST · NN-2 | – | – | – | +0.26 | 0 | not run" in page(root)
    assert "not yet compared with SGD at its best λ" in page(root)
    text = page(root, "README.md")
    assert text.startswith("# Top\n<!-- docs:cost -->\n*Not measured yet.*\n")
    assert "The end.\n" in text
    assert "old" not in text
    assert drift(root) == []


def test_a_page_holds_the_numbers_of_the_results(filled):
    results = pl.read_parquet(filled / "evidence" / "paper/comparison/results.parquet")
    last = results.filter(pl.col("epoch") >= 90, pl.col("number") < 4)
    means = last.group_by("optimizer", "number", maintain_order=True).agg(
        pl.col("score").mean()
    )
    by = {
        name: rows.sort("number")["score"]
        for (name,), rows in means.group_by("optimizer")
    }
    gap = stats.trim_mean((by["adadecay"] - by["sgd"]).to_numpy(), 0.1)
    average = stats.trim_mean(by["sgd"].to_numpy(), 0.1)
    text = page(filled, "docs/evidence/paper-comparison.md")
    found = next(x for x in text.splitlines() if "| adadecay − sgd |" in x)
    cells = [cell.strip() for cell in found.split("|")]
    assert float(cells[4].replace("−", "-")) == pytest.approx(gap, abs=6e-4)
    assert cells[6:8] == ["+0.03", "4"]  # what the paper prints, and pairs
    sgd = next(x for x in text.splitlines() if "| sgd |" in x).split("|")
    assert float(sgd[3]) == pytest.approx(average, abs=6e-4)
    assert sgd[6].strip() == "98.53"
    cells = row(page(filled), "MNIST · NN-2")
    assert float(cells[1]) == pytest.approx(average, abs=6e-3)
    assert float(cells[3].split()[0]) == pytest.approx(gap, abs=6e-3)
    assert cells[4:6] == ["+0.03", "4"]
    assert "Unfinished (9 of 12 trials): " in text
    assert "**Unfinished study.**" in text


def test_a_call_gives_the_number_of_the_table(filled):
    """A difference both ways round, a score, three averages of θ, an unknown study."""
    values = Values(filled)
    study, who = "paper/comparison", ("adadecay", "sgd")
    text = page(filled, "docs/evidence/paper-comparison.md")
    found = next(x for x in text.splitlines() if "| adadecay − sgd |" in x)
    difference, interval = found.split(" | ")[3:5]
    said = values.diff(study, CELL, *who)
    assert said == f"{difference} points (interval {interval}, 4 pairs)"
    back = values.diff(study, CELL, "sgd", "adadecay")
    assert back.split()[0] == difference.replace("+", "−")
    low, high = interval.strip("[]").split(", ")
    turned = [each.translate(str.maketrans("+−", "−+")) for each in (high, low)]
    assert f"[{turned[0]}, {turned[1]}]" in back
    assert values.score(study, CELL, "sgd") in text
    means = [values.theta(study, CELL, "adadecay", by=by) for by in ("tensor", "norm")]
    assert [float(each) for each in means] == pytest.approx([0.78, 0.85], abs=0.01)
    assert " | ".join(means) in text
    assert values.diff("mine", CELL, *who) == "*not run*"
    with pytest.raises(SystemExit, match="has no adam"):
        values.score(study, CELL, "adam")
    with pytest.raises(SystemExit, match="does not compare"):
        values.diff(study, CELL, "adam", "sgd")


def test_the_mean_of_theta_by_weight_counts_every_weight():
    values = Values(ROOT)
    cell = "fashion-mnist/nn-2"
    rates = pl.read_parquet(ROOT / "evidence/controls/rates.parquet")
    results = pl.read_parquet(ROOT / "evidence/controls/results.parquet")
    ours = results.filter(pl.col("cell") == cell, pl.col("optimizer") == "adadecay")
    inside = rates.filter(pl.col("trial").is_in(ours["trial"].unique().to_list()))
    means = dict(inside.group_by("layer").agg(pl.col("mean_theta").mean()).rows())
    sizes = {"1.weight": 78400, "1.bias": 100, "3.weight": 10000, "3.bias": 100}
    sizes |= {"5.weight": 1000, "5.bias": 10}
    mean = sum(size * means[name] for name, size in sizes.items()) / 89610
    assert values.theta("controls", cell, "adadecay", by="weight") == f"{mean:.3f}"


def test_each_claim_has_one_row_over_all_studies(filled):
    text = page(filled)
    for claim in CLAIMS:
        named = claim.statement + " *(ours)*" * claim.ours
        assert text.count(f"| {named} |") == 1
    theta = row(text, "The decay rates θ of a layer average 1")
    assert theta[1] == "**contradicted**"
    assert row(text, "AdaDecay beats constant decay with and without dropout")[1:4] == [
        "**not tested**",
        "0 of 8",
        "`adadecay run paper/dropout`",
    ]
    assert "Computed with torch 2.13.0." in text


def test_tuned_trials_enter_the_page_and_the_picture(filled):
    """The snapshot of ``tuned`` is all that is needed."""
    settings = [s for s in decay_settings() if s.dataset == "mnist"]
    results = simulate(settings, trials=4, validation=True)
    facts = {"held_out": 0.1, "chosen": ("weight_decay",), "baseline": "sgd"}
    put(filled, "tuned", results, **facts)
    assert "docs/results.md" in drift(filled)
    tool.renew(Values(filled))
    heads = "| Cell | λ of SGD | λ of AdaDecay | Difference | Trials |"
    table = page(filled).partition(heads)[2]
    assert row(table, "MNIST · NN-2")[-1] == "4"
    ours = row(page(filled), "The gain remains against SGD at its best λ *(ours)*")
    assert ours[2] == "1 of 3"
    assert "both at best λ" in page(filled, "docs/pictures/overview.svg")


def test_pictures_are_made_and_shown(filled):
    names = {path.name for path in (filled / "docs" / "pictures").iterdir()}
    shown = set()
    for path in [filled / "README.md", *filled.glob("docs/**/*.md")]:
        links = re.findall(r"\]\(([^)]+\.svg)\)", path.read_text("utf-8"))
        assert all((path.parent / link).is_file() for link in links)
        shown |= {link.rpartition("/")[2] for link in links}
    assert shown == names
    assert {"overview.svg", "paper-alpha-differences-1.svg"} <= names
    svg = page(filled, "docs/pictures/overview.svg")
    assert svg.startswith("<svg")
    assert "MNIST · NN-2" in svg


def test_what_is_written_has_not_drifted_and_writing_again_is_idle(filled):
    assert drift(filled) == []
    assert tool.renew(Values(filled)) == []


def spoil_files(root):
    """One in each way: a number, a picture's mark, one that is missing, two too many.

    Each is noticed by itself, so that all can be spoilt at once.
    """
    path = root / "docs" / "results.md"
    path.write_text(path.read_text("utf-8").replace("98.", "99.", 1), "utf-8")
    path = root / "docs/pictures/overview.svg"
    path.write_text(re.sub("numbers [0-9a-f]+", "numbers 0", path.read_text("utf-8")))
    (root / "docs/pictures/paper-alpha-differences-1.svg").unlink()
    (root / "docs/pictures/x.svg").touch()
    (root / "docs/evidence/x.md").touch()


def spoil_results(root):
    path = root / "evidence/paper/comparison/results.parquet"
    ours = pl.col("optimizer") == "adadecay"
    moved = pl.col("score") + 0.1 * ours * pl.col("number")
    pl.read_parquet(path).with_columns(moved).write_parquet(path)


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (
            spoil_files,
            {
                "docs/results.md",
                "docs/pictures/overview.svg",
                "docs/pictures/paper-alpha-differences-1.svg",
                "docs/pictures/x.svg",
                "docs/evidence/x.md",
            },
        ),
        (spoil_results, {"docs/results.md", "README.md", "docs/pictures/overview.svg"}),
        (
            lambda root: shutil.rmtree(root / "evidence/paper/alpha"),
            {"docs/results.md", "docs/evidence/paper-alpha.md"},
        ),
    ],
)
def test_drift_is_noticed_and_mended(filled, spoil, names):
    spoil(filled)
    found = set(drift(filled))
    assert names <= found
    assert spoil is not spoil_files or found == names
    tool.renew(Values(filled))
    assert drift(filled) == []


def test_a_block_without_end_is_refused(filled):
    (filled / "README.md").write_text("<!-- docs:cost -->\n")
    with pytest.raises(SystemExit, match="no end"):
        drift(filled)


@pytest.mark.parametrize(
    ("study", "changes"),
    [
        ("quickstart", {}),
        ("paper/alpha", {"trials": 10, "only": {"network": ["nn-2"]}}),
        ("controls", {"epochs": 5, "only": {"dataset": ["mnist", "cifar-10"]}}),
        ("paper/comparison", {"batch_size": 64, "width": 0.25}),
        ("paper/dropout", {"only": {"network": ["lenet-4(dropout=0.125)"]}}),
        ("controls", {"only": {"optimizer": ["sgd", "adadecay, pooled"]}}),
    ],
)
def test_the_command_of_a_study_is_the_one_that_runs_it(study, changes):
    command = Study(study).vary(**changes).variant.command
    assert command.startswith(f"adadecay run {study}")
    assert complaint(command) is None
    for key, value in changes.items():
        if key != "only":
            assert f"--{key.replace('_', '-')} {value}" in command
    if "only" in changes:
        [(kind, names)] = changes["only"].items()
        chosen = shlex.quote(f"{kind}={','.join(names)}")  # brackets need it
        assert f"--only {chosen}" in command


def test_the_page_of_a_snapshot_has_every_command_that_it_was_made_with(root):
    commands = tuple(
        f"adadecay run paper/comparison --only network={each}"
        for each in ("nn-2", "nn-3")
    )
    put(root, "paper/comparison", two_arms(0.3, trials=5), commands=commands)
    tool.renew(Values(root))
    shown = page(root, "docs/evidence/paper-comparison.md").split("```")[1]
    assert shown.strip().splitlines() == list(commands)


def test_the_cost_of_an_epoch_is_told_as_the_command_prints_it(root, monkeypatch):
    costs = EpochCosts(bare=1.0, sgd=2.0, adadecay=2.5, by_hand=9.0, rounds=7)
    monkeypatch.setattr(train, "measure_epochs", lambda rounds, **_: costs)
    done = CliRunner().invoke(app, ["bench", "train", "--no-workers", "--json"])
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "train.json").write_text(done.output)
    tool.renew(Values(root))
    text = page(root, "README.md")
    assert "takes 1.25 × the time" in text
    assert "medians of 7" in text


def test_the_cost_of_a_step_is_told_as_ratios(root):
    def cost(contender, milliseconds):
        facts = {"shape": "nn-2", "threads": 1, "parameters": 89610}
        return {**facts, "contender": contender, "milliseconds": milliseconds}

    steps = [cost("SGD fused", 2.0), cost("AdaDecay fused", 2.5)]
    steps += [cost("SGD foreach", 4.0), cost("AdaDecay foreach", 10.0)]
    facts = {"torch": "2.13.0+cpu", "kernel": "avx2", "steps": steps}
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "step.json").write_text(json.dumps(facts))
    tool.renew(Values(root))
    text = page(root, "README.md")
    assert "| nn-2 (89,610 parameters) | 1 | 1.25 | – | 2.00 | 5.00 |" in text
    assert "torch 2.13.0, kernel form avx2" in text
