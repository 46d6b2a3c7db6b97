"""`vcl data`: lists, downloads and verifies datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcl.lab.commands.options import Plugin, load_plugins

if TYPE_CHECKING:
    from vcl.lab.datasets.entry import Found

app = typer.Typer(no_args_is_help=True, help="List, download and verify datasets.")

Folder = Annotated[
    Path | None,
    typer.Option("--data", help="A data folder to search first, before $VCL_DATA and the cache."),
]


@app.command("list")
def list_(data: Folder = None, plugin: Plugin = None) -> None:
    """List all datasets and where they are on this machine."""
    from rich.table import Table

    from vcl.lab.console import make_console
    from vcl.lab.datasets import silent
    from vcl.lab.datasets.locate import find
    from vcl.lab.registry import datasets

    load_plugins(plugin)

    table = Table("name", "what", "where", "size")
    # A truncated path cannot be copied.
    table.columns[0].no_wrap = True
    table.columns[2].overflow = "fold"
    table.columns[3].justify = "right"
    for entry in datasets().values():
        found = find(entry, data, silent)
        where = found.where if found else "not found"
        table.add_row(entry.name, entry.about, where, _size(found) if found else "")
    make_console().print(table)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The dataset; `vcl data list` shows the names.")],
    data: Folder = None,
    plugin: Plugin = None,
) -> None:
    """Download a dataset into the cache, unless a data folder has it, and verify it."""
    from vcl.lab.datasets.locate import load_dataset
    from vcl.lab.registry import dataset as named

    load_plugins(plugin)
    dataset = load_dataset(named(name), data, True, typer.echo)
    typer.echo(
        f"{dataset.name}: {len(dataset.train_x):,} images to train on, {len(dataset.test_x):,} to test on; "
        f"{dataset.origin}"
    )


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="One dataset; default: all that are found.")] = None,
    data: Folder = None,
    plugin: Plugin = None,
) -> None:
    """Compare every file in every data folder with its known hash; exit with code 1 if one is bad."""
    from vcl.errors import VclError
    from vcl.lab.datasets import MissingData
    from vcl.lab.datasets.data_folders import data_folders
    from vcl.lab.datasets.locate import find_all
    from vcl.lab.registry import dataset, datasets

    load_plugins(plugin)

    faults: list[str] = []
    for entry in [dataset(name)] if name else datasets().values():
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
