"""Hand-made data and rows for the tests of the lab, and calls of its command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from typer.testing import CliRunner, Result

from vcl.beliefs.layout import Layout
from vcl.beliefs.point import Point
from vcl.errors import VclError
from vcl.lab import cli, loading
from vcl.lab.classification import METRICS
from vcl.lab.datasets import data_folders, load
from vcl.lab.results import Row, read_csv
from vcl.lab.streams import Arrays
from vcl.recursion import State

NOWHERE: State[Any] = State(0, {}, Point(Layout((), ()), torch.zeros(1, 0)), {}, None)
"""A state where none is looked at."""

Triangle = Sequence[Sequence[float]]
"""Row i holds the values on tasks 1 to i + 1 after task i + 1."""


def images(train: int = 60, test: int = 30, side: int = 8, classes: int = 10) -> Arrays:
    """Random uint8 pictures, the classes in turn; the first of each part shows every pixel's own number."""
    g = torch.Generator().manual_seed(0)

    def pictures(n: int) -> torch.Tensor:
        x = torch.randint(0, 256, (n, side, side), generator=g, dtype=torch.uint8)
        x[0] = torch.arange(side * side, dtype=torch.uint8).view(side, side)
        return x

    return Arrays(
        pictures(train),
        torch.arange(train) % classes,
        pictures(test),
        torch.arange(test) % classes,
        tuple("abcdefghijklmnop"[:classes]),
    )


def triangle_rows(method: str, by_seed: Mapping[int, Triangle], metric: str = "accuracy") -> list[Row]:
    """The rows of one metric, task after task, as a run writes them."""
    tasks = len(next(iter(by_seed.values())))
    return [
        Row(method, seed, after + 1, on + 1, metric, values[after][on])
        for after in range(tasks)
        for on in range(after + 1)
        for seed, values in by_seed.items()
    ]


def two_seeds(method: str = "vcl") -> list[Row]:
    """Three tasks and two seeds, whose measures are worked out by hand in the tests."""
    return [
        *triangle_rows(method, {0: [[0.9], [0.7, 0.8], [0.6, 0.9, 0.5]], 1: [[0.5], [0.8, 0.6], [0.7, 0.6, 0.8]]}),
        *triangle_rows(
            method,
            {0: [[-9.0], [-9.0, -9.0], [-0.1, -0.2, -0.6]], 1: [[-9.0], [-9.0, -9.0], [-0.5, -0.5, -0.5]]},
            "log predictive",
        ),
        *triangle_rows(
            method,
            {0: [[9.0], [9.0, 9.0], [0.1, 0.1, 0.1]], 1: [[9.0], [9.0, 9.0], [0.2, 0.3, 0.1]]},
            "calibration error",
        ),
        *triangle_rows(
            method,
            {0: [[9.0], [9.0, 9.0], [0.3, 0.4, 0.5]], 1: [[9.0], [9.0, 9.0], [0.6, 0.6, 0.6]]},
            "Brier score",
        ),
    ]


def one_seed(method: str = "vcl") -> list[Row]:
    """The first of :func:`two_seeds`."""
    return [row for row in two_seeds(method) if row.seed == 0]


def graded(method: str, by_seed: Mapping[int, float]) -> list[Row]:
    """Two tasks at which every seed is equally good throughout, in every metric."""
    return [
        row
        for metric in METRICS
        for row in triangle_rows(method, {seed: [[v], [v, v]] for seed, v in by_seed.items()}, metric)
    ]


def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without a network and without data but the digits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("VCL_DATA", raising=False)
    monkeypatch.setenv("VCL_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(data_folders, "SYSTEM", tmp_path / "system")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def among_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """:func:`alone`, where `vcl paper` takes the 8x8 digits for every dataset."""
    folder, digits = alone(tmp_path, monkeypatch), load("digits")
    monkeypatch.setattr(loading, "read_dataset", lambda name, *_, **__: digits._replace(name=name))
    return folder


def call(line: str) -> Result:
    """One command line, in this process."""
    return CliRunner().invoke(cli.app, shlex.split(line))


def done(line: str) -> str:
    """What a command that succeeds prints."""
    result = call(line)
    assert result.exit_code == 0, result.exception
    return result.output


def fault(line: str) -> str:
    """What a call that must fail says."""
    result = call(line)
    assert result.exit_code == 1
    assert isinstance(result.exception, VclError), result.exception
    return str(result.exception)


def part_folder(out: Path, stem: str) -> Path:
    """The folder of the only stack of a part, such as split-digits-vcl."""
    (folder,) = (out / "parts").glob(f"{stem}-{'[0-9a-f]' * 12}")
    return folder


def without_checksums(root: Path) -> Path:
    """The parts below a folder as earlier versions left them: nothing tells what was written from what was altered."""
    for path in root.rglob("part.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in about.items() if key not in ("files", "check")}))
    for path in root.rglob("*.safetensors"):
        path.write_bytes(save(load_tensors(path.read_bytes())))
    return root


def known(out: Path, stem: str) -> Any:
    """The part.json of the only stack of a part, without the NaN and Infinity that Python allows itself."""

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    return json.loads((part_folder(out, stem) / "part.json").read_text(), parse_constant=refuse)


def shown_rows(out: Path, group: str = "split-digits") -> list[Row]:
    """The rows that a group's table and figures are drawn from."""
    return read_csv(out / group / "rows.csv")


def files_under(folder: Path) -> dict[str, bytes]:
    """Every file under a folder by its path in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
