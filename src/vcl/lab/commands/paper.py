"""`vcl paper`: the paper's figures and numbers, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MOST_SEEDS = 1000
"""Of an item that is no stream of tasks; what a stream can have is counted (:mod:`vcl.lab.memory`)."""


def paper(
    items: Annotated[list[str], typer.Argument(help="`list`, `all`, or one or more items, such as fig2 fig4.")],
    preset: Annotated[str, typer.Option(help="paper, quick (minutes on 2 cores) or smoke (seconds).")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="Seeds 0 to N-1, stacked; the preset's number if left out.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change one setting of every stream of tasks, as in epochs=20.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Streams of tasks learned at once; a GPU has room for several (10 at most).")
    ] = 1,
    out: Annotated[Path | None, typer.Option(help="Where results are kept; runs/paper-PRESET if left out.")] = None,
    data: Annotated[Path | None, typer.Option(help="A data folder to look in first.")] = None,
) -> None:
    """Run what the paper ran and show ours beside theirs. What is finished is kept and never computed again."""
    import sys

    from vcl.errors import VclError, unknown
    from vcl.lab.console import make_console
    from vcl.lab.paper.item import TableItem
    from vcl.lab.paper.items import ITEMS, item
    from vcl.lab.paper.reproduce import Reproduction
    from vcl.lab.plan import choose_device
    from vcl.lab.session import command
    from vcl.lab.settings import PRESETS
    from vcl.lab.side_by_side import check_jobs

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
    check_jobs(jobs)
    where = out or Path("runs") / f"paper-{known}"
    made_by, changes = command(sys.argv[1:]), tuple(set_ or ())
    Reproduction(known, seeds, choose_device(device), data, where, made_by, console, changes, jobs).run(chosen)


def list_items() -> None:
    """Every item: its name, what it is, and where it is in the paper."""
    from rich.table import Table

    from vcl.lab.console import make_console
    from vcl.lab.paper.items import ITEMS

    table = Table("item", "what", "where")
    table.columns[0].no_wrap = True
    for entry in ITEMS:
        table.add_row(entry.name, entry.about, entry.place)
    make_console().print(table)
