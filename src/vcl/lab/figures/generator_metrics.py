"""Metrics of generators on each task as more are learned, and their average: one figure per metric."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vcl.lab.figures.curves import curve, frame, last, limits, look
from vcl.lab.figures.style import save
from vcl.lab.results import Row, matrix, methods, shown


class Measure(NamedTuple):
    """A metric, its axis label, its file name, and whether higher is better."""

    metric: str
    label: str
    name: str
    up: bool


MEASURES = (
    Measure("log likelihood", "test log-likelihood (nats)", "log-likelihood", True),
    Measure("classifier uncertainty", "classifier uncertainty (nats)", "uncertainty", False),
)
COLUMNS = 4
KEPT = 2 / 3
"""The share of the methods, best final value first, whose range a panel shows. The worst would flatten the rest."""
WIDER = 2.0
"""The factor by which a panel's range may grow to show more methods."""


def draw(rows: Sequence[Row], title: str, path: Path, tasks: Sequence[str] | None = None) -> list[Path]:
    """Draw ``path``-log-likelihood and ``path``-uncertainty: a panel per task, from its learning on, and the average.

    Bands are one standard error over seeds. A curve that leaves its panel is worse than the panel's range. Returns the
    files.
    """
    made: list[Path] = []
    for measure in MEASURES:
        if any(row.metric == measure.metric for row in rows):
            made += save(picture(rows, title, measure, tasks), path.with_name(f"{path.name}-{measure.name}"))
    return made


def picture(rows: Sequence[Row], title: str, measure: Measure, tasks: Sequence[str] | None = None) -> Figure:
    """The figure of one metric."""
    names = methods([row for row in rows if row.metric == measure.metric])
    courses = {name: matrix(rows, name, measure.metric) for name in names}
    size = max((A.shape[-1] for A in courses.values()), default=1)
    courses = {name: _padded(A, size) for name, A in courses.items()}  # some methods may have fewer tasks so far
    titles = [*(tasks or [f"task {number + 1}" for number in range(size)]), "average"]
    columns = min(COLUMNS, len(titles))
    lines = ceil(len(titles) / columns)
    figure = Figure(figsize=(7.0, 0.9 + 1.5 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for number, axes in enumerate(panels):
        if number >= len(titles):
            axes.set_visible(False)
            continue
        average = number == size
        values = {name: A.nanmean(-1) if average else A[:, number:, number] for name, A in courses.items()}
        for position, name in enumerate(names):
            curve(axes, values[name], shown(name), look(position), 3.2, 1 if average else number + 1)
        frame(axes, size, room=0.05, ticks=5)
        axes.tick_params(labelsize=7)
        axes.set_title(titles[number], fontsize=8, fontweight="bold" if average else "normal")
        if number + columns >= len(titles):
            axes.set_xlabel("tasks learned", fontsize=7)
        _limit(axes, list(values.values()), measure.up)
    figure.supylabel(measure.label, fontsize=8)
    figure.suptitle(title, fontsize=10)
    if names:
        handles = figure.axes[0].lines[: len(names)]
        figure.legend(handles=handles, fontsize=7, frameon=False, loc="outside lower center", ncols=5)
    return figure


def _padded(A: Tensor, size: int) -> Tensor:
    """A [S, T, T] padded with NaN to [S, size, size]."""
    more = size - A.shape[-1]
    return torch.nn.functional.pad(A, (0, more, 0, more), value=torch.nan)


def _limit(axes: Axes, values: Sequence[Tensor], up: bool) -> None:
    """Set the limits to the best methods' range; include others that widen it at most :data:`WIDER`-fold."""
    sign = 1.0 if up else -1.0
    known = [each for each in values if bool(each.isfinite().any())]
    ranked = sorted(known, key=lambda each: -sign * last(each))
    kept = max(1, ceil(KEPT * len(ranked)))
    low, high = limits(ranked[:kept])
    for count in range(kept + 1, len(ranked) + 1):
        lower, higher = limits(ranked[:count])
        if higher - lower <= WIDER * (high - low):
            kept = count
    low, high = limits(ranked[:kept])
    if torch.isfinite(torch.tensor([low, high])).all():
        axes.set_ylim(low, high)
