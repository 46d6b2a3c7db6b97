"""`vcl sample`: images from the generators of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands.options import Of, Plugin, load_plugins


def sample(
    folder: Annotated[str, typer.Argument(help="A folder or address of a generative experiment, or one part in it.")],
    task: Annotated[str, typer.Option(help="The task whose generator draws, by name, such as 3.")],
    count: Annotated[int, typer.Option(help="The number of images.")] = 64,
    out: Annotated[Path, typer.Option(help="The new PNG file to write.")] = Path("samples.png"),
    method: Annotated[str | None, typer.Option(help="The method; default: the first.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the draws.")] = 0,
    experiment: Of = None,
    plugin: Plugin = None,
) -> None:
    """Draw images from one task's generator and write them as a grid to a PNG."""
    from vcl.lab import saved
    from vcl.lab.console import make_console, say_on
    from vcl.lab.figures import sample_grid
    from vcl.lab.folder import check_new, write_new
    from vcl.lab.remote.place import read_from

    load_plugins(plugin)
    check_new(out, "samples.png", ".png")
    found = saved.read(read_from(folder, typer.echo, whole=True), method, task, experiment)
    write_new(out, sample_grid.png(saved.images(found, task, count, seed)))
    say_on(
        make_console(),
        f"{count} images of task {task} by {found.entry.name}, after {found.state.t} tasks, in {out}.",
    )
