"""The command line. Commands import heavy modules only when they run."""

from __future__ import annotations

import signal
import sys
from traceback import extract_tb
from typing import Annotated

import typer

from vcl import __version__
from vcl.errors import VclError
from vcl.lab.commands import bench, data, list_names, model, paper, predict, report, run, sample, show, sweep, watch
from vcl.lab.stopped import INTERRUPTED, STOPPED, TERMINATED, Stopped
from vcl.ops.out_of_memory import is_out_of_memory

HELP = """Variational continual learning: yesterday's posterior is today's prior.

\b
Examples:
  vcl list                                               experiments, methods, datasets
  vcl run permuted-digits --method mle,vcl,vcl-random    what forgetting is, in a minute
  vcl run permuted-digits --method vcl --settings        every setting and its meaning
  vcl run split --dataset fashion-mnist --method vcl,si  any dataset in any stream
  vcl show runs/mine                                     tables and figures again
  vcl report runs/mine                                   one page with everything
  vcl watch runs/mine                                    the same page, live while a run goes on
  vcl model new june --hidden 100,100                    a model of your own tables, which keeps learning
  vcl paper fig2 --preset quick                          the paper's figure, ours beside it
"""

app = typer.Typer(
    name="vcl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help shows flags as flags
    help=HELP,
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("paper")(paper.paper)
app.command("show")(show.show)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("predict")(predict.predict)
app.command("sample")(sample.sample)
app.command("bench")(bench.bench)
app.command("list")(list_names.list_names)
app.add_typer(data.app, name="data")
app.add_typer(model.app, name="model")

LESS = "give fewer seeds or --jobs, a smaller batch, fewer draws, or a smaller network."


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
    """Run the command line. An error the user can fix prints one sentence to standard error and exits with code 1."""
    # SIGTERM is handled like Ctrl-C: unfinished files are removed, finished ones are kept.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except VclError as error:
        typer.echo(f"vcl: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        told = _told(error)
        if not told:
            raise
        typer.echo(f"vcl: {told}", err=True)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code in (INTERRUPTED, TERMINATED):
            _say_last(stop.told if isinstance(stop, Stopped) else STOPPED)
        elif (place := _in_plugin(stop)) is not None:
            typer.echo(f"vcl: the plugin ended the program at {place} (SystemExit: {stop}); fix it.", err=True)
            sys.exit(1)
        raise
    except KeyboardInterrupt:  # typer has taken the first one, and this came while that was dealt with
        _say_last(STOPPED)
        sys.exit(INTERRUPTED)


def _say_last(told: str) -> None:
    """Say one line, which no further signal cuts short: the process ends after it."""
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    typer.echo(f"vcl: {told}", err=True)
    for each, how in before.items():
        signal.signal(each, how)


def _told(error: Exception) -> str:
    """One sentence for an error that no command handled; nothing for an error of vcl's own."""
    place, why = _in_plugin(error), _first_line(error)
    if is_out_of_memory(error):
        return f"there is not enough memory ({why}); {LESS}"
    if place is not None:
        return f"the plugin failed at {place} ({type(error).__name__}: {why}); fix it."
    return f"the system refused: {error}; give another folder, or make room." if isinstance(error, OSError) else ""


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(TERMINATED)


def _in_plugin(error: BaseException) -> str | None:
    """The last line of a plugin file that an error passed through; None where there is none."""
    from vcl.lab.registry import FILES

    files, found = {str(path) for path in FILES}, None
    for frame in extract_tb(error.__traceback__):
        if frame.filename in files:
            found = f"{frame.filename}, line {frame.lineno}"
    return found


def _first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).splitlines() or ["no memory was left"])[0].rstrip(".")
