"""`vcl sweep`: find the best lambda of EWC, SI, LP or MAP, and what it gives on the test set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def sweep(
    experiment: Annotated[str, typer.Argument(help="Which experiment; `vcl list` names them.")],
    method: Annotated[str, typer.Option(help="One or more methods that take a lambda, with commas between.")] = "ewc",
    grid: Annotated[
        str, typer.Option(help="lambda=1,10,100, or lambda=paper for what the paper tried.")
    ] = "lambda=paper",
    select: Annotated[
        str, typer.Option(help="validation: on held-out training data. test: on the test set, as the paper did.")
    ] = "validation",
    validation: Annotated[float, typer.Option(help="The share of the training data to hold out.")] = 0.1,
    preset: Annotated[str, typer.Option(help="paper, quick (minutes on 2 cores) or smoke (seconds).")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="Seeds 0 to N-1, stacked; the preset's number if left out.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="A new folder for the results; under runs/ if left out.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, a setting to change; repeatable.")] = None,
    data: Annotated[Path | None, typer.Option(help="A data folder to look in first.")] = None,
) -> None:
    """Try a grid of lambdas as one stack of runs, choose the best on held-out training data, and test that one."""
    from vcl.lab.console import make_console
    from vcl.lab.identity import check_used, unused
    from vcl.lab.plan import make_plan
    from vcl.lab.session import load_arrays, open_folder, say_on
    from vcl.lab.sweep import check
    from vcl.lab.sweep import sweep as run_sweep

    console = make_console()
    # Everything that can be wrong is looked at before any work starts.
    plan = make_plan(experiment, method, preset, seeds, device, set_ or [], grid)
    check_used([plan])
    selection = check(plan, select, validation)
    plan, arrays, origin = load_arrays(plan, None, data, console)
    for line in unused(plan):
        say_on(console, line)
    with open_folder(plan, out) as folder:
        run_sweep(plan, arrays, origin, selection, validation, folder, console)
