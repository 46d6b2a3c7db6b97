"""Contours of the black class's probability in the plane after one and two tasks: appendix D of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vcl.errors import VclError
from vcl.lab.figures.style import colour, save
from vcl.lab.results import shown

Rows = Sequence[Mapping[str, str]]

# Green and black as in the paper. Marker shape and lightness differ too, for readers who cannot tell the hues apart.
POINTS = {"0": ("green class", colour(2), "o"), "1": ("black class", "#000000", "^")}
SHADES = LinearSegmentedColormap.from_list("green to black", ["#CFEBE1", "#FFFFFF", "#999999"])
LEVELS = np.linspace(0, 1, 11)


def draw(rows: Rows, path: Path) -> list[Path]:
    """Draw a row of panels per method: task 1 after task 1, task 1 after task 2, task 2 after task 2.

    Shades are one seed's probabilities. The heavy line marks probability 0.5. The points are the training data. The
    text below each panel is the accuracy on new points, over all seeds. Returns the files.
    """
    return save(picture(rows), path)


def picture(rows: Rows) -> Figure:
    """The figure that :func:`draw` saves."""
    planes = [row for row in rows if row["kind"] == "probability"]
    if not planes:
        raise VclError("the table has no rows of kind 'probability' to draw; name a method in the setting 'drawn'.")
    names = list(dict.fromkeys(row["method"] for row in planes))
    places = sorted({(int(row["after"]), int(row["task"])) for row in planes})
    size = (0.7 + 1.75 * len(places), 0.9 + 1.65 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(names), len(places), sharex=True, sharey=True, squeeze=False)
    for name, across in zip(names, panels, strict=True):
        for (after, task), axes in zip(places, across, strict=True):
            here = {"method": name, "after": str(after), "task": str(task)}
            shades = contours(axes, _where(planes, here))
            points(axes, _where(rows, {"kind": "point", "task": str(task)}))
            found = [float(row["value"]) for row in _where(rows, {"kind": "accuracy", **here})]
            axes.set_xlabel(_accuracies(found), fontsize=7)
            axes.set_aspect("equal")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.tick_params(labelsize=7)
        across[0].set_ylabel(shown(name), fontsize=9, fontweight="bold")
    for (after, task), axes in zip(places, panels[0], strict=True):
        axes.set_title(f"task {task}, after task {after}", fontsize=9)
    bar = figure.colorbar(shades, ax=panels, shrink=0.6, aspect=25, ticks=[0, 0.5, 1])
    bar.set_label("probability of the black class", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    legend = panels[0, 0].get_legend_handles_labels()
    figure.legend(*legend, fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return figure


def contours(axes: Axes, rows: Rows) -> QuadContourSet:
    """Draw filled contours and the line at 0.5; returns the contours."""
    first, second = (sorted({float(row[key]) for row in rows}) for key in ("x1", "x2"))
    values = np.full((len(second), len(first)), np.nan)
    for row in rows:
        values[second.index(float(row["x2"])), first.index(float(row["x1"]))] = float(row["value"])
    axes.set_xlim(first[0], first[-1])
    axes.set_ylim(second[0], second[-1])
    shades = axes.contourf(first, second, values, levels=LEVELS, cmap=SHADES)
    if values.min() < 0.5 < values.max():
        axes.contour(first, second, values, levels=[0.5], colors=[colour(1)], linewidths=1.6)
    axes.plot([], [], color=colour(1), linewidth=1.6, label="probability 0.5")
    return shades


def points(axes: Axes, rows: Rows) -> None:
    """Draw the points of one task, by class."""
    for value, (text, shade, shape) in POINTS.items():
        x1, x2 = ([float(row[key]) for row in rows if row["value"] == value] for key in ("x1", "x2"))
        axes.plot(x1, x2, shape, color=shade, markersize=2.6, markeredgewidth=0, alpha=0.8, label=text)


def _accuracies(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, worst = 100 * sum(values) / len(values), 100 * min(values)
    return f"{mean:.1f} %" if len(values) == 1 else f"{len(values)} seeds: {mean:.1f} %, worst {worst:.1f} %"


def _where(rows: Rows, wanted: Mapping[str, str]) -> list[Mapping[str, str]]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]
