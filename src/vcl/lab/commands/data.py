"""`vcl data`: which datasets there are, where they lie, and whether their files are whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vcl.lab.datasets.entry import Found

app = typer.Typer(no_args_is_help=True, help="List, get and verify the datasets.")

Folder = Annotated[
    Path | None,
    typer.Option("--data", help="A data folder to look in first, before $VCL_DATA and the cache."),
]


@app.command("list")
def list_(data: Folder = None) -> None:
    """Show every dataset, what it is and where it was found."""
    from rich.table import Table

    from vcl.lab.console import make_console
    from vcl.lab.datasets import DATASETS, silent
    from vcl.lab.datasets.locate import find

    table = Table("name", "what", "where", "size")
    # A path that is cut cannot be copied.
    table.columns[0].no_wrap = True
    table.columns[2].overflow = "fold"
    table.columns[3].justify = "right"
    for entry in DATASETS:
        found = find(entry, data, silent)
        where = found.where if found else "not found"
        table.add_row(entry.name, entry.about, where, _size(found) if found else "")
    make_console().print(table)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The dataset, as `vcl data list` names it.")],
    data: Folder = None,
) -> None:
    """Make a dataset present and verified; what is in no data folder is fetched into the cache."""
    from vcl.lab.datasets import load

    dataset = load(name, data, say=typer.echo)
    typer.echo(
        f"{dataset.name}: {len(dataset.train_x):,} images to train on, {len(dataset.test_x):,} to test on; "
        f"{dataset.origin}"
    )


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="One dataset; all that are found when left out.")] = None,
    data: Folder = None,
) -> None:
    """Compare every file found, in every data folder, with its known hash; exit code 1 if one is bad."""
    from vcl.errors import VclError
    from vcl.lab.datasets import MissingData, dataset_entry, names
    from vcl.lab.datasets.data_folders import data_folders
    from vcl.lab.datasets.locate import find_all

    faults: list[str] = []
    for entry in [dataset_entry(each) for each in ((name,) if name else names())]:
        finds = find_all(entry, data)
        if not finds and name:
            looked = ", ".join(str(place) for place in data_folders(data))
            raise MissingData(f"{name} is in none of {looked}: run `vcl data get {name}`.")
        for found in finds:
            for path in found.files:
                try:
                    typer.echo(f"{path}: {entry.check(path)}")
                except VclError as fault:
                    faults.append(str(fault))
            if found.lacking:
                faults.append(f"{found.where} lacks {', '.join(found.lacking)}.")
            if not found.files:
                typer.echo(f"{entry.name}: {found.where}")
        if not finds:
            typer.echo(f"{entry.name}: not found")
    if faults:
        raise VclError(" ".join(faults))


def _size(found: Found) -> str:
    if not found.files:
        return ""
    files = [file for path in found.files for file in (path.rglob("*.png") if path.is_dir() else (path,))]
    return f"{sum(file.stat().st_size for file in files) / 2**20:.1f} MiB"
