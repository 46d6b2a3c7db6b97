"""`vcl list`: the names that the other commands take."""

from __future__ import annotations


def list_names() -> None:
    """Show all experiments, methods and datasets by name."""
    from rich.table import Table

    from vcl.lab.console import make_console
    from vcl.lab.datasets import describe, names
    from vcl.lab.experiments import EXPERIMENTS
    from vcl.lab.generative.methods import GENERATIVE_METHODS
    from vcl.lab.methods import METHODS

    groups = {
        "experiments": [(entry.name, entry.about) for entry in EXPERIMENTS],
        "methods": [(entry.name, entry.about) for entry in METHODS],
        "methods of generative experiments": [(entry.name, entry.about) for entry in GENERATIVE_METHODS],
        "datasets": [(name, describe(name)) for name in names()],
    }
    for title, entries in groups.items():
        table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        for entry in entries:
            table.add_row(*entry)
        make_console().print(table, "")
