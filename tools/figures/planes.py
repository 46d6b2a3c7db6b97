"""docs/figures/planes.svg: two classes in the plane, in three tasks: what VCL, EWC and fine-tuning decide after each.

python tools/figures/planes.py

All learn the weights of one output layer over 100 fixed tanh features, as in line.py. EWC's lambda is the one of
LAMBDAS with the best accuracy on all points after the last task. VCL has Kronecker factors, as learners have;
with independent weights it is printed, and not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import contourpy
import numpy as np
import svg
import torch
from torch import nn

import vcl
from vcl.projections import KroneckerLaplace, KroneckerVariational

POINTS, FEATURES, SEED = 100, 100, 0
LAMBDAS = (1.0, 10.0, 100.0, 1000.0)
EDGE, CELLS = 3.2, 61
WIDTH, HEIGHT = 720, 866
LEFT, TOP, PANEL, GAP, ROW = 18, 112, 206, 33, 236
BANDS = ((0.0, 0.05), (0.05, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 0.95), (0.95, 1.0))

TITLE = "Two classes, learned in three parts"
DESCRIPTION = (
    "Three rows of three plots: the decision of a classifier in the plane after each of three tasks. VCL's keeps the "
    "points of earlier tasks on their side; fine-tuning's fits the newest points alone."
)


class Part(NamedTuple):
    """The points of a task [N, 2] and their classes [N]."""

    x: np.ndarray
    y: np.ndarray


def made(seed: int = SEED) -> list[Part]:
    """Three tasks from left to right; class 1 lies above class 0, at heights that differ from task to task."""
    random = np.random.default_rng(seed)
    parts = []
    for across, height in ((-2.1, 1.0), (0.0, -1.0), (2.1, 1.0)):
        y = np.arange(POINTS) % 2
        centre = np.stack([np.full(POINTS, across), height + 1.3 * (y - 0.5)], axis=1)
        parts.append(Part(centre + random.standard_normal((POINTS, 2)) * (0.42, 0.4), y))
    return parts


class Fixed(nn.Module):
    """tanh of random projections, which are not learned."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.register_buffer("slopes", torch.randn(2, FEATURES, generator=random))
        self.register_buffer("places", 2 * torch.randn(FEATURES, generator=random))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 2] to [N, FEATURES]."""
        return torch.tanh(x @ self.slopes + self.places)


def network() -> vcl.Network:
    """One output layer over the fixed features."""
    return vcl.Network(Fixed(), FEATURES, vcl.Categorical())


def learned(parts: Sequence[Part], project: Any) -> list[Any]:
    """The state after each task."""
    tasks = [
        vcl.Task(
            f"{k}", vcl.dataset(torch.tensor(part.x).float(), torch.tensor(part.y), f"{k}", "all"), heads={"all": 2}
        )
        for k, part in enumerate(parts)
    ]
    model, method = network(), vcl.Method(project)
    return list(vcl.learn(vcl.initial(model, method, 1), tasks, model, method, vcl.Rng(SEED)))


def probability(state: Any, x: np.ndarray) -> np.ndarray:
    """p(class 1) at x [N, 2]."""
    inputs = torch.tensor(x).float()[None]
    return np.asarray(vcl.predict(state, network(), inputs, "all", vcl.Rng(SEED), draws=100)[0, :, 1])


def accuracy(state: Any, parts: Sequence[Part]) -> float:
    """The share of the points of these tasks that the state gets right."""
    found = [((probability(state, part.x) > 0.5) == part.y).mean() for part in parts]
    return float(np.mean(found))


def ways(parts: Sequence[Part], epochs: int = 300) -> list[tuple[str, str, list[Any]]]:
    """Each method's colour, its words and its states after each task."""
    fit, cooled = vcl.Ascent(epochs, None, 1e-2), vcl.Ascent(epochs, None, 1e-2, schedule="cosine")
    ewc = {lam: learned(parts, vcl.ElasticWeightConsolidation(fit, lam)) for lam in LAMBDAS}
    best = max(LAMBDAS, key=lambda lam: accuracy(ewc[lam][-1], parts))
    return [
        ("blue", "VCL (Kronecker factors)", learned(parts, KroneckerVariational(KroneckerLaplace(cooled), cooled))),
        ("green", "EWC (the best λ of four)", ewc[best]),
        ("red", "Fine-tuning", learned(parts, vcl.MaximumLikelihood(fit))),
    ]


def independent(parts: Sequence[Part]) -> list[Any]:
    """The states of VCL with independent weights."""
    return learned(parts, vcl.VariationalKL(vcl.Ascent(500, None, 3e-2), draws=10, estimator="local"))


def panel(name: str, x0: float, y0: float, parts: Sequence[Part], task: int, state: Any) -> str:
    """One plot: shades of p(class 1), the line at one half, and points."""
    axis = np.linspace(-EDGE, EDGE, CELLS)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    p = probability(state, grid).reshape(CELLS, CELLS)
    down = PANEL / (2 * EDGE)

    def place(x: np.ndarray) -> list[tuple[float, float]]:
        return [(x0 + (a + EDGE) * down, y0 + (EDGE - b) * down) for a, b in x.tolist()]

    contours = contourpy.contour_generator(axis, axis, p, fill_type="OuterOffset")
    shapes = []
    for low, high in BANDS:
        opacity = 0.75 * abs(low + high - 1) ** 1.5
        for points, offsets in zip(*contours.filled(low - 1e-9, high + 1e-9), strict=True):
            rings = [place(points[a:b]) for a, b in pairwise(offsets)]
            path = "".join(f"M{svg.coordinates(ring)}Z" for ring in rings)
            kind = "yellow" if high > 0.5 else "pink"
            shapes.append(f'<path class="{kind}" fill-rule="evenodd" opacity="{opacity:.2f}" d="{path}"/>')
    shapes += [svg.curve(place(each), "ink", 2.5) for each in contours.lines(0.5)]
    for old, part in enumerate(parts[: task + 1]):
        for (x, y), label in zip(place(part.x), part.y, strict=True):
            kind = "ink" if old == task else "soft"
            shapes.append(triangle(x, y, kind) if label else svg.dot(x, y, 2.6, kind))
    return svg.box(x0, y0, PANEL, PANEL) + svg.clipped(name, x0, y0, PANEL, PANEL, shapes)


def triangle(x: float, y: float, kind: str) -> str:
    """A point of class 1."""
    return svg.area([(x - 3.6, y + 2.8), (x + 3.6, y + 2.8), (x, y - 3.8)], kind, 1)


def drawing(parts: Sequence[Part], found: Sequence[tuple[str, str, list[Any]]]) -> str:
    """The whole figure."""
    centre = WIDTH / 2
    shapes = [svg.text(centre, 42, TITLE, 30, anchor="middle", more=' font-weight="700"')]
    for row, (kind, words, states) in enumerate(found):
        y = TOP + row * (ROW + 8)
        share = accuracy(states[-1], parts)
        words = f"{words}: {share:.0%} right at the end"
        shapes.append(svg.text(centre, y - 14, words, 22, kind, "middle", ' font-weight="600"'))
        for task, state in enumerate(states):
            shapes.append(panel(f"p{row}{task}", LEFT + task * (PANEL + GAP), y, parts, task, state))
            if task:
                x = LEFT + task * (PANEL + GAP)
                shapes.append(svg.arrow(x - GAP + 3, y + PANEL / 2, x - 3, y + PANEL / 2, kind, 4, 12))
    y = HEIGHT - 18
    shapes += [
        svg.dot(28, y - 6, 5, "ink"), triangle(46, y - 6, "ink"), svg.text(60, y, "new points", 18),
        svg.dot(172, y - 6, 5, "soft"), triangle(190, y - 6, "soft"), svg.text(204, y, "old points, not kept", 18),
        svg.curve([(392, y - 6), (428, y - 6)], "ink", 2.5), svg.text(438, y, "p = ½", 18),
        svg.text(508, y, "shades: how sure", 18),
    ]  # fmt: skip
    return svg.document(WIDTH, HEIGHT, TITLE, DESCRIPTION, shapes)


def main(given: Sequence[str] | None = None) -> None:
    """Write the figure."""
    out, parts = svg.folder(__doc__, given), made()
    svg.write(out / "planes.svg", drawing(parts, ways(parts)))
    print(f"VCL with independent weights: {accuracy(independent(parts)[-1], parts):.0%} at the end")


if __name__ == "__main__":
    main()
