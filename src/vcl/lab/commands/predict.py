"""`vcl predict`: predictions of the networks of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcl.lab.commands.options import Data, Of, Plugin, load_plugins


def predict(
    folder: Annotated[str, typer.Argument(help="A folder or address of results, or the folder of one part in it.")],
    task: Annotated[str, typer.Option(help="The task whose head predicts, by name, such as 0/1.")],
    method: Annotated[
        str | None, typer.Option(help="The method, or its label in the table; default: the first one.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="An npy or npz file of inputs; default: the task's test data.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The new npz or csv file to write.")] = Path("predictions.npz"),
    experiment: Of = None,
    data: Data = None,
    plugin: Plugin = None,
) -> None:
    """Write the predictions of every seed to an npz or CSV file.

    \b
    Example:
      vcl predict runs/mine --method vcl --task 0/1 --out predictions.csv
    """
    from vcl.errors import VclError
    from vcl.lab import saved
    from vcl.lab.folder import check_new, write_new
    from vcl.lab.remote.place import read_from

    load_plugins(plugin)
    if out.suffix not in (".npz", ".csv"):
        raise VclError(f"--out is {out}; give a name that ends in .npz or .csv.")
    check_new(out, "predictions.npz", out.suffix)
    found = [
        saved.read_stack(stack)
        for stack in saved.find(read_from(folder, typer.echo, whole=True), method, task, experiment)
    ]
    made = saved.joined([saved.predictions(each, task, inputs, data, typer.echo) for each in found])
    write_new(out, saved.as_npz(made) if out.suffix == ".npz" else saved.as_csv(made))
    name, array = next(iter(made.arrays.items()))
    typer.echo(
        f"{name} {array.shape} of task {task} of {found[0].stack.name} by {found[0].entry.name} (seeds, examples, "
        f"outputs) in {out}."
    )
