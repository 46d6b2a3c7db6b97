"""`vcl watch`: the page of folders of results, live, while runs go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands.options import Plugin, load_plugins


def watch(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of `vcl run`, `vcl sweep` or `vcl paper`; they may come later.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8460,
    host: Annotated[
        str,
        typer.Option(help="The address to listen at. Elsewhere than on this machine, the page's address has a token."),
    ] = "127.0.0.1",
    plugin: Plugin = None,
) -> None:
    """Serve the page of folders of results on this machine; it shows each task as soon as it is finished."""
    from vcl.errors import VclError
    from vcl.lab.console import make_console, say_on
    from vcl.lab.remote.files import is_address
    from vcl.lab.report.folders import named
    from vcl.lab.watch.following import Following
    from vcl.lab.watch.server import PageServer

    load_plugins(plugin)
    for folder in folders:
        if is_address(str(folder).replace(":/", "://", 1)):
            raise VclError(f"vcl watch follows folders, and {folder} is an address; `vcl report` makes a page of it.")
    named(folders)
    console = make_console()
    with PageServer(Following(folders), host, port) as server:
        say_on(console, f"The page of {', '.join(map(str, folders))} is at {server.url}")
        if server.token:
            say_on(console, "Whoever has this address can read the results. They are sent without encryption.")
        say_on(console, "Ctrl-C ends it.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say_on(console, "ended.")
