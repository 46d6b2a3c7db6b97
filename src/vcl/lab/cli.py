"""The command line. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vcl import __version__
from vcl.errors import VclError
from vcl.lab.commands import bench, data, list_names, paper, run, sample, sweep

app = typer.Typer(
    name="vcl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Variational continual learning: yesterday's posterior is today's prior.",
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("paper")(paper.paper)
app.command("sample")(sample.sample)
app.command("bench")(bench.bench)
app.command("list")(list_names.list_names)
app.add_typer(data.app, name="data")

INTERRUPTED = 130
"""The exit code that typer turns Ctrl-C into."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vcl {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a mistake that a user can mend is one sentence on standard error and exit code 1."""
    try:
        app()
    except VclError as error:
        typer.echo(f"vcl: {error}", err=True)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            typer.echo("vcl: stopped; what was finished is kept.", err=True)
        raise
