"""`vcl list`: the names that the other commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcl.lab.commands.options import Plugin, load_plugins

if TYPE_CHECKING:
    from rich.table import Table

    from vcl.lab.experiments import Experiment


def list_names(plugin: Plugin = None) -> None:
    """List all experiments, methods and datasets."""
    from vcl.lab.console import make_console, say_on
    from vcl.lab.registry import datasets, experiments, installed, methods

    load_plugins(plugin)
    console = make_console()
    streams = _table("experiments", "name", "tasks", "classes", "what")
    for name, entry in experiments().items():
        streams.add_row(name, _tasks(entry), _classes(entry), entry.about)
    tables = [streams]
    for title, known in (
        ("methods", methods("networks")),
        ("methods of generative experiments", methods("generators")),
    ):
        tables.append(_table(title, "name", "what"))
        for name, each in known.items():
            tables[-1].add_row(name, each.about)
    tables.append(_table("datasets", "name", "classes", "what"))
    for name, data in datasets().items():
        tables[-1].add_row(name, str(data.classes or "-"), data.about)
    for table in tables:
        console.print(table, "")
    say_on(
        console, "tasks: at the preset quick / paper; classes: of a task. `vcl run NAME --settings` lists all settings."
    )
    for fault in installed().faults:
        say_on(console, fault)


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:-1]:
        column.no_wrap, column.justify = True, "right"
    return table


def _tasks(entry: Experiment) -> str:
    """The number of tasks in the presets quick and paper."""
    from vcl.lab.settings import values_of

    counts = [values_of(entry.presets[preset].stream).get("tasks", "-") for preset in ("quick", "paper")]
    return " / ".join("all" if count is None else str(count) for count in counts)


def _classes(entry: Experiment) -> str:
    """The number of classes per task: the stream's setting, or all of the dataset."""
    from vcl.lab.registry import datasets
    from vcl.lab.settings import values_of

    if entry.models == "generators":
        return "1"
    known = values_of(entry.presets["paper"].stream).get("classes")
    if known is None and entry.dataset in datasets():
        known = datasets()[entry.dataset].classes
    return str(known or ("-" if entry.makes_data else "all"))
