"""`vcl sample`: images from the generators of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def sample(
    run: Annotated[Path, typer.Argument(help="The folder of a run of a generative experiment.")],
    task: Annotated[str, typer.Option(help="Whose generator: the task's name, such as 3.")],
    count: Annotated[int, typer.Option(help="How many images.")] = 64,
    out: Annotated[Path, typer.Option(help="The PNG to write, a new file.")] = Path("samples.png"),
    method: Annotated[str | None, typer.Option(help="Which method of the run; its first if left out.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other images.")] = 0,
) -> None:
    """Draw images from one task's generator into a PNG, as many as wanted, side by side."""
    from vcl.lab.console import make_console
    from vcl.lab.figures import sample_grid
    from vcl.lab.folder import check_new, write_new
    from vcl.lab.generative.saved import read

    check_new(out, "samples.png", ".png")
    saved = read(run, method)
    images = saved.images(task, count, seed)
    write_new(out, sample_grid.png(images))
    make_console().print(
        f"{count} images of task {task} by {saved.method}, after {saved.state.t} tasks, in {out}.",
        highlight=False,
        soft_wrap=True,
    )
