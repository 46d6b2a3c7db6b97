"""Average accuracy after the last task against lambda: the appendix's tuning figures for EWC, SI and LP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vcl.lab.classification import ACCURACY
from vcl.lab.evaluation import Score
from vcl.lab.figures.curves import wrapped
from vcl.lab.figures.style import colour, mark, save
from vcl.lab.results import Row, by_lambda, final_score

Group = Callable[[str], str]
"""Maps a method to the title of its panel."""


def draw(
    rows: Sequence[Row],
    title: str,
    paper: Mapping[str, float],
    path: Path,
    group: Group = lambda method: "",
    score: Score = ACCURACY,
) -> list[Path]:
    """Draw one line per method over its lambdas, with bars of one standard error; dashes are the paper's best values.

    Each group of methods has its own panel, one above the other. Returns the files.
    """
    return save(picture(rows, title, paper, group, score), path)


def picture(
    rows: Sequence[Row],
    title: str,
    paper: Mapping[str, float],
    group: Group = lambda method: "",
    score: Score = ACCURACY,
) -> Figure:
    """The figure that :func:`draw` saves."""
    grids = by_lambda(rows)
    groups = list(dict.fromkeys(group(method) for method in grids)) or [""]
    figure = Figure(figsize=(5.0, 1.4 + 2.0 * len(groups)), layout="constrained")
    panels: list[Axes] = list(figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0])
    for position, (method, grid) in enumerate(grids.items()):
        axes = panels[groups.index(group(method))]
        lams, names = zip(*sorted(grid.items()), strict=True)
        ends = [final_score(rows, name, score.metric) for name in names]
        axes.errorbar(
            lams,
            [score.scale * end.mean for end in ends],
            [score.scale * end.error if end.seeds > 1 else 0.0 for end in ends],
            label=wrapped(method, 3.5, 8),
            color=colour(position),
            marker=mark(position),
            markersize=4.5,
            linewidth=1.6,
            capsize=2,
        )
        if method in paper:
            axes.axhline(paper[method], color=colour(position), linestyle="--", linewidth=1.0, alpha=0.8)
    if any(method in paper for method in grids):
        panels[0].plot([], [], color="grey", linestyle="--", linewidth=1.0, label="paper, best lambda")
    smallest = min((lam for grid in grids.values() for lam in grid if lam > 0), default=1.0)
    for axes, name in zip(panels, groups, strict=True):
        axes.set_xscale("symlog", linthresh=smallest)  # lambda may be 0
        axes.set_title(name, fontsize=8, loc="left")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
    if len(panels) == 1:
        panels[0].set_ylabel(f"{score.name} after the last task ({score.unit.strip()})", fontsize=9)
        panels[0].set_title(wrapped(title, 4.3, 10), fontsize=10)
    else:
        figure.supylabel(f"{score.name} after the last task ({score.unit.strip()})", fontsize=9)
        figure.suptitle(wrapped(title, 4.8, 10), fontsize=10)
    panels[-1].set_xlabel("lambda")
    return figure
