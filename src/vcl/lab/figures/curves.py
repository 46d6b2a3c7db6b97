"""Shared parts of figures of accuracy against tasks: curves with bands, the paper's dashes, axes, legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import NamedTuple

import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from vcl.lab.figures.style import colour, line, mark
from vcl.lab.results import Row, matrix, methods
from vcl.predicting.metrics import average_accuracy

FAR = 15.0
"""Points below the median at which a curve would flatten the others, so that the zoomed panel omits it."""


CLOSER = 0.7
"""The largest share of the full range that a zoomed panel may show; otherwise it is not drawn."""


LETTER = 0.55
"""The mean width of a letter, as a share of its size."""

HANDLE = 6
"""The letters that a legend's line and gaps are wide."""


class Look(NamedTuple):
    """Colour, marker and line style of a line."""

    colour: str
    mark: str
    line: str = "-"


def look(position: int) -> Look:
    """The look of the line at this position."""
    return Look(colour(position), mark(position), line(position))


def by_method(rows: Sequence[Row]) -> dict[str, Tensor]:
    """By method, the average accuracy in % for each seed and number of tasks learned, [S, T]."""
    known = [row for row in rows if row.metric == "accuracy"]
    return {name: 100 * average_accuracy(matrix(known, name)) for name in methods(known)}


def over_seeds(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard error over seeds with finite values: [S, ...] to two [...]; the error of one seed is NaN."""
    there = values.isfinite()
    n = there.sum(0)
    mean = values.nanmean(0)
    error = (torch.where(there, values - mean, 0.0).square().sum(0) / (n - 1) / n).sqrt()
    return mean, error


def last(values: Tensor) -> float:
    """The last finite mean over seeds of values [S, T]; minus infinity if there is none."""
    mean, _ = over_seeds(values)
    known = mean[mean.isfinite()]
    return float(known[-1]) if len(known) else float("-inf")


def limits(values: Iterable[Tensor], pad: float = 0.05) -> tuple[float, float]:
    """Axis limits that show these values: [S, T] with a band of one standard error, or [N] without."""
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
    """Draw the mean over seeds of values [S, T] in %, from task ``first`` on, with a band of one standard error."""
    mean, error = over_seeds(values)
    known = mean.isfinite()  # rows may be kept after some tasks alone
    tasks = (first + torch.arange(len(mean)))[known].tolist()
    mean, error = mean[known], error[known]
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
    """Set up the axis of tasks learned; ``room`` is the share of its length kept free for :func:`dashes`."""
    unit = max(tasks - 1, 1)
    axes.set_xlim(1 - 0.05 * unit, tasks + (0.03 + room) * unit)
    axes.set_xticks(range(1, tasks + 1, 1 + (tasks - 1) // ticks))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def dashes(axes: Axes, tasks: int, marks: Sequence[tuple[float, Look]], room: float = 0.08) -> None:
    """Draw the paper's values as dashes after the last task; equal values go side by side."""
    unit = max(tasks - 1, 1)
    for value, look in marks:
        equal = [other for height, other in marks if height == value]
        step = room * unit / len(equal)
        start = tasks + 0.02 * unit + step * equal.index(look)
        style = "--" if look.line == "-" else look.line
        axes.plot([start, start + 0.9 * step], [value] * 2, color=look.colour, linestyle=style, linewidth=1.4)


def wrapped(text: str, width: float, size: float) -> str:
    """A text over as many lines as it needs in ``width`` inches of letters of this size."""
    return "\n".join(wrap(text, max(10, int(width * 72 / (LETTER * size)))))


def legend_below(figure: Figure, handles: Sequence[Artist], size: float, most: int = 5) -> None:
    """Add a legend below the panels, in as many columns, up to ``most``, as fit, and make room for it."""
    for each in handles:
        each.set_label(wrapped(str(each.get_label()), figure.get_figwidth() - 0.8, size))
    labels = [str(each.get_label()).split("\n") for each in handles]
    widest = max((len(line) + HANDLE for lines in labels for line in lines), default=1)
    columns = max(1, min(most, len(labels), int(figure.get_figwidth() * 72 / (LETTER * size * widest))))
    lines = -(-sum(map(len, labels)) // columns)
    figure.set_figheight(figure.get_figheight() + 1.25 * size / 72 * max(0, lines - 1))
    figure.legend(handles=handles, fontsize=size, frameon=False, loc="outside lower center", ncols=columns)


def legend(lines: Sequence[Line2D], ends: Sequence[float], paper: bool) -> list[Artist]:
    """The legend's entries: the lines, highest final value first, and the paper's dashes."""
    order = sorted(range(len(lines)), key=lambda position: -ends[position])
    handles: list[Artist] = [lines[position] for position in order]
    if paper:
        handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1.4, label="paper, last task"))
    return handles
