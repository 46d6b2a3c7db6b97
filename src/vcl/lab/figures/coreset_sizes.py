"""Accuracy against coreset size: the paper's figure 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from torch import Tensor

from vcl.lab.figures.curves import Look, by_method, curve, dashes, frame, look, over_seeds
from vcl.lab.figures.style import mark, save
from vcl.lab.results import Row, split_label

KEY = "coreset"
PLAIN = "vcl"
SHADED = "vcl-random"
BARE = Look("#666666", "x")  # plain VCL, no coreset

Sizes = dict[str, dict[float, str]]
"""By method, the label at each size, in increasing order of size."""


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """Left: VCL + random over the tasks, darker for larger coresets. Right: all methods after the last task, by size.

    Rows are labelled "vcl-random coreset=400", "random-only coreset=400" and so on; plain "vcl" is drawn if present.
    Bands and bars are one standard error over seeds; dashes are the paper's values, in % by label. The right panel
    omits unfinished runs, and size 0, which a logarithmic axis cannot show. Returns the files.
    """
    return save(picture(rows, title, paper), path)


def picture(rows: Sequence[Row], title: str, paper: Mapping[str, float]) -> Figure:
    """The figure that :func:`draw` saves."""
    averages = by_method(rows)
    tasks = max((values.shape[1] for values in averages.values()), default=1)
    sizes = _sizes(averages)
    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
    _over_tasks(left, averages, sizes.get(SHADED, {}), paper, tasks)
    _over_sizes(right, averages, sizes, paper, tasks)
    figure.suptitle(title, fontsize=10)
    return figure


def _sizes(names: Iterable[str]) -> Sizes:
    """The labels by method and size, VCL + random first."""
    found: Sizes = {SHADED: {}}
    for name in names:
        method, size = split_label(name, KEY)
        if size is not None:
            found.setdefault(method, {})[size] = name
    return {method: dict(sorted(mine.items())) for method, mine in found.items() if mine}


def _over_tasks(
    axes: Axes, averages: Mapping[str, Tensor], sizes: Mapping[float, str], paper: Mapping[str, float], tasks: int
) -> None:
    """Draw accuracy against tasks, in shades of one hue."""
    shades = matplotlib.colormaps["Blues"]
    depths = torch.linspace(1.0, 0.35, len(sizes)).flip(0).tolist()  # a single size is dark
    shown = {name: f"{size:g}" for size, name in sizes.items()}
    looks = {
        name: Look(to_hex(shades(depth)), mark(n)) for n, (name, depth) in enumerate(zip(shown, depths, strict=True))
    }
    if PLAIN in averages:
        shown[PLAIN], looks[PLAIN] = "none (vcl)", BARE
    for name, text in shown.items():
        known = averages[name].shape[1]
        curve(axes, averages[name], text if known == tasks else f"{text}, {known} tasks so far", looks[name])
    frame(axes, tasks)
    dashes(axes, tasks, [(paper[name], looks[name]) for name in looks if name in paper])
    axes.set_xlabel("tasks learned")
    axes.set_ylabel("average accuracy (%)")
    axes.set_title("vcl-random over the tasks", fontsize=8)
    if looks:
        axes.legend(title="coreset per task", title_fontsize=7, fontsize=7, frameon=False)


def _over_sizes(
    axes: Axes, averages: Mapping[str, Tensor], sizes: Sizes, paper: Mapping[str, float], tasks: int
) -> None:
    """Draw final accuracy against size, plain VCL as a horizontal line."""
    handles: list[Any] = []
    finished = [name for name, values in averages.items() if values.shape[1] == tasks]
    for position, (method, mine) in enumerate(sizes.items()):
        shade = look(position)
        done = [(size, name) for size, name in mine.items() if name in finished and size > 0]
        ends = [_end(averages[name]) for _, name in done]
        if done:
            bars = axes.errorbar(
                [size for size, _ in done],
                [mean for mean, _ in ends],
                [0.0 if isnan(error) else error for _, error in ends],
                label=method,
                color=shade.colour,
                marker=shade.mark,
                markersize=4.5,
                linewidth=1.6,
                capsize=2,
            )
            handles.append(bars)
        for size, name in mine.items():
            if name in paper and size > 0:
                axes.plot(
                    [size / 1.3, size * 1.3], [paper[name]] * 2, color=shade.colour, linestyle="--", linewidth=1.4
                )
    if PLAIN in finished:
        level, error = _end(averages[PLAIN])
        handles.append(axes.axhline(level, color=BARE.colour, linewidth=1.2, label="vcl, no coreset"))
        if not isnan(error):
            axes.axhspan(level - error, level + error, color=BARE.colour, alpha=0.2, linewidth=0)
        if PLAIN in paper:
            axes.axhline(paper[PLAIN], color=BARE.colour, linestyle="--", linewidth=1.2)
    if any(name in paper for name in averages):
        handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1.4, label="paper"))
    every = sorted({size for mine in sizes.values() for size in mine if size > 0})
    axes.set_xscale("log")
    if every:
        axes.set_xlim(every[0] / 1.5, every[-1] * 1.5)
        axes.set_xticks(every, [f"{size:g}" for size in every], fontsize=8)
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("coreset per task")
    axes.set_title("after the last task", fontsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if handles:
        axes.legend(handles=handles, fontsize=7, frameon=False)


def _end(values: Tensor) -> tuple[float, float]:
    """Mean and standard error after the last task."""
    mean, error = over_seeds(values[:, -1])
    return float(mean), float(error)
