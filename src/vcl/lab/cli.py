"""The command line. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import signal
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

TERMINATED = 143
"""That of a process that was asked to end (SIGTERM)."""

LESS = "give fewer seeds or --jobs, a smaller batch, fewer draws, or a smaller network."
NO_MEMORY = ("can't allocate memory", "out of memory")
"""What torch says where it gets none."""

STOPPED = "stopped; finished tasks keep their rows. `vcl paper` continues them, `vcl run` needs a new --out."


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
    # SIGTERM is handled like Ctrl-C: unfinished files are removed, finished ones are kept.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except VclError as error:
        typer.echo(f"vcl: {error}", err=True)
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        typer.echo(f"vcl: there is not enough memory ({_first_line(error)}); {LESS}", err=True)
        sys.exit(1)
    except OSError as error:  # not foreseen by any command: show the system's message
        typer.echo(f"vcl: the system refused: {error}; give another folder, or make room.", err=True)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code in (INTERRUPTED, TERMINATED):
            typer.echo(f"vcl: {STOPPED}", err=True)
        raise


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(TERMINATED)


def _first_line(error: Exception) -> str:
    """What torch or Python says, without what follows it."""
    return (str(error).splitlines() or ["no memory was left"])[0].rstrip(".")
