"""What ``plan``, ``run``, ``status`` and ``results`` have in common.

In: a study's name and the options that change it. Out: a Study for the command, or one
sentence on standard error and an exit status. The lab is imported when a command runs,
not before.
"""

import contextlib
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from adadecay.commands.completion import complete_only, complete_study

if TYPE_CHECKING:
    from adadecay.lab.study import Study

__all__ = [
    "JSON",
    "Command",
    "on_study",
    "one_sentence",
    "print_json",
    "progress",
    "stop",
]


def _option(kind: Any, text: str, **options: Any) -> Any:
    return Annotated[kind, typer.Option(help=text, **options)]


NAME = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A TOML file, a built-in study (adadecay list studies), or the name of "
        "one that was run before.",
        show_default=False,
        autocompletion=complete_study,
    ),
]
OPTIONS = {
    "results": Annotated[
        Path | None,
        typer.Option(
            help="Results folder. Default: $ADADECAY_RESULTS or ./results.",
            show_default=False,
        ),
    ],
    "trials": _option(
        int | None,
        "Paired trials. This option and those below create a variant of the study "
        "with its own name.",
        min=1,
    ),
    "epochs": _option(int | None, "Epochs.", min=1),
    "batch_size": _option(int | None, "Mini-batch size.", min=1),
    "examples": _option(int | None, "Use only this many training examples.", min=1),
    "holdout": _option(float | None, "Share of the training set held out."),
    "precision": _option(
        str | None, "float32, float64, or bfloat16 (torch's autocast)."
    ),
    "seed": _option(int | None, "Seed of the study.", min=0),
    "width": _option(float | None, "Width of every network that has one."),
    "only": _option(
        list[str] | None,
        "Keep only these: network=nn-2, dataset=mnist, optimizer=sgd,adadecay.",
        metavar="KIND=NAME[,NAME]",
        autocompletion=complete_only,
    ),
}
JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Command(TyperCommand):
    """A command that speaks of its arguments without braces, and of pydantic never."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub("[{}]", "", piece) for piece in pieces]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def print_json(value: Any) -> None:
    """Print a value for machines."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def progress(message: str) -> None:
    """Show what is being measured on standard error: standard output may be data."""
    typer.echo(f"Measuring {message} …", err=True)


def stop(message: object, status: int) -> NoReturn:
    """Print one sentence on standard error and leave."""
    typer.echo(f"adadecay: {message}", err=True)
    raise typer.Exit(status)


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Turn what the lab refuses into a sentence and an exit status."""
    from adadecay.lab.datasets import DatasetError
    from adadecay.lab.engines import EngineDiedError, EngineError
    from adadecay.lab.files import StoreError, StoreLostError
    from adadecay.lab.spec_file import SpecError

    try:
        yield
    except SpecError as error:
        stop(error, 2)
    except (DatasetError, EngineDiedError, StoreLostError) as error:
        stop(error, 1)
    except (StoreError, EngineError) as error:
        stop(error, 2)
    except BrokenPipeError:  # as after `| head`: typer ends quietly
        raise
    except OSError as error:
        stop(f"{error.filename or 'A file'}: {error.strerror or error}.", 1)


def on_study(
    command: "Callable[..., None]", *, without: "Callable[..., None] | None" = None
) -> "Callable[..., None]":
    """Turn ``command(study, **own)`` into a command that names a study and changes it.

    Args:
        command: gets the Study first; its other parameters become options after those
            that every such command has.
        without: called instead when no study is named, with the results folder and
            the command's own options.

    Returns:
        A function with the whole signature, for typer.
    """
    _, *own = inspect.signature(command).parameters.values()

    @functools.wraps(command)
    def whole(study: str | None, **options: Any) -> None:
        changes = {key: options.pop(key) for key in OPTIONS}
        with one_sentence():
            if study is not None:
                command(_find(study, changes), **options)
            elif without is not None:
                folder = changes.pop("results")
                given = [k for k, value in changes.items() if value not in (None, [])]
                if given:
                    option = f"--{given[0].replace('_', '-')}"
                    raise typer.BadParameter("needs a STUDY.", param_hint=option)
                without(folder, **options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(key, keyword, default=None, annotation=kind)
        for key, kind in OPTIONS.items()
    ]
    first = inspect.Parameter(
        "study",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=inspect.Parameter.empty if without is None else None,
        annotation=NAME,
    )
    own = [parameter.replace(kind=keyword) for parameter in own]
    signature = inspect.Signature([first, *own, *shared])
    whole.__signature__ = signature  # type: ignore[attr-defined]
    whole.__annotations__ = {
        p.name: p.annotation for p in signature.parameters.values()
    }
    return whole


def _find(name: str, changes: dict[str, Any]) -> "Study":
    from adadecay.lab.study import Study
    from adadecay.lab.variants import parse_only

    study = Study(name, results=changes.pop("results"))
    changed = study.vary(only=parse_only(changes.pop("only") or []), **changes)
    changed.plan  # noqa: B018 - a study that cannot be planned is wrong input
    return changed
