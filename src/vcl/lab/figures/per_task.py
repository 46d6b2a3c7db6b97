"""Accuracy on each task as more are learned, and its average: the paper's figures 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vcl.errors import VclError
from vcl.lab.figures.curves import CLOSER, FAR, curve, dashes, frame, last, legend, legend_below, limits, look, wrapped
from vcl.lab.figures.style import save
from vcl.lab.results import Row, matrix, methods, shown
from vcl.predicting.metrics import average_accuracy

BEST = 0.75
"""The share of the methods, best final average first, that the zoomed row shows in full."""

ROOM = 0.3  # for the paper's dashes, in a narrow panel


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path, tasks: Sequence[str]) -> list[Path]:
    """Draw one column per task, from its learning on, and a last column for the average over the tasks so far.

    The upper row shows the full range. The lower row zooms in on the best three quarters of the methods, without those
    that end far below the median; it is left out if it would show nothing new. Bands are one standard error over seeds;
    dashes in the last column are the paper's final averages. ``tasks`` names the columns. Returns the files.
    """
    return save(picture(rows, title, paper, tasks), path)


def picture(rows: Sequence[Row], title: str, paper: Mapping[str, float], tasks: Sequence[str]) -> Figure:
    """The figure that :func:`draw` saves."""
    names = methods([row for row in rows if row.metric == "accuracy"])
    columns = {name: _columns(rows, name, len(tasks)) for name in names}
    ends = {name: last(columns[name][-1]) for name in names}
    marks = [(paper[name], look(position)) for position, name in enumerate(names) if name in paper]
    spans = _spans(columns, ends, {name: paper[name] for name in names if name in paper})

    size = (max(7.0, 1.15 * (len(tasks) + 1)), 0.8 + 1.6 * len(spans))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(spans), len(tasks) + 1, sharex="col", sharey="row", squeeze=False)
    for axes in panels.flat:
        number = axes.get_subplotspec().colspan.start
        for position, name in enumerate(names):
            first = 1 if number == len(tasks) else number + 1
            curve(axes, columns[name][number], shown(name), look(position), 3.2, first)
        if all(values[number].isnan().all() for values in columns.values()):
            axes.text(0.5, 0.5, "no rows yet", transform=axes.transAxes, ha="center", fontsize=7, color="grey")
        frame(axes, len(tasks), room=0.05, ticks=5)
        axes.tick_params(labelsize=7)
    for row, span in zip(panels, spans, strict=True):
        frame(row[-1], len(tasks), ROOM, ticks=5)
        dashes(row[-1], len(tasks), marks, ROOM)
        row[0].set_ylim(span)
        row[0].set_ylabel("accuracy (%)", fontsize=8)
    for axes, name in zip(panels[0], [*tasks, "average"], strict=True):
        axes.set_title(name, fontsize=8, fontweight="bold" if name == "average" else "normal")
    for axes in panels[-1]:
        axes.set_xlabel("tasks learned", fontsize=7)
    if len(spans) > 1:
        panels[1, 0].set_ylabel("accuracy (%), zoomed\nto the grey range above", fontsize=8)
        for axes in panels[0]:
            axes.axhspan(*spans[1], color="grey", alpha=0.12, linewidth=0)
    figure.suptitle(wrapped(title, size[0] - 0.5, 10), fontsize=10)
    if names:
        handles = legend(panels[0, -1].lines[: len(names)], list(ends.values()), bool(marks))
        legend_below(figure, handles, 7)
    return figure


Span = tuple[float, float]


def _spans(
    columns: Mapping[str, Sequence[Tensor]], ends: Mapping[str, float], paper: Mapping[str, float]
) -> list[Span]:
    """The limits of the full row, and those of the zoomed row if it is drawn."""
    whole = limits([*(each for mine in columns.values() for each in mine), torch.tensor([*paper.values()])])
    if not ends:
        return [whole]
    floor = median(ends.values()) - FAR
    ranked = sorted(ends, key=lambda name: -ends[name])
    best = [name for name in ranked[: ceil(BEST * len(ranked))] if ends[name] >= floor]
    marks = torch.tensor([paper[name] for name in best if name in paper and paper[name] >= floor])
    close = limits([*(each for name in best for each in columns[name]), marks])
    return [whole, close] if close[1] - close[0] <= CLOSER * (whole[1] - whole[0]) else [whole]


def _columns(rows: Sequence[Row], method: str, tasks: int) -> list[Tensor]:
    """Accuracy in %: on each task j after it and each later one, [S, T - j], then the average over tasks, [S, T]."""
    A = 100 * matrix(rows, method)
    known = A.shape[-1]
    if known > tasks:
        raise VclError(f"the rows of {method} have {known} tasks, but {tasks} are named; name each of them.")
    on = [A[:, j:, j] if j < known else A.new_empty(len(A), 0) for j in range(tasks)]
    return [*on, average_accuracy(A)]
