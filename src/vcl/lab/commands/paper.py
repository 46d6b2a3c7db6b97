"""`vcl paper`: reproduces the paper's figures and numbers and compares them with the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands import options

MOST_SEEDS = 1000
"""The most seeds of an item that is not a stream of tasks. Memory limits those of a stream (:mod:`vcl.lab.memory`)."""


def paper(
    items: Annotated[list[str], typer.Argument(help="`list`, `all`, or one or more items, such as fig2 fig4.")],
    preset: Annotated[str, typer.Option(help="paper, quick (minutes on 2 cores) or smoke (seconds).")] = "quick",
    seeds: Annotated[
        int | None, typer.Option(help="Run seeds 0 to N-1 as one stack; default: the preset's number.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of every stream, such as epochs=20. Repeatable.")
    ] = None,
    jobs: options.Jobs = None,
    launcher: options.Launcher = "local",
    address: options.Address = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    runs_per_job: options.RunsPerJob = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="The folder for results, or an address such as s3://bucket/folder; default: runs/paper-PRESET.",
            metavar="PLACE",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A data folder to search first.")] = None,
    save_every: options.SaveEvery = 180.0,
) -> None:
    """Run the paper's experiments and compare our numbers with the paper's. Finished parts are kept and reused."""
    import sys

    from vcl.errors import VclError, unknown
    from vcl.lab.console import make_console, say_on
    from vcl.lab.experiments.experiment import PRESETS
    from vcl.lab.launching.choose import Options, elsewhere
    from vcl.lab.paper.item import TableItem
    from vcl.lab.paper.items import ITEMS, item
    from vcl.lab.paper.reproduce import Reproduction
    from vcl.lab.plan import choose_device
    from vcl.lab.provenance import command
    from vcl.lab.remote.place import check_shared, place_of
    from vcl.lab.side_by_side import check_jobs
    from vcl.learner.saving import check_every

    console = make_console()
    if items == ["list"]:
        list_items()
        return
    chosen = ITEMS if items == ["all"] else tuple(item(name) for name in dict.fromkeys(items))
    known = next((known for known in PRESETS if known == preset), None)
    if known is None:
        raise unknown("preset", preset, PRESETS)
    if seeds is not None and seeds < 1:
        raise VclError(f"--seeds is {seeds}; give at least 1.")
    tables = [entry.name for entry in chosen if isinstance(entry, TableItem)]
    if seeds is not None and seeds > MOST_SEEDS and tables:
        raise VclError(f"--seeds is {seeds}; {tables[0]} takes at most {MOST_SEEDS:,}: give fewer, or leave it out.")
    check_jobs(1 if jobs is None else jobs)
    away = elsewhere(Options(launcher, jobs, address, cpus, gpus, runs_per_job), data)
    check_shared(out, away is not None)
    at_once = jobs or 1
    check_every(save_every)
    where, mirror = place_of(out or f"runs/paper-{known}", lambda line: say_on(console, line))
    made_by, changes = command(sys.argv[1:]), tuple(set_ or ())
    device_found = choose_device(device)
    reproduction = Reproduction(
        known, seeds, device_found, data, where, made_by, console, changes, at_once, save_every, away, mirror
    )
    reproduction.run(chosen)


def list_items() -> None:
    """Print every item with its name, description and place in the paper."""
    from rich.table import Table

    from vcl.lab.console import make_console
    from vcl.lab.paper.items import ITEMS

    table = Table("item", "what", "where")
    table.columns[0].no_wrap = True
    for entry in ITEMS:
        table.add_row(entry.name, entry.about, entry.place)
    make_console().print(table)
