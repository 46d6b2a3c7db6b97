"""Average accuracy after the last task against lambda: the appendix figures on the tuning of EWC, SI and LP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from vcl.lab.figures.style import colour, mark, save
from vcl.lab.results import Row, final, methods, split_label


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """One line per method over its lambdas, bars of one standard error over seeds, the paper's best value as dashes."""
    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    axes = figure.add_subplot()
    grids: dict[str, list[tuple[float, str]]] = {}
    for name in methods(rows):
        method, lam = split_label(name)
        if lam is not None:
            grids.setdefault(method, []).append((lam, name))
    for position, (method, grid) in enumerate(grids.items()):
        lams, names = zip(*sorted(grid), strict=True)
        ends = [final(rows, name)["average accuracy"] for name in names]
        axes.errorbar(
            lams,
            [100 * end.mean for end in ends],
            [100 * end.error if end.seeds > 1 else 0.0 for end in ends],
            label=method,
            color=colour(position),
            marker=mark(position),
            markersize=4.5,
            linewidth=1.6,
            capsize=2,
        )
        if method in paper:
            axes.axhline(paper[method], color=colour(position), linestyle="--", linewidth=1.0, alpha=0.8)
    if any(method in paper for method in grids):
        axes.plot([], [], color="grey", linestyle="--", linewidth=1.0, label="paper, best lambda")
    smallest = min((lam for grid in grids.values() for lam, _ in grid if lam > 0), default=1.0)
    axes.set_xscale("symlog", linthresh=smallest)  # lambda = 0 is a value too
    axes.set_xlabel("lambda")
    axes.set_ylabel("average accuracy after the last task (%)")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    return save(figure, path)
