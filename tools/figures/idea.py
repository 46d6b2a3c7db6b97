"""docs/figures/idea.svg: yesterday's posterior is today's prior, beside fine-tuning, which forgets.

python tools/figures/idea.py
"""

from __future__ import annotations

from collections.abc import Sequence

import line
import numpy as np
import svg

WIDTH, HEIGHT = 720, 610
LEFT, GAP, PANEL, TALL = 18, 33, 206, 158
LOW, HIGH = -2.3, 2.3

DESCRIPTION = (
    "Two rows of three plots: a curve is learned from data on the left, then in the middle, then on the right. "
    "Above, variational continual learning: the band is narrow where data has been, stays so, and is wide elsewhere. "
    "Below, fine-tuning: the curve fits the newest data and leaves the older data."
)


def panel(name: str, x0: float, y0: float, data: line.Made, task: int, belief: object, kind: str) -> str:
    """One plot: band, curve, the new data, and rings where the old data was."""

    def place(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
        across = x0 + (x + line.EDGE) / (2 * line.EDGE) * PANEL
        down = y0 + (HIGH - y) / (HIGH - LOW) * TALL
        return list(zip(across.tolist(), down.tolist(), strict=True))

    mean, sd = line.band(data, belief)
    upper, lower = place(line.GRID, mean + 2 * sd), place(line.GRID, mean - 2 * sd)
    shapes = [svg.area(upper + lower[::-1], kind, 0.28)] if sd.any() else []
    shapes += [
        svg.curve(place(line.GRID, line.truth(line.GRID)), "soft", 2, "1 6"),
        svg.curve(place(line.GRID, mean), kind, 4),
    ]
    for old in range(task):
        shapes += [svg.ring(x, y, 3.4, "soft") for x, y in place(data.x[old], data.y[old])]
    shapes += [svg.dot(x, y, 4.4, "ink") for x, y in place(data.x[task], data.y[task])]
    return svg.box(x0, y0, PANEL, TALL) + svg.clipped(name, x0, y0, PANEL, TALL, shapes)


def drawing() -> str:
    """The whole figure."""
    data = line.made()
    centre = WIDTH / 2
    shapes = [
        svg.text(centre, 46, "Yesterday’s posterior is today’s prior", 32, anchor="middle", more=' font-weight="700"')
    ]
    rows = (
        (110, "blue", "VCL keeps a posterior: it remembers", line.exact()),
        (354, "red", "Fine-tuning keeps one estimate: it forgets", line.fine_tuning()),
    )
    for y, kind, words, projection in rows:
        shapes.append(svg.text(centre, y - 16, words, 26, kind, "middle", ' font-weight="600"'))
        for task, belief in enumerate(line.beliefs(data, projection)):
            x = LEFT + task * (PANEL + GAP)
            shapes.append(panel(f"{kind}{task}", x, y, data, task, belief, kind))
            if task:
                shapes.append(svg.arrow(x - GAP + 3, y + TALL / 2, x - 3, y + TALL / 2, kind, 4, 12))
    for task in range(3):
        x = LEFT + task * (PANEL + GAP) + PANEL / 2
        shapes.append(svg.text(x, 110 + TALL + 30, f"after task {task + 1}", 24, "soft", "middle"))
    y = HEIGHT - 56
    shapes += [
        svg.dot(34, y - 8, 6, "ink"), svg.text(48, y, "new data", 24),
        svg.ring(196, y - 8, 5.5, "soft", 2), svg.text(210, y, "old data, not kept", 24),
        svg.curve([(450, y - 8), (486, y - 8)], "soft", 2.5, "1 6"), svg.text(496, y, "true function", 24),
        svg.area([(24, y + 18), (44, y + 18), (44, y + 38), (24, y + 38)], "blue", 0.28),
        svg.text(54, y + 36, "band: what the posterior leaves open, ± 2 sd", 24),
    ]  # fmt: skip
    return svg.document(WIDTH, HEIGHT, "Yesterday’s posterior is today’s prior", DESCRIPTION, shapes)


def main(given: Sequence[str] | None = None) -> None:
    """Write the figure."""
    svg.write(svg.folder(__doc__, given) / "idea.svg", drawing())


if __name__ == "__main__":
    main()
