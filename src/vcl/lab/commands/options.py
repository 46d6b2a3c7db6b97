"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Experiment = Annotated[str, typer.Argument(help="The experiment; `vcl list` shows the names.")]
Preset = Annotated[str, typer.Option(help="paper, quick (minutes on 2 cores) or smoke (seconds).")]
Seeds = Annotated[int | None, typer.Option(help="Run seeds 0 to N-1 as one stack; default: the preset's number.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Out = Annotated[
    str | None,
    typer.Option(
        help="The folder for results, or an address such as s3://bucket/folder; default: a new folder under runs/. An "
        "existing one is extended.",
        metavar="PLACE",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="key=value, or part.key=value (vcl.draws=4); `vcl run --settings` lists them. Repeatable."
    ),
]
Dataset = Annotated[str | None, typer.Option(help="Use this dataset instead of the experiment's default.")]
Data = Annotated[Path | None, typer.Option(help="A data folder to search first.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Methods to run at once (a GPU can run several, at most 10), or jobs of a launcher. Default: 1, or as "
        "many as there is room for.",
        metavar="N",
    ),
]
Launcher = Annotated[
    str, typer.Option(help="local (in this process), processes (jobs on this machine) or ray (jobs on a cluster).")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster, as HOST:PORT or ray://HOST:PORT; default: $RAY_ADDRESS, or that of this machine."
    ),
]
Cpus = Annotated[int | None, typer.Option(help="CPU cores of each job of a launcher.", metavar="N")]
Gpus = Annotated[
    float | None,
    typer.Option(help="GPUs of each job on a cluster, such as 0.25; default: 1 with --device cuda.", metavar="SHARE"),
]
RunsPerJob = Annotated[
    int | None,
    typer.Option(help="The most runs (seeds x lambdas) of a job; default: so many that all have work.", metavar="N"),
]
SaveEvery = Annotated[
    float,
    typer.Option(help="Seconds between two saves within a task; 0 saves after every step.", metavar="SECONDS"),
]
Log = Annotated[
    str | None,
    typer.Option(help="tensorboard: also write scalars of each finished task into DIR/tensorboard.", metavar="NAME"),
]
Of = Annotated[str | None, typer.Option("--experiment", help="The experiment, where the folder holds several.")]
Plugin = Annotated[
    list[Path] | None, typer.Option(help="A Python file that adds methods, experiments or datasets. Repeatable.")
]


def load_plugins(files: list[Path] | None) -> None:
    """Load plugin files."""
    from vcl.lab.registry import load_file

    for file in files or ():
        load_file(file)
