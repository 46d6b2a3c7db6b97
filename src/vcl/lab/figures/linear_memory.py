"""Signal-to-noise ratio of remembered patterns against their age: appendix F of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vcl.lab.figures.style import colour, mark, save

Rows = Sequence[Mapping[str, str]]

FLOOR = 0.02
"""The lowest ratio shown: here the sign of a response is right in only 51 of 100 cases."""

DOTS = (0, (1, 2))


def draw(rows: Rows, path: Path) -> list[Path]:
    """Draw a column per prior and a row per group of patterns: theory as lines, simulation as marks.

    Bars are one standard error over seeds. The first method's marks are filled. The others are hollow and larger, so
    that marks that coincide remain visible. Returns the files.
    """
    return save(picture(rows), path)


def picture(rows: Rows) -> Figure:
    """The figure that :func:`draw` saves."""
    names, priors, firsts = (list(dict.fromkeys(row[key] for row in rows)) for key in ("method", "prior", "first"))
    figure = Figure(figsize=(6.8, 1.3 + 2.2 * len(firsts)), layout="constrained")
    panels = figure.subplots(len(firsts), len(priors), sharex=True, sharey=True, squeeze=False)
    for across, first in zip(panels, firsts, strict=True):
        for axes, prior in zip(across, priors, strict=True):
            for position, name in enumerate(names):
                mine = [row for row in rows if (row["method"], row["prior"], row["first"]) == (name, prior, first)]
                curve(axes, mine, position)
            axes.axhline(1, color="grey", linewidth=0.8, linestyle=DOTS)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.grid(alpha=0.25)
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        since = "the first patterns" if first == firsts[0] else f"patterns from number {first} on"
        across[0].set_ylabel(f"signal to noise,\n{since}", fontsize=8)
    panels[0, 0].set_ylim(bottom=FLOOR)
    for axes, prior in zip(panels[0], priors, strict=True):
        axes.set_title(
            "prior ignored, 1/v₀ = 0" if float(prior) == 0 else f"with the prior, 1/v₀ = {prior}", fontsize=9
        )
    for axes in panels[-1]:
        axes.set_xlabel("age: patterns learned since", fontsize=8)
    marks = [_mark(position) | {"label": name, "linestyle": "-"} for position, name in enumerate(names)]
    handles = [Line2D([], [], **each) for each in marks]
    handles.append(Line2D([], [], color="grey", linewidth=0.8, linestyle=DOTS, label="signal = noise"))
    figure.legend(handles=handles, fontsize=8, frameon=False, loc="outside lower center", ncols=len(handles))
    figure.suptitle("Memory of random patterns: theory (lines) and simulation (marks)", fontsize=10)
    return figure


def curve(axes: Axes, rows: Rows, position: int) -> None:
    """Draw one method in one panel."""
    theory = [row for row in rows if row["kind"] == "theory"]
    ages, ratios = ([float(row[key]) for row in theory] for key in ("age", "snr"))
    axes.plot(ages, ratios, color=colour(position), linewidth=1.4, zorder=1)
    drawn = [row for row in rows if row["kind"] == "simulation"]
    by_age = {age: [float(row["snr"]) for row in drawn if row["age"] == age] for age in (row["age"] for row in drawn)}
    axes.errorbar(
        [float(age) for age in by_age],
        [fmean(each) for each in by_age.values()],
        [stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0 for each in by_age.values()],
        linestyle="none",
        elinewidth=1,
        **_mark(position),
    )


def _mark(position: int) -> dict[str, Any]:
    """The style of a method's marks: filled for the first, hollow and larger for the others."""
    shade = colour(position)
    shape = {"marker": mark(position), "color": shade, "markeredgewidth": 1.0}
    return shape | {"markersize": 3.2} if position == 0 else shape | {"markersize": 5.5, "markerfacecolor": "none"}
