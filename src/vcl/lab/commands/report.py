"""`vcl report`: one page from folders of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands.options import Plugin, load_plugins


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders written by `vcl run`, `vcl sweep` or `vcl paper`.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; default: report.html in the first folder.")] = None,
    plugin: Plugin = None,
) -> None:
    """Write one HTML page with tables, charts and rows of folders of results. It needs no network."""
    from vcl.lab.console import make_console, say_on
    from vcl.lab.report.folders import report as write

    load_plugins(plugin)
    console = make_console()
    path = write(folders, out, console)
    say_on(console, f"The page is in {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser.")
