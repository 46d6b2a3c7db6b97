"""`vcl show`: redraws tables and figures from rows alone."""

from __future__ import annotations

from typing import Annotated

import typer

from vcl.lab.commands.options import Plugin, load_plugins


def show(
    folder: Annotated[
        str, typer.Argument(help="A folder or address written by `vcl run`, `vcl sweep` or `vcl paper`.")
    ],
    plugin: Plugin = None,
) -> None:
    """Redraw the tables and figures of a folder of results. Only its rows are needed."""
    from vcl.lab.console import make_console, say_on
    from vcl.lab.remote.place import read_from
    from vcl.lab.show import show_folder

    load_plugins(plugin)
    console = make_console()
    here = read_from(folder, lambda line: say_on(console, line))
    show_folder(here, console)
