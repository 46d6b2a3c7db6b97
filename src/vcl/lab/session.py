"""What `vcl run` and `vcl sweep` share: a folder for results, whose tables and figures are drawn at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vcl.lab.console import say_on
from vcl.lab.folder import new_under, results_folder
from vcl.lab.plan import Plan
from vcl.lab.provenance import command
from vcl.lab.remote.place import Place
from vcl.lab.settings import text_of
from vcl.lab.show import groups, show_groups
from vcl.lab.stopped import continued_in
from vcl.lab.store import Store
from vcl.lab.tensorboard import logged
from vcl.learner.saving import EVERY


@contextmanager
def opened(
    plan: Plan, out: Place | None, console: Console, save_every: float = EVERY, log: str | None = None
) -> Iterator[Store]:
    """The store of the folder given, or of a new one under runs/; on leaving, what it holds is tabled and drawn.

    ``log`` names what finished tasks are written to beside it.
    """
    if out is None:
        out = Place(new_under(Path("runs"), f"{plan.name}-{plan.preset}-{datetime.now():%Y%m%d-%H%M%S}"))
    folder, mirror = out
    with continued_in(folder, out.shown), results_folder(folder):
        began = perf_counter()
        copy = f" (the working copy is {folder})" if mirror else ""
        say_on(console, f"results go to {out.shown}{copy}")
        store = Store(folder, plan.device, command(sys.argv[1:]), save_every, mirror)
        store.bring()
        with logged(folder, log, lambda line: say_on(console, line)):
            yield store
        show_groups(groups(store, console), folder, console, only=plan.experiment.name)
        if mirror is not None:
            mirror.push_drawn()
        say_on(console, f"{perf_counter() - began:.0f} s in all.")


def list_settings(plan: Plan, console: Console) -> None:
    """Every setting: its name, value, where the value comes from, and what it means."""
    title = f"{plan.name}, preset {plan.preset}"
    table = Table("setting", "value", "from", "meaning", title=title, title_justify="left", box=SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    last = ""
    for part, setting, value, origin in plan.listed():
        if part != last:
            table.add_section()
            table.add_row(part, style="bold")
        last = part
        table.add_row(f"  {setting.shown}", shortened(value), origin, setting.meaning)
    console.print(table)
    first = plan.methods[0].name
    say_on(console, f"--set NAME=VALUE changes every part that has the name; --set {first}.NAME=VALUE that part alone.")


def shortened(value: Any) -> str:
    """A value for people: numbers have six digits."""
    return f"{value:g}" if isinstance(value, float) else text_of(value)
