"""What an item of `vcl paper` is: the parts that it needs, which of their rows it shows, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcl.lab.paper.store import Loaded
from vcl.lab.results import Row, Summary, final_score, matrix, methods, split_label
from vcl.lab.settings import Preset

TUNED = ("ewc", "si", "lp")
"""The paper's baselines."""

PAPER_GRID = "lambda=paper"


class Request(NamedTuple):
    """One part: a method of an experiment with changed settings, perhaps a grid of lambdas, under a label."""

    experiment: str
    method: str
    changes: tuple[str, ...] = ()
    grid: str | None = None
    label: str | None = None
    """What its rows are called in this item; the method's name if left out."""
    seeds: int | None = None
    """Fewer seeds than the preset has, where a part is dear."""


def at_the_end(values: Tensor) -> Tensor:
    """Of a metric [seeds, after, on] its mean over all tasks after the last one: [seeds]."""
    return values[:, -1].nanmean(-1)


def when_learned(values: Tensor) -> Tensor:
    """Its mean over tasks, each right after it was learned: what is lost since then is forgotten."""
    return values.diagonal(dim1=1, dim2=2).mean(-1)


def kept_since_learned(values: Tensor) -> Tensor:
    """What is left at the end less what was learned, averaged over tasks: below 0 where it forgets."""
    return at_the_end(values) - when_learned(values)


def first_when_learned(values: Tensor) -> Tensor:
    """The first task's, right after it was learned."""
    return values[:, 0, 0]


def first_one_later(values: Tensor) -> Tensor:
    """The first task's, after the second was learned; NaN if there is none."""
    return values[:, 1, 0] if values.shape[1] > 1 else torch.full((len(values),), torch.nan)


def late_when_learned(values: Tensor) -> Tensor:
    """The mean over the tasks from the eighth on, each right after it was learned; NaN if there are none."""
    return values.diagonal(dim1=1, dim2=2)[:, 7:].mean(-1)


class Measured(NamedTuple):
    """What the table or a claim is of: a metric, what stands behind the method's name, a scale, and what is taken."""

    metric: str
    suffix: str = ""
    scale: float = 1.0
    take: Callable[[Tensor], Tensor] = at_the_end
    listed: bool = True
    """Whether it is in the table; what only claims are about is not."""


ACCURACY = Measured("accuracy", scale=100.0)


class Context(NamedTuple):
    """What the parts of an item may depend on."""

    preset: Preset
    load: Callable[[str], Loaded]
    """The data of an experiment, by the experiment's name."""


class Shown(NamedTuple):
    """What a figure needs beside its rows."""

    title: str
    paper: Mapping[str, float]
    path: Path
    tasks: Callable[[], list[str]]
    """The names of the tasks, made when asked for."""
    pictures: Mapping[str, Sequence[Tensor]] = {}
    """What generators drew after each task, by label: uint8 [runs, tasks so far, count, H, W]."""


class StreamItem(NamedTuple):
    """An item made of streams of tasks."""

    name: str
    about: str
    place: str
    requests: Callable[[Context], list[Request]]
    arrange: Callable[[Sequence[Row]], list[Row]]
    """The rows that the table and the figure show, out of those of all parts."""
    draw: Callable[[Sequence[Row], Shown], list[Path]]
    measures: tuple[Measured, ...] = (ACCURACY,)
    """The first is the one that the paper's numbers and claims are of, unless they name another."""


class TableItem(NamedTuple):
    """An item that computes a table of its own."""

    name: str
    about: str
    place: str
    settings: Mapping[Preset, Mapping[str, Any]]
    compute: Callable[[Mapping[str, Any], torch.device], str]
    measures: Callable[[Sequence[Mapping[str, str]]], dict[str, Summary]]
    by_seed: Callable[[Sequence[Mapping[str, str]]], dict[str, dict[int, float]]]
    """The same numbers seed by seed, for the claims."""
    draw: Callable[[Sequence[Mapping[str, str]], Path], list[Path]]


Item = StreamItem | TableItem


def measure(rows: Sequence[Row], method: str, measured: Measured) -> dict[int, float]:
    """What is measured of a method, by seed; accuracy in %."""
    seeds = sorted({row.seed for row in rows if row.method == method and row.metric == measured.metric})
    values = measured.scale * measured.take(matrix(rows, method, measured.metric))
    return dict(zip(seeds, values.tolist(), strict=True))


def everything(rows: Sequence[Row]) -> list[Row]:
    """All rows."""
    return list(rows)


def best_of_grids(rows: Sequence[Row], metric: str = "accuracy") -> list[Row]:
    """Of every method with a grid the lambda that ends best on the test set (the paper's practice); all other rows."""
    names = methods(rows)
    best: dict[str, str] = {}
    for name in names:
        method, lam = split_label(name)
        if lam is not None and (method not in best or _end(rows, name, metric) > _end(rows, best[method], metric)):
            best[method] = name
    kept = [name for name in names if split_label(name)[1] is None or name in best.values()]
    return [row for row in rows if row.method in kept]


def _end(rows: Sequence[Row], name: str, metric: str) -> float:
    return final_score(rows, name, metric).mean
