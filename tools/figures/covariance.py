"""docs/figures/covariance.svg: what three families say about the correlations between the weights of one layer.

python tools/figures/covariance.py

A layer from six inputs to three classes; the first three inputs move together, and so do the last three. Each family is
fitted to the same data by its own projection. Correlations are those of 20,000 draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import svg
import torch
from torch import nn

import vcl
from vcl.projections import KroneckerLaplace, KroneckerVariational

INPUTS, CLASSES, POINTS, DRAWS, SEED = 6, 3, 300, 20_000, 0
WIDTH, HEIGHT = 720, 440
LEFT, TOP, PANEL, GAP = 30, 152, 200, 30

TITLE = "One layer, three families"
DESCRIPTION = (
    "Three square matrices of correlations between 21 weights. Mean field has the diagonal alone. Kronecker factors "
    "have blocks that repeat, much like those of the full Gaussian."
)


def made() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs [N, INPUTS] in two groups that move together, and classes [N]."""
    random = np.random.default_rng(SEED)
    groups = np.repeat(random.standard_normal((POINTS, 2)), INPUTS // 2, axis=1)
    x = groups + 0.1 * random.standard_normal((POINTS, INPUTS))
    scores = x @ random.standard_normal((INPUTS, CLASSES)) + random.gumbel(size=(POINTS, CLASSES))
    return torch.tensor(x).float(), torch.tensor(scores.argmax(1))


def projections(epochs: int = 600) -> dict[str, Any]:
    """How each family is fitted; the full Gaussian, which starts without correlations, takes the longest."""
    fit = vcl.Ascent(epochs, None, 1e-2, schedule="cosine")
    longer = vcl.Ascent(3 * epochs, None, 3e-2, schedule="cosine")
    return {
        "mean field": vcl.VariationalKL(fit, draws=10, estimator="local"),
        "Kronecker factors": KroneckerVariational(KroneckerLaplace(fit), fit),
        "full Gaussian": vcl.VariationalKL(longer, draws=10, family="full"),
    }


def correlations(project: Any) -> np.ndarray:
    """[D, D] of the layer's weights and biases, for each class its inputs and its bias."""
    x, y = made()
    model = vcl.Network(nn.Identity(), INPUTS, vcl.Categorical())
    task = vcl.Task("all", vcl.dataset(x, y, "all", "all"), heads={"all": CLASSES})
    method = vcl.Method(project)
    (state,) = vcl.learn(vcl.initial(model, method, 1), [task], model, method, vcl.Rng(SEED))
    q = state.propagated
    noise = torch.randn(1, DRAWS, q.layout.size, generator=torch.Generator().manual_seed(SEED))
    parts = q.layout.split(q.draw(noise)[0])
    weight, bias = (next(each for name, each in parts.items() if name.endswith(end)) for end in ("weight", "bias"))
    rows = torch.cat([weight.reshape(DRAWS, CLASSES, INPUTS), bias.reshape(DRAWS, CLASSES, 1)], dim=-1)
    return np.corrcoef(rows.reshape(DRAWS, -1).double().numpy().T)


def panel(x0: float, y0: float, name: str, found: np.ndarray, share: str) -> list[str]:
    """One matrix: blue cells move together, red ones against each other."""
    size = PANEL / len(found)
    shapes = [svg.text(x0 + PANEL / 2, y0 - 34, name, 22, anchor="middle", more=' font-weight="600"')]
    shapes += [svg.text(x0 + PANEL / 2, y0 - 11, share, 16, "soft", "middle"), svg.box(x0, y0, PANEL, PANEL)]
    for row, column in np.ndindex(found.shape):
        value = float(found[row, column])
        if abs(value) >= 0.03:
            place = f'x="{x0 + column * size:.2f}" y="{y0 + row * size:.2f}" width="{size:.2f}" height="{size:.2f}"'
            shapes.append(f'<rect class="{"blue" if value > 0 else "red"}" opacity="{abs(value):.2f}" {place}/>')
    for group in range(CLASSES):
        across = x0 + (group + 0.5) * PANEL / CLASSES
        shapes.append(svg.text(across, y0 + PANEL + 20, f"class {group + 1}", 14, "soft", "middle"))
    for group in range(1, CLASSES):
        at = group * PANEL / CLASSES
        shapes.append(svg.curve([(x0, y0 + at), (x0 + PANEL, y0 + at)], "soft", 1))
        shapes.append(svg.curve([(x0 + at, y0), (x0 + at, y0 + PANEL)], "soft", 1))
    return shapes


def drawing(found: dict[str, np.ndarray]) -> str:
    """The whole figure."""
    count = CLASSES * (INPUTS + 1)
    kept = {
        "mean field": f"{count} variances",
        "Kronecker factors": f"{INPUTS + 1}² + {CLASSES}² values, {count} variances",
        "full Gaussian": f"{count}² values",
    }
    shapes = [
        svg.text(WIDTH / 2, 44, TITLE, 30, anchor="middle", more=' font-weight="700"'),
        svg.text(WIDTH / 2, 72, "correlations between the weights of 6 inputs (and a bias) to 3 classes", 18, "soft",
                 "middle"),
    ]  # fmt: skip
    for place, (name, each) in enumerate(found.items()):
        shapes += panel(LEFT + place * (PANEL + GAP), TOP, name, each, kept[name])
    y = HEIGHT - 36
    for step in range(-10, 11):
        kind = "blue" if step > 0 else "red"
        place = f'x="{WIDTH / 2 + 12 * step - 6}" y="{y}" width="12" height="18"'
        shapes.append(f'<rect class="{kind}" opacity="{abs(step) / 10:.1f}" {place}/>')
    shapes += [
        svg.text(WIDTH / 2 - 138, y + 15, "-1: against each other", 17, "soft", "end"),
        svg.text(WIDTH / 2 + 138, y + 15, "1: together", 17, "soft"),
    ]
    return svg.document(WIDTH, HEIGHT, TITLE, DESCRIPTION, shapes)


def main(given: Sequence[str] | None = None) -> None:
    """Write the figure."""
    out = svg.folder(__doc__, given)
    svg.write(out / "covariance.svg", drawing({name: correlations(each) for name, each in projections().items()}))


if __name__ == "__main__":
    main()
