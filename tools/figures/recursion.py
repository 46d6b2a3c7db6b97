"""docs/figures/recursion.svg: the recursion as an animation, point by point: the band of a curve that is learned.

python tools/figures/recursion.py

Each frame is the exact posterior after one more point. The animation is CSS in the file; readers who ask for reduced
motion see the last frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import line
import numpy as np
import svg

WIDTH, HEIGHT = 720, 470
LEFT, TOP, PANEL, TALL = 24, 92, 672, 300
LOW, HIGH = -2.7, 2.7
STEP, HOLD = 0.28, 1.6
"""Seconds that a frame is shown, and the last one of a task."""

TITLE = "The band narrows at data, and stays narrow"
DESCRIPTION = (
    "An animation. Points arrive one by one, on the left, then in the middle, then on the right. The band of the "
    "posterior narrows where they are and stays narrow there after they are gone; elsewhere it stays wide."
)


def place(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    """Points of the plot in the drawing."""
    across = LEFT + (x + line.EDGE) / (2 * line.EDGE) * PANEL
    down = TOP + (HIGH - y) / (HIGH - LOW) * TALL
    return list(zip(across.tolist(), down.tolist(), strict=True))


def frame(data: line.Made, seen: int, mean: np.ndarray, sd: np.ndarray) -> list[str]:
    """The posterior after ``seen`` points: band, mean, new points and rings where old ones were."""
    grid = line.GRID[::2]
    upper, lower = place(grid, (mean + 2 * sd)[::2]), place(grid, (mean - 2 * sd)[::2])
    shapes = [svg.area(upper + lower[::-1], "blue", 0.28), svg.curve(place(grid, mean[::2]), "blue", 4)]
    task, points = divmod(max(seen - 1, 0), line.POINTS)
    for old in range(task):
        shapes += [svg.ring(x, y, 4.4, "soft") for x, y in place(data.x[old], data.y[old])]
    count = points + 1 if seen else 0
    shapes += [svg.dot(x, y, 5.5, "ink") for x, y in place(data.x[task][:count], data.y[task][:count])]
    return shapes


def said(seen: int) -> str:
    """The words below a frame."""
    if not seen:
        return "the prior"
    task, points = divmod(seen - 1, line.POINTS)
    count = "all" if points + 1 == line.POINTS else f"{points + 1} of"
    return f"task {task + 1}: {count} {line.POINTS} points"


def drawing() -> str:
    """The whole figure."""
    data = line.made()
    bands = [line.prior_band(data)] + [line.band(data, each) for each in line.beliefs(data, line.exact(), 1)]
    lengths = [HOLD if seen % line.POINTS == 0 else STEP for seen in range(len(bands))]
    lengths[-1] = 2 * HOLD
    period, begun = sum(lengths), 0.0
    style = [".f{opacity:0}.last{opacity:1}@media (prefers-reduced-motion:no-preference){"]
    for name, length in (("s", STEP), ("h", HOLD), ("e", 2 * HOLD)):
        style.append(f"@keyframes {name}{{0%{{opacity:1}}{100 * length / period:.3f}%,100%{{opacity:0}}}}")
        style.append(f".{name}{{animation:{name} {period:.2f}s step-end infinite}}")
    shapes = [
        f"<style>{''.join(style)}}}</style>",
        svg.text(WIDTH / 2, 42, TITLE, 27, anchor="middle", more=' font-weight="700"'),
        svg.text(WIDTH / 2, 74, "VCL on one curve: yesterday’s posterior is today’s prior", 20, "soft", "middle"),
        svg.box(LEFT, TOP, PANEL, TALL),
    ]
    truth = svg.curve(place(line.GRID, line.truth(line.GRID)), "soft", 2, "1 6")
    frames = []
    for seen, ((mean, sd), length) in enumerate(zip(bands, lengths, strict=True)):
        kind = "e last" if seen == len(bands) - 1 else "h" if length == HOLD else "s"
        words = svg.text(WIDTH / 2, TOP + TALL + 34, said(seen), 22, "ink", "middle")
        # A delay below zero: every frame is part of the animation from its first moment.
        late = f'style="animation-delay:{begun - period:.2f}s"'
        frames.append(
            f'<g class="f {kind}" {late}><g clip-path="url(#c)">{"".join(frame(data, seen, mean, sd))}</g>{words}</g>'
        )
        begun += length
    shapes.append(f'<clipPath id="c"><rect x="{LEFT}" y="{TOP}" width="{PANEL}" height="{TALL}" rx="6"/></clipPath>')
    shapes += [truth, *frames]
    y = HEIGHT - 14
    shapes += [
        svg.dot(34, y - 6, 6, "ink"), svg.text(48, y, "new data", 19),
        svg.ring(156, y - 6, 5.5, "soft", 2), svg.text(170, y, "old data, not kept", 19),
        svg.curve([(352, y - 6), (388, y - 6)], "soft", 2.5, "1 6"), svg.text(396, y, "true function", 19),
        svg.area([(540, y - 16), (560, y - 16), (560, y + 4), (540, y + 4)], "blue", 0.28),
        svg.text(568, y, "± 2 sd", 19),
    ]  # fmt: skip
    return svg.document(WIDTH, HEIGHT, TITLE, DESCRIPTION, shapes)


def main(given: Sequence[str] | None = None) -> None:
    """Write the figure."""
    svg.write(svg.folder(__doc__, given) / "recursion.svg", drawing())


if __name__ == "__main__":
    main()
