"""`vcl report`: one page from folders of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands.options import Plugin, load_plugins


def report(
    folders: Annotated[
        list[str], typer.Argument(help="Folders or addresses written by `vcl run`, `vcl sweep` or `vcl paper`.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file; default: report.html in the first folder, or in this one for an address."),
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Write one HTML page with tables, charts and rows of folders of results. It needs no network."""
    from vcl.lab.console import make_console, say_on
    from vcl.lab.remote.files import is_address
    from vcl.lab.remote.place import read_from
    from vcl.lab.report.folders import NAME
    from vcl.lab.report.folders import report as write

    load_plugins(plugin)
    console = make_console()
    here = [read_from(each, lambda line: say_on(console, line)) for each in folders]
    path = write(here, Path(NAME) if out is None and is_address(folders[0]) else out, console)
    say_on(console, f"The page is in {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser.")
