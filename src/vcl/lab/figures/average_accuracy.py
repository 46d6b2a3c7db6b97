"""Average accuracy over the tasks learned so far: the paper's figure 2 and the last column of figure 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vcl.lab.figures.curves import (
    CLOSER,
    FAR,
    by_method,
    curve,
    dashes,
    frame,
    last,
    legend,
    legend_below,
    limits,
    look,
    wrapped,
)
from vcl.lab.figures.style import save
from vcl.lab.results import Row, shown

BESIDE, LETTERS = 10, 24
"""The most lines, and the most letters of one, whose legend stands beside them."""


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """Draw one line per method with a band of one standard error over seeds; dashes are the paper's final values.

    If a method or a value of the paper ends far below the rest, a second panel zooms in on the rest. It is left out if
    it would show more than the share :data:`CLOSER` of the full range. Returns the files.
    """
    return save(picture(rows, title, paper), path)


def picture(rows: Sequence[Row], title: str, paper: Mapping[str, float]) -> Figure:
    """The figure that :func:`draw` saves: one panel, or the full range above a zoomed one."""
    averages = by_method(rows)
    names = list(averages)
    tasks = max((values.shape[1] for values in averages.values()), default=1)
    ends = {name: last(values) for name, values in averages.items()}
    marks = {name: value for name, value in paper.items() if name in names}
    crowded = len(names) > 2  # the legend would cover the lines
    long = len(names) > BESIDE or any(len(name) > LETTERS for name in names)  # beside the lines, it would squeeze them

    floor = median(ends.values()) - FAR if ends else 0.0
    low = [name for name in names if ends[name] < floor]
    span = limits([*(averages[name] for name in names if name not in low),
                   torch.tensor([value for value in marks.values() if value >= floor])])  # fmt: skip
    whole = limits([*averages.values(), torch.tensor(list(marks.values()))])
    if span[1] - span[0] > CLOSER * (whole[1] - whole[0]):  # zooming would show nothing new
        floor, low = float("-inf"), []
    below = [shown(name) for name in low] + [f"{shown(name)} (paper)" for name in marks if marks[name] < floor]

    width = 6.4 if crowded or long else 5.0
    figure = Figure(figsize=(width, 5.0 if below else 3.4), layout="constrained")
    ratios = [1, 2] if below else [1]
    panels: list[Axes] = list(figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0])
    for axes in panels:
        for position, name in enumerate(names):
            curve(axes, averages[name], shown(name), look(position), 4.5 if len(names) < 8 else 3.5)
        frame(axes, tasks)
        dashes(axes, tasks, [(marks[name], look(names.index(name))) for name in names if name in marks])
    panels[0].set_title(wrapped(title, width - (0.7 if long or not crowded else 2.0), 10), fontsize=10)
    panels[-1].set_xlabel("tasks learned")
    if below:
        panels[-1].set_ylim(span)
        panels[0].axhspan(*span, color="grey", alpha=0.12, linewidth=0)
        more = f" and {len(below) - 3} more" if len(below) > 3 else ""
        note = f"zoomed to the grey range above; below it: {', '.join(below[:3])}{more}"
        panels[-1].set_title(wrapped(note, width - (0.7 if long or not crowded else 2.0), 7), loc="left", fontsize=7)
        figure.supylabel("average accuracy (%)", fontsize=10)
    else:
        panels[0].set_ylabel("average accuracy (%)")

    handles = legend(panels[-1].lines[: len(names)], list(ends.values()), bool(marks))
    if long:
        legend_below(figure, handles, 8)
    elif crowded:
        figure.legend(handles=handles, fontsize=8, frameon=False, loc="outside right center")
    else:
        panels[-1].legend(handles=handles, fontsize=8, frameon=False)
    return figure
