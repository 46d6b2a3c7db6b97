"""`vcl run`: an experiment with one or more methods, all seeds stacked, to rows, a table and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    experiment: Annotated[str, typer.Argument(help="Which experiment; `vcl list` names them.")],
    method: Annotated[str, typer.Option(help="One or more methods, with commas between.")] = "vcl",
    preset: Annotated[str, typer.Option(help="paper, quick (minutes on 2 cores) or smoke (seconds).")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="Seeds 0 to N-1, stacked; the preset's number if left out.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="A new folder for the results; under runs/ if left out.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, a setting to change; repeatable.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="lambda=1,10,100 (or lambda=paper): every lambda with every seed, as one stack.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Methods run at once; a GPU has room for several (10 at most).")] = 1,
    data: Annotated[Path | None, typer.Option(help="A data folder to look in first.")] = None,
    fallback: Annotated[str | None, typer.Option(help="An experiment to run if this one's data cannot be had.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, its time and its memory; run nothing.")
    ] = False,
) -> None:
    """Run an experiment and write settings, rows, a table and a figure to a folder."""
    from vcl.lab.console import make_console
    from vcl.lab.estimate import check_methods, show_estimate
    from vcl.lab.identity import check_used, unused
    from vcl.lab.plan import make_plan
    from vcl.lab.session import execute, load_arrays, open_folder, say_on
    from vcl.lab.side_by_side import check_jobs

    console = make_console()
    check_jobs(jobs)
    # Everything that can be wrong is looked at before any work starts.
    plan = make_plan(experiment, method, preset, seeds, device, set_ or [], grid)
    other = make_plan(fallback, method, preset, seeds, device, set_ or [], grid) if fallback else None
    for each in (plan, other):
        check_used([each] if each else [])
    plan, arrays, origin = load_arrays(plan, other, data, console)
    for line in unused(plan):
        say_on(console, line)
    if dry_run:
        check_methods(plan, arrays, jobs)
        show_estimate(plan, arrays, console)
        return
    with open_folder(plan, out) as folder:
        execute(plan, arrays, origin, folder, console, jobs)
