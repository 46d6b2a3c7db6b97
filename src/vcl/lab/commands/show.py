"""`vcl show`: redraws tables and figures from rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands.options import Plugin, load_plugins


def show(
    folder: Annotated[Path, typer.Argument(help="A folder written by `vcl run`, `vcl sweep` or `vcl paper`.")],
    plugin: Plugin = None,
) -> None:
    """Redraw the tables and figures of a folder of results. Only its rows are needed."""
    from vcl.lab.console import make_console
    from vcl.lab.show import show_folder

    load_plugins(plugin)
    show_folder(folder, make_console())
