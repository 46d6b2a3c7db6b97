"""`vcl sample`: images from the generators of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def sample(
    run: Annotated[Path, typer.Argument(help="The folder of a run of a generative experiment.")],
    task: Annotated[str, typer.Option(help="Whose generator: the task's name, such as 3.")],
    count: Annotated[int, typer.Option(help="How many images.")] = 64,
    out: Annotated[Path, typer.Option(help="The PNG to write.")] = Path("samples.png"),
    method: Annotated[str | None, typer.Option(help="Which method of the run; its first if left out.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other images.")] = 0,
) -> None:
    """Draw images from one task's generator into a PNG, as many as wanted, side by side."""
    from vcl.errors import VclError
    from vcl.lab.console import make_console
    from vcl.lab.figures import sample_grid
    from vcl.lab.generative.saved import read

    if out.suffix.lower() != ".png":
        raise VclError(f"--out is {out}; give a name that ends in .png.")
    saved = read(run, method)
    images = saved.images(task, count, seed)
    try:
        sample_grid.write(images, out)
    except OSError as error:
        raise VclError(f"cannot write {out} ({error.strerror}); give --out a place that you may write.") from error
    make_console().print(
        f"{count} images of task {task} by {saved.method}, after {saved.state.t} tasks, in {out}.",
        highlight=False,
        soft_wrap=True,
    )
