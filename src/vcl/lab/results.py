"""Results as rows, one number each, by (method, seed, after task, on task, metric). Tables and figures read rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.predicting.metrics import average_accuracy, backward_transfer, forgetting


class Row(NamedTuple):
    """``value`` of ``metric`` on task ``on`` after learning task ``after`` (both from 1)."""

    method: str
    seed: int
    after: int
    on: int
    metric: str
    value: float


class Summary(NamedTuple):
    """Mean and standard error over seeds; the error is NaN for a single seed."""

    mean: float
    error: float
    seeds: int


LAMBDA = " lambda="


def label(method: str, value: float, key: str = "lambda") -> str:
    """What the rows of a method at one lambda of a grid, or one value of another setting, are called.

    >>> label("ewc", 100.0), split_label("ewc lambda=100"), split_label("ewc")
    ('ewc lambda=100', ('ewc', 100.0), ('ewc', None))
    >>> label("vcl-random", 400, "coreset"), split_label("vcl-random coreset=400", "coreset")
    ('vcl-random coreset=400', ('vcl-random', 400.0))
    """
    short = f"{value:g}"
    return f"{method} {key}={short if float(short) == value else value}"  # two values never share a name


def split_label(name: str, key: str = "lambda") -> tuple[str, float | None]:
    """The inverse of :func:`label`; None where the key is not in it. What stands behind the value stays in the name.

    >>> split_label("vcl-random coreset=400 (local)", "coreset")
    ('vcl-random (local)', 400.0)
    """
    method, found, rest = name.partition(f" {key}=")
    value, space, more = rest.partition(" ")
    return method + space + more, float(value) if found else None


def shown(name: str) -> str:
    """A label as figures show it: λ for lambda."""
    return name.replace(LAMBDA, " λ=")


def to_csv(rows: Iterable[Row]) -> str:
    """Rows as CSV text, numbers written so that they read back exactly."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows((*row[:5], repr(row.value)) for row in rows)
    return out.getvalue()


def read_csv(path: Path) -> list[Row]:
    """The rows of a file that :func:`to_csv` made."""
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != Row._fields:
                raise ValueError(f"its columns are {reader.fieldnames}")
            return [
                Row(r["method"], int(r["seed"]), int(r["after"]), int(r["on"]), r["metric"], float(r["value"]))
                for r in reader
            ]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise VclError(f"{path} holds no vcl rows ({error}); give the rows.csv of a run.") from error


def methods(rows: Sequence[Row]) -> list[str]:
    """The methods in the rows, in order of appearance."""
    return list(dict.fromkeys(row.method for row in rows))


def matrix(rows: Sequence[Row], method: str, metric: str = "accuracy") -> Tensor:
    """A[seed, after, on] of one method; what is not in the rows is NaN."""
    mine = [row for row in rows if row.method == method and row.metric == metric]
    seeds = sorted({row.seed for row in mine})
    size = max((row.after for row in mine), default=0)
    A = torch.full((len(seeds), size, size), torch.nan, dtype=torch.float64)
    for row in mine:
        A[seeds.index(row.seed), row.after - 1, row.on - 1] = row.value
    return A


def summarise(values: Tensor) -> Summary:
    """Mean and standard error of one value per seed."""
    n = values.numel()
    error = float(values.std() / n**0.5) if n > 1 else float("nan")
    return Summary(float(values.mean()), error, n)


def final_score(rows: Sequence[Row], method: str, metric: str) -> Summary:
    """A metric after the last task, averaged over the tasks so far."""
    return summarise(matrix(rows, method, metric)[:, -1].nanmean(-1))


def final(rows: Sequence[Row], method: str) -> dict[str, Summary]:
    """The measures after the last task: what a table shows of a method."""
    A = matrix(rows, method)
    return {
        "average accuracy": summarise(average_accuracy(A)[:, -1]),
        "forgetting": summarise(forgetting(A)),
        "backward transfer": summarise(backward_transfer(A)),
        **{name: final_score(rows, method, name) for name in ("log predictive", "calibration error", "Brier score")},
    }
