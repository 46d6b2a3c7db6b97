"""An item of `vcl paper`: the parts that it needs, the rows that it shows, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcl.lab.experiments.experiment import Preset
from vcl.lab.part import Loaded
from vcl.lab.results import Row, Summary, final_score, matrix, methods, split_label

TUNED = ("ewc", "si", "lp")
"""The paper's baselines."""

PAPER_GRID = "lambda=paper"


class Request(NamedTuple):
    """One part: a method on an experiment, optionally with changed settings, a grid of lambdas and a label."""

    experiment: str
    method: str
    changes: tuple[str, ...] = ()
    grid: str | None = None
    label: str | None = None
    """The label of its rows in this item; default: the method's name."""
    seeds: int | None = None
    """Fewer seeds than the preset's, for an expensive part."""
    facts: Mapping[str, str] = {}
    """What a figure's table says of it beside its rows, by column."""


def at_the_end(values: Tensor) -> Tensor:
    """The mean of a metric [seeds, after, on] over all tasks after the last one: [seeds]."""
    return values[:, -1].nanmean(-1)


def when_learned(values: Tensor) -> Tensor:
    """The mean over tasks, each measured right after it was learned: [seeds]."""
    return values.diagonal(dim1=1, dim2=2).mean(-1)


def kept_since_learned(values: Tensor) -> Tensor:
    """The final value less the value when learned, averaged over tasks; negative means forgetting."""
    return at_the_end(values) - when_learned(values)


def first_when_learned(values: Tensor) -> Tensor:
    """The first task's value right after it was learned."""
    return values[:, 0, 0]


def first_one_later(values: Tensor) -> Tensor:
    """The first task's value after the second was learned; NaN if there is no second."""
    return values[:, 1, 0] if values.shape[1] > 1 else torch.full((len(values),), torch.nan)


def late_when_learned(values: Tensor) -> Tensor:
    """The mean over tasks from the eighth on, each right after it was learned; NaN if there are fewer than eight."""
    return values.diagonal(dim1=1, dim2=2)[:, 7:].mean(-1)


class Measured(NamedTuple):
    """A quantity for the table or a claim: a metric, a suffix to the method's name, a scale, and a reduction."""

    metric: str
    suffix: str = ""
    scale: float = 1.0
    take: Callable[[Tensor], Tensor] = at_the_end
    listed: bool = True
    """Whether it is in the table. Quantities that only claims use are not."""


ACCURACY = Measured("accuracy", scale=100.0)


class Context(NamedTuple):
    """Inputs to the choice of an item's parts."""

    preset: Preset
    load: Callable[[str], Loaded]
    """Loads the data of an experiment, by the experiment's name."""


class Shown(NamedTuple):
    """Inputs to a figure besides its rows."""

    title: str
    paper: Mapping[str, float]
    path: Path
    tasks: Sequence[str]
    """The names of the tasks."""
    pictures: Mapping[str, Sequence[Tensor]] = {}
    """By label, samples after each task: uint8 [runs, tasks so far, count, H, W]."""
    facts: Mapping[str, Mapping[str, str]] = {}
    """By label, those of the requests."""


class StreamItem(NamedTuple):
    """An item computed from streams of tasks."""

    name: str
    about: str
    place: str
    requests: Callable[[Context], list[Request]]
    arrange: Callable[[Sequence[Row]], list[Row]]
    """Selects the rows for the table and the figure from those of all parts."""
    draw: Callable[[Sequence[Row], Shown], list[Path]]
    measures: tuple[Measured, ...] = (ACCURACY,)
    """The paper's numbers and claims are about the first, unless they name another."""


class TableItem(NamedTuple):
    """An item with its own computation, which returns a table as CSV."""

    name: str
    about: str
    place: str
    settings: Mapping[Preset, Mapping[str, Any]]
    compute: Callable[[Mapping[str, Any], torch.device], str]
    measures: Callable[[Sequence[Mapping[str, str]]], dict[str, Summary]]
    by_seed: Callable[[Sequence[Mapping[str, str]]], dict[str, dict[int, float]]]
    """The same numbers by seed, for the claims."""
    draw: Callable[[Sequence[Mapping[str, str]], Path], list[Path]]


Item = StreamItem | TableItem


def measure(rows: Sequence[Row], method: str, measured: Measured) -> dict[int, float]:
    """A quantity of a method, by seed; accuracy in %."""
    seeds = sorted({row.seed for row in rows if row.method == method and row.metric == measured.metric})
    values = measured.scale * measured.take(matrix(rows, method, measured.metric))
    return dict(zip(seeds, values.tolist(), strict=True))


def everything(rows: Sequence[Row]) -> list[Row]:
    """All rows."""
    return list(rows)


def best_of_grids(rows: Sequence[Row], metric: str = "accuracy") -> list[Row]:
    """Rows with only the best final lambda of every grid, on the test set as in the paper; other rows are kept."""
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
