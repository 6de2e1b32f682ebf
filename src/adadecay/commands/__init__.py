"""The subcommands of ``adadecay``, one module each: parse, call, print."""

from typing import Annotated

import typer

from adadecay.commands import (
    audit,
    bench,
    claims,
    data,
    demo,
    info,
    plan,
    report,
    results,
    run,
    selftest,
    status,
)
from adadecay.commands.list import list_
from adadecay.commands.options import Command

app = typer.Typer(
    name="adadecay",
    help="Adaptive weight decay: the optimizer, and the lab that tests it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from adadecay import __version__

        print(f"adadecay {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Keep a single subcommand from becoming the whole command."""


app.command()(demo.demo)
for command in (run.run, plan.plan, status.status, report.report, results.results):
    app.command()(command)
app.command("list")(list_)
app.add_typer(data.app, name="data")
app.command()(claims.claims)
app.command()(audit.audit)
app.add_typer(bench.app, name="bench")
app.command()(selftest.selftest)
app.command()(info.info)
for each in (app, data.app, bench.app):
    for registered in each.registered_commands:
        registered.cls = Command
