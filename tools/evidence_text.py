"""Kept studies and measurements as Markdown, in the words and numbers of the lab.

In: analyses, and what ``adadecay bench step --json`` printed. Out: text for a block of
a page.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from adadecay.lab.report.figure import Figure
from adadecay.lab.report.remarks import counts, remarks
from adadecay.lab.report.tables import Table, arm_table, comparison_table
from adadecay.lab.report.wording import DASH, Numbers, claim_words, headline
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.claims import CLAIMS
from adadecay.lab.stats.verdicts import Verdict
from adadecay.lab.variants import COMMA

NOTHING = "*Not run yet.*"
SCORES = ("Cell", "Optimizer", "Trials", "Average", "95 % interval", "Paper")
SCORES += ("Ours − paper", "Without result")
DIFFERENCES = ("Cell", "Ours", "Other", "Pairs", "Difference", "Interval", "Paper")
DIFFERENCES += ("Verdict",)
SAID_ONCE = "The test set is used for validation"  # by the page, for every study
THETAS = ("Cell", "Optimizer", "Trials", "Mean θ", "Weighted by w²")
THETAS += ("Lowest tensor", "Highest tensor")
THETA_OF, POWER_OF = "mean θ of ", "weighted θ of "  # in front of an optimizer
FACTS = ("torch", "numpy", "python", "processor", "cores", "kernel", "threads")


def table(columns: list[str], rows: list[list[str]], *, right: set[str]) -> str:
    """Write a Markdown table; the columns in ``right`` hold numbers."""
    marks = ["---:" if column in right else "---" for column in columns]
    lines = [columns, marks, *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _pick(source: Table, titles: tuple[str, ...]) -> str:
    """Write some columns of a report's table, without those that say nothing."""
    kept = []
    for title in titles:
        for place, column in enumerate(source.columns):
            told = any(row[place].text != DASH for row in source.rows)
            if column.title == title and told:
                kept.append(place)
    columns = [source.columns[place].title for place in kept]
    numbers = {source.columns[place].title for place in kept}
    numbers &= {column.title for column in source.columns if column.number}
    rows = [[row[place].text for place in kept] for row in source.rows]
    return table(columns, rows, right=numbers)


# The commas between the changes in a study's name; those in brackets are a label's.
CHANGE = re.compile(r",(?=[a-z_]+=)(?![^()]*\))")


def command_of(name: str) -> str:
    """Return the command that runs a study, from the name that says its changes.

    >>> command_of("paper/alpha[trials=10,network=nn-2+nn-3]")
    'adadecay run paper/alpha --trials 10 --only network=nn-2,nn-3'
    >>> command_of("controls[trials=5,optimizer=sgd+adadecay,pooled]")
    "adadecay run controls --trials 5 --only 'optimizer=sgd,adadecay, pooled'"
    """
    base, _, changes = name.partition("[")
    words = ["adadecay run", base]
    for change in filter(None, CHANGE.split(changes.removesuffix("]"))):
        key, _, value = change.partition("=")
        if key in ("dataset", "network", "optimizer"):
            # A study's name has no spaces; in a label one follows the comma.
            labels = [COMMA.sub(", ", label) for label in value.split("+")]
            chosen = f"{key}={','.join(labels)}"
            words.append(f"--only {shlex.quote(chosen)}")
        else:
            words.append(f"--{key.replace('_', '-')} {value}")
    return " ".join(words)


def study_text(
    name: str, analysis: Analysis, part: str, pictures: dict[str, Figure], folder: str
) -> str:
    """Return one study: what was run, what must be known, scores, differences."""
    numbers = Numbers.fitting(analysis)
    drawn = [
        f"![{figure.title}: {figure.caption}]({folder}/{file})"
        for file, figure in pictures.items()
    ]
    parts = {
        "scores": _pick(arm_table(analysis, numbers), SCORES),
        "differences": _pick(comparison_table(analysis, numbers), DIFFERENCES),
        "theta": _theta_table(analysis) if analysis.thetas else NOTHING,
        "pictures": "\n\n".join(drawn) or NOTHING,
    }
    for line, figure in zip(drawn, pictures.values(), strict=True):
        parts[f"picture={figure.name}"] = line
    if part:
        if part not in parts:
            raise SystemExit(f"evidence:{name}:{part} is none of {', '.join(parts)}.")
        return parts[part]
    have = counts(analysis)
    done = f"{have['done']:,} of {have['planned']:,} trials finished"
    study = analysis.evidence.name
    head = f"`{command_of(study)}`: {done}. {headline(analysis, numbers)}"
    notes = [
        f"- **{note.title}.** {note.text}"
        for note in remarks(analysis)
        if note.title != SAID_ONCE
    ]
    score = analysis.evidence.score_name
    told = [head, "\n".join(notes), f"Scores ({score}):", parts["scores"]]
    if analysis.judged:
        told += ["Differences, positive where the first is better:"]
        told += [parts["differences"]]
    if analysis.thetas:
        told += ["θ, averaged over tensors and epochs (SGD's is 1):", parts["theta"]]
    return "\n\n".join([*filter(None, told), *drawn])


def _theta_table(analysis: Analysis) -> str:
    rows = []
    for each in analysis.thetas:
        shown = (each.mean, each.power, each.lowest, each.highest)
        values = [DASH if value is None else f"{value:.3f}" for value in shown]
        rows.append([each.where, each.optimizer, str(each.trials), *values])
    return table(list(THETAS), rows, right=set(THETAS[2:]))


def _theta_text(analysis: Analysis, where: str, who: str) -> str | None:
    """Return a mean of θ, plain or weighted by w²."""
    optimizer = who.removeprefix(THETA_OF).removeprefix(POWER_OF)
    for each in analysis.thetas:
        if (each.where, each.optimizer) == (where, optimizer):
            value = each.mean if who.startswith(THETA_OF) else each.power
            return None if value is None else f"{value:.3f}"
    return None


def inline_text(analysis: Analysis, where: str, who: str) -> str | None:
    """Return one number for a sentence: a score, or a difference with its interval.

    Args:
        analysis: the study's.
        where: the cell, as tables call it.
        who: an optimizer, or two of them: ``adadecay − sgd``; ``mean θ of …`` and
            ``weighted θ of …`` ask for an optimizer's θ.

    Returns:
        The text; None where the study has no such number.
    """
    if who.startswith((THETA_OF, POWER_OF)):
        return _theta_text(analysis, where, who)
    numbers = Numbers.fitting(analysis)
    ours, minus, other = who.partition(" − ")
    if not minus:
        table = arm_table(analysis, numbers)
        found = _row(table, {"Cell": where, "Optimizer": ours})
        return None if found is None else found["Average"]
    table = comparison_table(analysis, numbers)
    found = _row(table, {"Cell": where, "Ours": ours, "Other": other})
    if found is None:
        return None
    inside = f"interval {found['Interval']}, {found['Pairs']} pairs"
    return f"{found['Difference']}{numbers.unit} ({inside})"


def _row(table: Table, wanted: Mapping[str, str]) -> dict[str, str] | None:
    titles = [column.title for column in table.columns]
    for row in table.rows:
        told = dict(zip(titles, (cell.text for cell in row), strict=True))
        if wanted.items() <= told.items():
            return told
    return None


def studies_text(studies: Mapping[str, Analysis]) -> str:
    """Return one row for each kept study: how much of it there is, and its answer."""
    rows = []
    for analysis in studies.values():
        have = counts(analysis)
        epochs = sorted({arm.epochs for arm in analysis.arms})
        rows.append(
            [
                f"`{analysis.evidence.name}`",
                analysis.evidence.title,
                f"{have['done']:,} of {have['planned']:,}",
                " and ".join(map(str, epochs)) or DASH,
                headline(analysis, Numbers.fitting(analysis)),
            ]
        )
    columns = ["Study", "What", "Trials", "Epochs", "In short"]
    return table(columns, rows, right={"Trials", "Epochs"}) if rows else NOTHING


def claims_text(studies: Mapping[str, Analysis]) -> str:
    """Return every claim with its verdict in each study that tests it."""
    rows = []
    tested = set()
    for analysis in studies.values():
        numbers = Numbers.fitting(analysis)
        for result in analysis.claims:
            known = analysis.evidence.paper
            if not known or result.verdict is Verdict.NOT_TESTED:
                continue
            tested.add(result.claim.name)
            statement = result.claim.statement + (" *(ours)*" * result.claim.ours)
            verdict = f"**{result.verdict}**"
            study = f"`{analysis.evidence.base}`"
            rows.append([statement, verdict, claim_words(result, numbers), study])
    order = {claim.statement: place for place, claim in enumerate(CLAIMS)}
    rows.sort(key=lambda row: order.get(row[0].removesuffix(" *(ours)*"), len(order)))
    for claim in CLAIMS:
        if studies and claim.name not in tested:
            rows.append([claim.statement, "not tested", DASH, f"`{claim.study}`"])
    columns = ["Claim", "Verdict", "Found", "Study"]
    return table(columns, rows, right=set()) if rows else NOTHING


def machine_text(studies: Mapping[str, Analysis]) -> str:
    """Return with what the kept trials were computed."""
    found: dict[str, dict[str, None]] = {}
    for analysis in studies.values():
        for key in FACTS:
            values = analysis.evidence.facts.get(key, ())
            found.setdefault(key, {}).update(dict.fromkeys(values))
    told = [f"{key} {' and '.join(map(str, v))}" for key, v in found.items() if v]
    return f"Computed with {', '.join(told)}." if told else NOTHING


def cost_text(
    measured: Mapping[str, Any] | None, training: Mapping[str, Any] | None = None
) -> str:
    """Return what a step, and an epoch, cost beside torch's own SGD, as ratios."""
    told = [_epoch_text(training)] if training is not None else []
    if measured is not None:
        told.insert(0, _step_text(measured))
    return "\n\n".join(told) or "*Not measured yet.*"


def _epoch_text(training: Mapping[str, Any]) -> str:
    cost = training["epochs"]
    ratio = cost["adadecay"] / cost["sgd"]
    return (
        f"Training NN-2 on MNIST, an epoch with AdaDecay takes {ratio:.2f} × the time "
        f"of an epoch with SGD, both fused (`adadecay bench train`: processor time of "
        f"one thread, medians of {cost['rounds']})."
    )


def _step_text(measured: Mapping[str, Any]) -> str:
    rows = []
    groups: dict[tuple[str, int], dict[str, Any]] = {}
    for cost in measured["steps"]:
        groups.setdefault((cost["shape"], cost["threads"]), {})[cost["contender"]] = (
            cost
        )
    shapes = list(dict.fromkeys(shape for shape, _ in groups))
    for shape, threads in sorted(
        groups, key=lambda key: (shapes.index(key[0]), key[1])
    ):
        costs = groups[shape, threads]
        first = next(iter(costs.values()))
        rows.append(
            [
                f"{shape} ({first['parameters']:,} parameters)",
                str(threads),
                _ratio(costs, "AdaDecay fused", "SGD fused"),
                _ratio(costs, "AdaDecay fused, unit_mean", "SGD fused"),
                _ratio(costs, "SGD foreach", "SGD fused"),
                _ratio(costs, "AdaDecay foreach", "SGD fused"),
            ]
        )
    columns = ["Network", "Threads", "AdaDecay", "with `unit_mean`"]
    columns += ["SGD, foreach", "AdaDecay without the kernel"]
    told = table(columns, rows, right=set(columns[1:]))
    version = re.match(r"[\d.]+", str(measured["torch"]))
    return (
        f"{told}\n\nTime of a step, in units of `torch.optim.SGD(fused=True)` with as "
        f"many threads (`adadecay bench step`, torch {version[0] if version else '?'}, "
        f"kernel form {measured['kernel']}: medians, all in turns in one process)."
    )


def _ratio(costs: Mapping[str, Any], ours: str, theirs: str) -> str:
    if ours not in costs or theirs not in costs:
        return DASH
    return f"{costs[ours]['milliseconds'] / costs[theirs]['milliseconds']:.2f}"
