"""What figures of accuracy against tasks share: curves with bands, the paper's dashes, axes and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from vcl.lab.figures.style import colour, line, mark
from vcl.lab.results import Row, matrix, methods
from vcl.predicting.metrics import average_accuracy

FAR = 15.0
"""What ends so many points below the median would flatten all else, so that a second panel leaves it out."""


class Look(NamedTuple):
    """How a line looks."""

    colour: str
    mark: str
    line: str = "-"


def look(position: int) -> Look:
    """The look of the line at this position."""
    return Look(colour(position), mark(position), line(position))


def by_method(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Average accuracy in % by seed and tasks learned, [S, T], of each method that has any accuracy."""
    known = [row for row in rows if row.metric == "accuracy"]
    return {name: 100 * average_accuracy(matrix(known, name)) for name in methods(known)}


def over_seeds(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard error over the seeds that are there: [S, ...] to [...] twice; the error of one seed is NaN."""
    there = values.isfinite()
    n = there.sum(0)
    mean = values.nanmean(0)
    error = (torch.where(there, values - mean, 0.0).square().sum(0) / (n - 1) / n).sqrt()
    return mean, error


def last(values: Tensor) -> float:
    """The last mean over seeds that is there, of values [S, T]; minus infinity where there is none."""
    mean, _ = over_seeds(values)
    known = mean[mean.isfinite()]
    return float(known[-1]) if len(known) else float("-inf")


def limits(values: Iterable[Tensor], pad: float = 0.05) -> tuple[float, float]:
    """Limits of an axis that shows these values: [S, T] with its band of one standard error, or [N] as they are."""
    low, high = float("inf"), float("-inf")
    for each in values:
        mean, error = over_seeds(each) if each.dim() > 1 else (each, torch.zeros_like(each))
        error = error.nan_to_num(nan=0.0)
        known = torch.stack((mean - error, mean + error))
        known = known[known.isfinite()]
        if len(known):
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    if low > high:
        return 0.0, 100.0
    room = max(pad * (high - low), 0.1)
    return low - room, high + room


def curve(axes: Axes, values: Tensor, name: str, look: Look, size: float = 4.5, first: int = 1) -> Line2D:
    """The mean over seeds of values [S, T] in %, from the task ``first`` on, in a band of one standard error."""
    mean, error = over_seeds(values)
    tasks = range(first, first + len(mean))
    (drawn,) = axes.plot(
        tasks,
        mean.tolist(),
        label=name,
        color=look.colour,
        linestyle=look.line,
        marker=look.mark,
        markersize=size,
        markerfacecolor="white" if look.line != "-" else look.colour,
        linewidth=1.6 if size > 4 else 1.2,
    )
    low, high = (mean - error).tolist(), (mean + error).tolist()
    if len(mean) == 1:  # a band would have no width
        axes.vlines(tasks, low, high, color=look.colour, alpha=0.6, linewidth=1.2)
    elif bool(error.isfinite().any()):
        axes.fill_between(tasks, low, high, color=look.colour, alpha=0.2, linewidth=0)
    return drawn


def frame(axes: Axes, tasks: int, room: float = 0.08, ticks: int = 10) -> None:
    """The axis of tasks learned, with room for :func:`dashes` as a share of its length, and a quiet background."""
    unit = max(tasks - 1, 1)
    axes.set_xlim(1 - 0.05 * unit, tasks + (0.03 + room) * unit)
    axes.set_xticks(range(1, tasks + 1, 1 + (tasks - 1) // ticks))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def dashes(axes: Axes, tasks: int, marks: Sequence[tuple[float, Look]], room: float = 0.08) -> None:
    """The paper's values as dashes behind the last task; those of equal height stand side by side."""
    unit = max(tasks - 1, 1)
    for value, look in marks:
        equal = [other for height, other in marks if height == value]
        step = room * unit / len(equal)
        start = tasks + 0.02 * unit + step * equal.index(look)
        style = "--" if look.line == "-" else look.line
        axes.plot([start, start + 0.9 * step], [value] * 2, color=look.colour, linestyle=style, linewidth=1.4)


def legend(lines: Sequence[Line2D], ends: Sequence[float], paper: bool) -> list[Artist]:
    """What a legend shows: the lines, those that end highest first, and what dashes are."""
    order = sorted(range(len(lines)), key=lambda position: -ends[position])
    handles: list[Artist] = [lines[position] for position in order]
    if paper:
        handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1.4, label="paper, last task"))
    return handles
