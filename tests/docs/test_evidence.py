"""Numbers on the pages come from the kept results, and drift is noticed."""

import re
import shlex
import shutil
import subprocess
import sys

import evidence as tool
import polars as pl
import pytest
from doc_commands import complaint
from doc_pages import ROOT
from evidence_text import command_of, cost_text
from scipy import stats
from simulated_study import alpha_settings, simulate, simulate_rates, two_arms
from typer.testing import CliRunner

from adadecay.benchmark import train
from adadecay.benchmark.train import EpochCosts
from adadecay.commands import app
from adadecay.lab import Study
from adadecay.lab.stats.evidence import Evidence
from adadecay.lab.stats.kept import write_kept

BLOCKS = ["studies", "claims", "machine", "paper/comparison", "paper/alpha", "mine"]


def put(root, place, results, **facts):
    folder = root / "evidence" / place
    folder.mkdir(parents=True, exist_ok=True)
    rates = simulate_rates(results)
    facts = {"name": place, "facts": {"torch": ("2.13.0",)}, **facts}
    write_kept(Evidence(results, rates=rates, paper=True, **facts), folder)


@pytest.fixture
def root(tmp_path):
    """A repository with pages and nothing kept."""
    (tmp_path / "docs").mkdir()
    text = "".join(f"<!-- evidence:{b} -->\n<!-- /evidence -->\n" for b in BLOCKS)
    (tmp_path / "docs" / "results.md").write_text(text)
    text = "# Top\n<!-- evidence:cost -->\n<!-- /evidence -->\nThe end.\n"
    text += "<!-- evidence:paper/alpha:pictures -->\nold\n<!-- /evidence -->\n"
    (tmp_path / "README.md").write_text(text)
    return tmp_path


@pytest.fixture
def filled(root):
    """The same with two studies, one of them unfinished, renewed."""

    def status(setting, number):
        return "running" if (setting, number) == (0, 4) else "done"

    put(root, "paper/comparison", two_arms(0.3, trials=5, status=status), planned=12)
    settings = [s for s in alpha_settings() if s.dataset == "mnist"]
    name = "paper/alpha[trials=3,network=nn-2]"
    put(root, "paper/alpha", simulate(settings, trials=3), name=name, planned=15)
    tool.renew(tool.Evidence(root))
    return root


def block(root, name, page="docs/results.md"):
    found = tool.BLOCK.findall((root / page).read_text("utf-8"))
    return next(text for _, each, text, _ in found if each == name)


def drift(root):
    return tool.drifted(tool.Evidence(root))


def test_the_pages_of_this_repository_are_what_its_kept_results_say():
    command = [sys.executable, ROOT / "tools" / "evidence.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pages_have_blocks():
    text = "".join((ROOT / page).read_text("utf-8") for page in tool.PAGES)
    names = [found[1] for found in tool.BLOCK.findall(text)]
    assert {"cost", "claims", "studies", "controls", "paper/comparison"} <= set(names)
    assert len(names) == text.count("<!-- evidence:") == text.count("<!-- /evidence")


def test_nothing_kept_says_so(root):
    tool.renew(tool.Evidence(root))
    assert {block(root, name) for name in BLOCKS} == {"*Not run yet.*\n"}
    assert block(root, "cost", "README.md") == "*Not measured yet.*\n"
    assert (root / "README.md").read_text().startswith("# Top\n")
    assert "The end.\n" in (root / "README.md").read_text()
    assert drift(root) == []


def test_a_block_holds_the_numbers_of_the_results(filled):
    text = block(filled, "paper/comparison")
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
    row = next(x for x in text.splitlines() if "| adadecay | sgd | 4 |" in x)
    assert float(row.split("|")[5].replace("−", "-")) == pytest.approx(gap, abs=6e-4)
    assert row.split("|")[7].strip() == "+0.03"  # what the paper prints
    sgd = next(x for x in text.splitlines() if "| sgd | 4 | " in x)
    average = stats.trim_mean(by["sgd"].to_numpy(), 0.1)
    assert float(sgd.split("|")[4]) == pytest.approx(average, abs=6e-4)
    assert sgd.split("|")[6].strip() == "98.53"


def test_a_number_in_a_sentence_is_the_one_in_the_table(filled):
    """A difference, a score, both averages of θ, and one of a study not there."""
    asked = ["paper/comparison | MNIST · NN-2 | adadecay − sgd"]
    asked += ["paper/comparison | MNIST · NN-2 | sgd", "mine | Any | sgd"]
    asked += [
        f"paper/comparison | MNIST · NN-2 | {kind} θ of adadecay"
        for kind in ("mean", "weighted")
    ]
    mark = "".join(f"<!-- number:{each} -->?<!-- /number --> " for each in asked)
    page = filled / "README.md"
    page.write_text(page.read_text("utf-8") + f"By {mark}each.", "utf-8")
    assert drift(filled) == ["README.md has drifted from the kept results"]
    tool.renew(tool.Evidence(filled))
    said = [found[2] for found in tool.NUMBER.findall(page.read_text("utf-8"))]
    rows = block(filled, "paper/comparison").splitlines()
    row = next(x for x in rows if "| adadecay | sgd | 4 |" in x).split(" | ")
    score = next(x for x in rows if "| sgd | 4 | " in x).split(" | ")[3]
    difference = f"{row[4]} points (interval {row[5]}, 4 pairs)"
    theta = next(x for x in rows if "| 0.7" in x).split(" | ")[3:5]
    assert float(theta[0]) == pytest.approx(0.78, abs=0.01)
    assert float(theta[1]) == pytest.approx(0.85, abs=0.01)
    assert said == [difference, score, "*not run yet*", *theta]
    assert drift(filled) == []


@pytest.mark.parametrize(
    ("mark", "part"),
    [
        ("<!-- number:paper/alpha | Nowhere | sgd -->1<!-- /number -->", "has no sgd"),
        ("<!-- number:paper/alpha | Nowhere | sgd -->1", "a number has no end"),
    ],
)
def test_a_number_that_does_not_exist_is_refused(filled, mark, part):
    (filled / "README.md").write_text(mark, "utf-8")
    with pytest.raises(SystemExit, match=part):
        drift(filled)


def test_an_unfinished_study_says_so(filled):
    text = block(filled, "paper/comparison")
    assert "9 of 12 trials finished" in text
    assert "**Unfinished study.**" in text
    assert "9 of 12" in block(filled, "studies")
    assert "Computed with torch 2.13.0." in block(filled, "machine")


def test_claims_are_told_with_verdict_and_study(filled):
    rows = block(filled, "claims").splitlines()[2:]
    assert any("not tested" in row and "`tuned`" in row for row in rows)
    [theta] = [x for x in rows if "average 1" in x and "`paper/alpha`" in x]
    assert "**contradicted**" in theta


def test_pictures_are_made_and_shown(filled):
    names = {path.name for path in (filled / "docs" / "pictures").iterdir()}
    assert names == {
        "paper-alpha-alpha-1.svg",
        "paper-alpha-decay-had-1.svg",
        "paper-alpha-differences.svg",
        "paper-comparison-differences.svg",
    }
    for page, name in (("README.md", "paper/alpha:pictures"), (None, "paper/alpha")):
        text = block(filled, name, page or "docs/results.md")
        folder = filled if page else filled / "docs"
        paths = re.findall(r"\]\(([^)]+\.svg)\)", text)
        assert len(paths) == 3
        assert all((folder / path).is_file() for path in paths)
    svg = (filled / "docs/pictures/paper-alpha-alpha-1.svg").read_text("utf-8")
    assert svg.startswith("<svg")
    assert "MNIST · NN-2" in svg


def test_one_picture_can_be_shown_by_itself(filled):
    page = filled / "README.md"
    mark = "<!-- evidence:paper/alpha:picture=alpha-1 -->\n<!-- /evidence -->\n"
    page.write_text(mark, "utf-8")
    tool.renew(tool.Evidence(filled))
    text = page.read_text("utf-8")
    assert text.count(".svg") == 1
    assert "(docs/pictures/paper-alpha-alpha-1.svg)" in text


def test_what_is_renewed_has_not_drifted_and_renewing_is_idle(filled):
    assert drift(filled) == []
    assert tool.renew(tool.Evidence(filled)) == []


def spoil_number(root):
    page = root / "docs" / "results.md"
    page.write_text(page.read_text("utf-8").replace("98.", "99.", 1), "utf-8")


def spoil_picture(root):
    path = root / "docs/pictures/paper-alpha-alpha-1.svg"
    path.write_text(re.sub("numbers [0-9a-f]+", "numbers 0", path.read_text("utf-8")))


def spoil_results(root):
    path = root / "evidence/paper/alpha/results.parquet"
    table = pl.read_parquet(path).with_columns(pl.col("score") + 0.01)
    table.write_parquet(path)


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (spoil_number, ["docs/results.md"]),
        (spoil_picture, ["paper-alpha-alpha-1.svg"]),
        (
            spoil_results,
            ["docs/results.md", "alpha-alpha-1.svg", "alpha-decay-had-1.svg"],
        ),
        (lambda root: (root / "docs/pictures/x.svg").touch(), ["x.svg"]),
        (
            lambda root: (root / "docs/pictures/paper-alpha-alpha-1.svg").unlink(),
            ["paper-alpha-alpha-1.svg"],
        ),
        (
            lambda root: shutil.rmtree(root / "evidence/paper/alpha"),
            [
                "README.md",
                "docs/results.md",
                "alpha-alpha-1.svg",
                "alpha-decay-had-1.svg",
                "alpha-differences.svg",
            ],
        ),
    ],
)
def test_drift_is_noticed_and_mended(filled, spoil, names):
    spoil(filled)
    found = drift(filled)
    assert len(found) == len(names)
    for name in names:
        assert any(name in each for each in found)
    tool.renew(tool.Evidence(filled))
    assert drift(filled) == []


def test_a_block_without_end_or_with_an_unknown_part_is_refused(filled):
    page = filled / "README.md"
    page.write_text("<!-- evidence:paper/alpha:tables -->\n<!-- /evidence -->\n")
    with pytest.raises(
        SystemExit, match="none of scores, differences, theta, pictures, picture="
    ):
        drift(filled)
    page.write_text("<!-- evidence:paper/alpha -->\n")
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
    name = Study(study).vary(**changes).name
    command = command_of(name)
    assert command.startswith(f"adadecay run {study}")
    assert complaint(command) is None
    for key, value in changes.items():
        if key != "only":
            assert f"--{key.replace('_', '-')} {value}" in command
    if "only" in changes:
        [(kind, names)] = changes["only"].items()
        chosen = shlex.quote(f"{kind}={','.join(names)}")  # brackets need it
        assert f"--only {chosen}" in command


def test_the_cost_of_an_epoch_is_told_as_the_command_prints_it(root, monkeypatch):
    costs = EpochCosts(bare=1.0, sgd=2.0, adadecay=2.5, by_hand=9.0, rounds=7)
    monkeypatch.setattr(train, "measure_epochs", lambda rounds: costs)
    done = CliRunner().invoke(app, ["bench", "train", "--no-workers", "--json"])
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "train.json").write_text(done.output)
    tool.renew(tool.Evidence(root))
    text = block(root, "cost", "README.md")
    assert "takes 1.25 × the time" in text
    assert "medians of 7" in text


def test_the_cost_of_a_step_is_told_as_ratios():
    def cost(contender, milliseconds):
        facts = {"shape": "nn-2", "threads": 1, "parameters": 89610}
        return {**facts, "contender": contender, "milliseconds": milliseconds}

    steps = [cost("SGD fused", 2.0), cost("AdaDecay fused", 2.5)]
    steps += [cost("SGD foreach", 4.0), cost("AdaDecay foreach", 10.0)]
    text = cost_text({"torch": "2.13.0+cpu", "kernel": "avx2", "steps": steps})
    assert "| nn-2 (89,610 parameters) | 1 | 1.25 | – | 2.00 | 5.00 |" in text
    assert "torch 2.13.0, kernel form avx2" in text
