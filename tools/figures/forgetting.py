"""docs/figures/forgetting.svg: accuracy on each task after each task, for every method, from published rows.

python tools/figures/forgetting.py

The rows are those of ten tasks of Permuted MNIST under results/, ten seeds each.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import svg

ROOT = Path(__file__).parents[2]
TASKS, BLANK = 10, 60.0
"""An accuracy of BLANK per cent or less is a blank cell; one of 100 a full one."""

METHODS = (
    ("fine-tuning", "results/forgetting/permuted-mnist", "mle"),
    ("EWC", "results/paper/fig2", "ewc lambda=100"),
    ("SI", "results/paper/fig2", "si lambda=0.5"),
    ("LP", "results/paper/fig2", "lp lambda=100"),
    ("VCL", "results/paper/fig2", "vcl"),
    ("vcl-restart", "results/forgetting/permuted-mnist", "vcl-restart"),
    ("lp-kron", "results/kronecker/permuted-10-lp-kron", "lp-kron lambda=1"),
    ("vcl-kron", "results/kronecker/permuted-10-vcl-kron", "vcl-kron lambda=1"),
    ("random coreset", "results/paper/fig2", "random-only"),
    ("K-center coreset", "results/paper/fig2", "kcenter-only"),
    ("VCL + random", "results/paper/fig2", "vcl-random"),
    ("VCL + K-center", "results/paper/fig2", "vcl-kcenter"),
)
COLUMNS, CELL, LEFT, TOP, WIDE, TALL = 4, 15, 46, 128, 196, 224


def accuracies(folder: str, method: str) -> np.ndarray:
    """[after task, on task] in per cent, averaged over seeds; nan for tasks to come."""
    sums, counts = np.zeros((TASKS, TASKS)), np.zeros((TASKS, TASKS))
    with (ROOT / folder / "rows.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["method"] == method and row["metric"] == "accuracy":
                place = int(row["after"]) - 1, int(row["on"]) - 1
                sums[place] += 100 * float(row["value"])
                counts[place] += 1
    with np.errstate(invalid="ignore"):
        return sums / counts


def panel(x: float, y: float, name: str, found: np.ndarray) -> list[str]:
    """One matrix: a row for each task that was learned, a column for each that is tested."""
    side = TASKS * CELL
    shapes = [svg.text(x, y - 28, name, 17, more=' font-weight="600"')]
    shapes.append(svg.text(x, y - 9, f"{np.mean(found[-1]):.1f} % at the end", 15, "soft"))
    steps = [(x + place * CELL, y + (place + up) * CELL) for place in range(TASKS) for up in (0, 1)]
    stair = [(x, y), *((across + CELL, down) for across, down in steps), (x, y + side), (x, y)]
    shapes.append(svg.area(stair, "panel", 1))  # tasks to come are outside of it
    for after in range(TASKS):
        for on in range(after + 1):
            opacity = float(np.clip((found[after, on] - BLANK) / (100 - BLANK), 0, 1))
            shapes.append(cell(x + on * CELL, y + after * CELL, CELL, opacity))
    return [*shapes, svg.curve(stair, "rule", 1.5)]


def cell(x: float, y: float, size: float, opacity: float) -> str:
    """A filled square."""
    return f'<rect class="blue" opacity="{opacity:.2f}" x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}"/>'


def drawing() -> str:
    """The whole figure."""
    rows = -(-len(METHODS) // COLUMNS)
    width, height = LEFT + COLUMNS * WIDE - 6, TOP + rows * TALL + 26
    key = "rows: after task 1 to 10, downwards; columns: accuracy on task 1 to 10"
    title = "What each method still knows of ten tasks"
    shapes = [
        svg.text(width / 2, 44, title, 28, anchor="middle", more=' font-weight="700"'),
        svg.text(width / 2, 72, key, 17, "soft", "middle"),
    ]
    for place, (name, folder, method) in enumerate(METHODS):
        row, column = divmod(place, COLUMNS)
        shapes += panel(LEFT + column * WIDE, TOP + row * TALL, name, accuracies(folder, method))
    y = height - 42
    shapes.append(svg.text(LEFT, y + 15, "60 % or less", 15, "soft"))
    for step in range(11):
        shapes.append(cell(LEFT + 106 + step * 18, y, 18, step / 10))
    shapes.append(f'<rect class="rule-line" stroke-width="1.5" x="{LEFT + 106}" y="{y}" width="198" height="18"/>')
    shapes.append(svg.text(LEFT + 314, y + 15, "100 %", 15, "soft"))
    words = (
        "Twelve triangular heat maps. Fine-tuning's is blank but for the newest tasks; vcl-kron's is full throughout."
    )
    return svg.document(width, height, title, words, shapes)


def main(given: Sequence[str] | None = None) -> None:
    """Write the figure."""
    svg.write(svg.folder(__doc__, given) / "forgetting.svg", drawing())


if __name__ == "__main__":
    main()
