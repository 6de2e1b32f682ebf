"""``adadecay audit MODULE:CLASS``: which weight decay an optimizer really performs."""

import ast
import contextlib
import dataclasses
import json as text_json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adadecay.commands.options import stop

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from adadecay.audit import DecayAudit

__all__ = ["audit"]

CHANGES = {True: "changes the steps themselves", False: "only turns the decay off"}
WORDS = {"true": True, "false": False, "none": None}


def audit(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:CLASS",
            help="An optimizer, for instance torch.optim:AdamW.",
            show_default=False,
        ),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Its arguments.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out by experiment which weight decay an optimizer performs.

    Small copies of it take a few steps with and without decay. The last two lines say
    whether adaptive_decay accepts it.
    """
    from adadecay.audit import AuditError, audit_decay

    arguments = dict(_argument(text) for text in options or [])
    try:
        with contextlib.redirect_stdout(sys.stderr):  # some optimizers print
            found = audit_decay(_make(name, arguments))
    except AuditError as error:
        stop(f"{error}.", 2)
    refusals = {
        f"decoupled={decoupled}": found.refusal(decoupled, {"float32"})
        for decoupled in (True, False)
    }
    if json:
        fields = {**dataclasses.asdict(found), "summary": found.summary}
        typer.echo(
            text_json.dumps(
                {**fields, "refused": refusals}, indent=1, ensure_ascii=False
            )
        )
        return
    typer.echo(f"{found.summary}\n")
    rows = {**_rows(found), **{k: v or "accepted" for k, v in refusals.items()}}
    for key, value in rows.items():
        typer.echo(f"{key:<16} {value}")


def _argument(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; what is no number, word or tuple of Python is a string."""
    key, sign, value = text.partition("=")
    if not sign:
        stop(f"{text!r} must be KEY=VALUE, for instance momentum=0.9.", 2)
    if value.lower() in WORDS:
        return key, WORDS[value.lower()]
    try:
        return key, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return key, _load(value) if ":" in value else value


def _load(name: str) -> Any:
    from adadecay.lab.registry import UnknownNameError, load_object

    try:
        return load_object(name)
    except UnknownNameError as error:
        stop(error, 2)
    except ImportError as error:
        stop(f"{name} cannot be imported: {error}.", 2)


def _make(name: str, arguments: dict[str, Any]) -> "Optimizer":
    """Make an optimizer of a matrix and a vector, or of the matrix alone."""
    import torch

    if ":" not in name:
        example = "for example torch.optim:AdamW"
        stop(f"{name} must name an optimizer as MODULE:CLASS, {example}.", 2)
    kind = _load(name)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        stop(f"{name} is not a subclass of torch.optim.Optimizer.", 2)
    problem: Exception | None = None
    for shapes in ([(6, 4), (5,)], [(6, 4)]):
        params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
        try:
            optimizer: Optimizer = kind(params, **arguments)
            break
        except Exception as error:
            problem = problem or error
    else:
        stop(f"{name} cannot be created with these arguments: {problem}.", 2)
    return optimizer


def _rows(found: "DecayAudit") -> dict[str, str]:
    scale = "unknown" if found.scale is None else " × ".join(["λ", *found.scale])
    return {
        "decay": found.kind,
        "size": scale,
        "time": f"{found.order} the step" if found.order else "–",
        **found.dtypes,
        "weight_decay=0": CHANGES[found.changes_at_zero],
        "steps depend on": "gradients and weights"
        if found.reads_weights
        else "gradients",
        "needs": found.needs,
    }
