"""Average accuracy over the tasks so far, against their number: the paper's figure 2, and figure 4's last column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vcl.lab.figures.style import colour, line, mark, save
from vcl.lab.results import LAMBDA, Row, matrix, methods
from vcl.metrics import average_accuracy


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """One line per method with a band of one standard error over seeds, and the paper's final values as dashes."""
    crowded = len(methods(rows)) > 2  # then the legend stands beside the lines, not among them
    figure = Figure(figsize=(6.4 if crowded else 5.0, 3.4), layout="constrained")
    axes = figure.add_subplot()
    last = 1
    for position, method in enumerate(methods(rows)):
        values = 100 * average_accuracy(matrix(rows, method))
        tasks = range(1, values.shape[1] + 1)
        last = max(last, len(tasks))
        mean = values.mean(0)
        shade = colour(position)
        axes.plot(
            tasks,
            mean.tolist(),
            label=method.replace(LAMBDA, " λ="),
            markersize=4.5,
            linewidth=1.6,
            linestyle=line(position),
            color=shade,
            marker=mark(position),
        )
        if values.shape[0] > 1:
            error = values.std(0) / values.shape[0] ** 0.5
            axes.fill_between(
                tasks,
                (mean - error).tolist(),
                (mean + error).tolist(),
                color=shade,
                alpha=0.2,
                linewidth=0,
            )
        if method in paper:
            end = len(tasks)
            axes.plot(
                [end - 0.12, end + 0.3],
                [paper[method]] * 2,
                color=shade,
                linestyle="--",
                linewidth=1.2,
            )
    if any(method in paper for method in methods(rows)):
        axes.plot([], [], color="grey", linestyle="--", linewidth=1.2, label="paper, last task")
    axes.set_xlim(0.9, last + 0.35)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("tasks learned")
    axes.set_ylabel("average accuracy (%)")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if crowded:
        figure.legend(fontsize=8, frameon=False, loc="outside right center")
    else:
        axes.legend(fontsize=8, frameon=False)
    return save(figure, path)
