"""Results as rows: one number per (method, seed, after task, on task, metric). Tables and figures read rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.learner.bounded import read_bounded
from vcl.predicting.metrics import average_accuracy, backward_transfer, forgetting

T = TypeVar("T")
MOST_BYTES = 2**30
"""The most bytes of rows that are read."""

MOST_PLACES = 2**24
"""The most places of a matrix of seeds and tasks, unless there are rows for at least half of them."""


class NoRowsError(VclError):
    """A CSV file is damaged; ``fault`` says how, without the file and the advice."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path} holds no vcl rows ({fault}); give the rows.csv of a run.")
        self.fault = fault


class Row(NamedTuple):
    """``value`` of ``metric`` on task ``on`` after learning task ``after`` (both from 1)."""

    method: str
    seed: int
    after: int
    on: int
    metric: str
    value: float


class Objective(NamedTuple):
    """The objective of a run in one epoch of a fit, averaged over the epoch's steps."""

    method: str
    seed: int
    task: int
    fit: str
    epoch: int
    value: float


OBJECTIVES = Objective._fields


class FitMeasure(NamedTuple):
    """How far a variational fit of a run got: one measure of :class:`vcl.fitting.health.Health`."""

    method: str
    seed: int
    task: int
    fit: str
    measure: str
    value: float


MEASURES = FitMeasure._fields


class Confidence(NamedTuple):
    """What was true of the predictions of a run whose confidence is in one of ten bins; ``bin`` is from 1.

    After task ``after``, ``right`` of ``examples`` of task ``on`` were right; ``confidence`` is their mean.
    """

    method: str
    seed: int
    after: int
    on: int
    bin: int
    examples: int
    right: int
    confidence: float


CONFIDENCES = Confidence._fields


class Summary(NamedTuple):
    """Mean and standard error over seeds; the error is NaN for a single seed, and the mean too where there is none."""

    mean: float
    error: float
    seeds: int

    def text(self, digits: int = 3, scale: float = 1.0) -> str:
        """The mean, with ± the error if there is one, for tables; a dash where there is no value."""
        if not self.seeds:
            return "-"
        spread = f" ± {scale * self.error:.{digits}f}" if self.error == self.error else ""
        return f"{scale * self.mean:.{digits}f}{spread}"


LAMBDA = " lambda="


def label(method: str, value: float, key: str = "lambda") -> str:
    """The label of a method's rows at one lambda of a grid, or at one value of another setting.

    >>> label("ewc", 100.0), split_label("ewc lambda=100"), split_label("ewc")
    ('ewc lambda=100', ('ewc', 100.0), ('ewc', None))
    >>> label("vcl-random", 400, "coreset"), split_label("vcl-random coreset=400", "coreset")
    ('vcl-random coreset=400', ('vcl-random', 400.0))
    """
    short = f"{value:g}"
    return f"{method} {key}={short if float(short) == value else value}"  # two values never share a label


def split_label(name: str, key: str = "lambda") -> tuple[str, float | None]:
    """The inverse of :func:`label`; None if the key with a number is missing. Text after the value stays in the name.

    >>> split_label("vcl-random coreset=400 (local)", "coreset"), split_label("mine lambda=abc")
    (('vcl-random (local)', 400.0), ('mine lambda=abc', None))
    """
    method, _, rest = name.partition(f" {key}=")
    value, space, more = rest.partition(" ")
    try:
        return method + space + more, float(value)
    except ValueError:
        return name, None


def shown(name: str) -> str:
    """A label as figures show it: λ for lambda."""
    return name.replace(LAMBDA, " λ=")


def write_csv(columns: Sequence[str], lines: Iterable[tuple[Any, ...]]) -> str:
    """Lines as CSV text; numbers in the last column are written so that they read back exactly."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows((*line[:-1], repr(line[-1])) for line in lines)
    return out.getvalue()


class Written:
    """CSV text to which lines are added: the same as :func:`write_csv` of all of them, without writing each again."""

    def __init__(self, columns: Sequence[str], lines: Iterable[tuple[Any, ...]] = ()) -> None:
        self.columns, self.pieces = columns, [write_csv(columns, lines)]

    def add(self, lines: Iterable[tuple[Any, ...]]) -> None:
        """Add lines at the end."""
        self.pieces.append(write_csv(self.columns, lines).partition("\n")[2])

    def text(self) -> str:
        """All of it."""
        self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


def to_csv(rows: Iterable[Row]) -> str:
    """Rows as CSV text."""
    return write_csv(Row._fields, rows)


def read_csv(path: Path) -> list[Row]:
    """The rows of a file written by :func:`to_csv`. Raises NoRowsError if they cannot be rows of tasks."""
    rows = _read(path, Row)
    most, seeds = dict[str, int](), dict[str, set[int]]()
    for row in rows:
        if not 1 <= row.on <= row.after:
            raise NoRowsError(path, f"a row is of task {row.on} after task {row.after}")
        most[row.method] = max(most.get(row.method, 0), row.after)
        seeds.setdefault(row.method, set()).add(row.seed)
    # A matrix has a place for each task after each task. Few rows cannot ask for many of them.
    places = max((len(seeds[name]) * tasks**2 for name, tasks in most.items()), default=0)
    if places > max(MOST_PLACES, 4 * len(rows)):
        raise NoRowsError(path, f"its {len(rows)} rows are of up to {max(most.values()):,} tasks, which are too many")
    return rows


def read_objectives(path: Path) -> list[Objective]:
    """The objectives of a part; an empty list if the file does not exist."""
    return _read(path, Objective) if path.exists() else []


def read_measures(path: Path) -> list[FitMeasure]:
    """The measures of a part's fits; an empty list if the file does not exist."""
    return _read(path, FitMeasure) if path.exists() else []


def read_confidences(path: Path) -> list[Confidence]:
    """The binned confidences of a part; an empty list if the file does not exist."""
    return _read(path, Confidence) if path.exists() else []


def _read(path: Path, kind: type[T]) -> list[T]:
    """The lines of a CSV file whose columns are the fields of a type. Raises NoRowsError if it is damaged."""
    kinds = get_type_hints(kind)
    try:
        text = read_bounded(path, MOST_BYTES).decode()
        header, _, lines = text.partition("\n")
        if header.rstrip("\r") != ",".join(kinds):
            raise ValueError(f"its columns are {header[:200].rstrip().split(',')}")
        if not text.endswith("\n"):
            raise ValueError("its last line has no end: it was cut, or is still being written")
        return [_line(kind, tuple(kinds.values()), line) for line in csv.reader(io.StringIO(lines, newline=""))]
    except (OSError, TypeError, ValueError, OverflowError, csv.Error) as error:
        raise NoRowsError(path, str(error)) from error


def _line(kind: type[T], kinds: Sequence[Callable[[str], Any]], line: Sequence[str]) -> T:
    if len(line) != len(kinds):
        raise ValueError(f"a line has {len(line)} fields, not {len(kinds)}")
    return kind(*(read(text) for read, text in zip(kinds, line, strict=True)))


def methods(rows: Sequence[Row]) -> list[str]:
    """The methods in the rows, in order of appearance."""
    return list(dict.fromkeys(row.method for row in rows))


def by_lambda(rows: Sequence[Row]) -> dict[str, dict[float, str]]:
    """The labels of each method by lambda, of those with lambdas."""
    grids: dict[str, dict[float, str]] = {}
    for name in methods(rows):
        method, lam = split_label(name)
        if lam is not None:
            grids.setdefault(method, {})[lam] = name
    return grids


def counted(*counts: int) -> str:
    """Numbers of seeds in words.

    >>> counted(1), counted(3, 5)
    ('1 seed', '3 or 5 seeds')
    """
    return f"{' or '.join(map(str, counts))} seed{'' if counts == (1,) else 's'}"


def averaged_over(rows: Sequence[Row]) -> str:
    """What the numbers below a table are averaged over: 5 seeds, or 3 or 5."""
    counts = {len({row.seed for row in rows if row.method == name}) for name in methods(rows)}
    return f"Mean ± standard error over {counted(*sorted(counts))}, averaged over tasks, after the last task."


def matrix(rows: Sequence[Row], method: str, metric: str = "accuracy") -> Tensor:
    """A[seed, after, on] of one method; NaN where there is no row, and of no seeds where the metric has none."""
    mine = [row for row in rows if row.method == method and row.metric == metric]
    seeds = sorted({row.seed for row in mine})
    size = max((row.after for row in mine), default=1)
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


def forgotten(rows: Sequence[Row], method: str, metric: str) -> Summary:
    """The loss in a metric since each task was learned, averaged over all tasks but the last."""
    return summarise(forgetting(matrix(rows, method, metric)))


def final(rows: Sequence[Row], method: str) -> dict[str, Summary]:
    """A method's measures after the last task, by name."""
    A = matrix(rows, method)
    return {
        "average accuracy": summarise(average_accuracy(A)[:, -1]),
        "forgetting": summarise(forgetting(A)),
        "backward transfer": summarise(backward_transfer(A)),
        **{name: final_score(rows, method, name) for name in ("log predictive", "calibration error", "Brier score")},
    }
