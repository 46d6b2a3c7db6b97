"""A curve that arrives in three parts: intervals of a regressor, which stay narrow where data once was.

    python examples/regression.py [--quick]

Each part is one ``update``; none of its points is kept. The last line compares the 90 % intervals with new points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from picture import options, panels, write
from torch import nn

import vcl

PARTS, NOISE = ((-3.0, -1.2), (-0.9, 0.9), (1.2, 3.0)), 0.15


def truth(x: np.ndarray) -> np.ndarray:
    """The function without noise."""
    return np.sin(1.8 * x) + 0.2 * x


def main(given: Sequence[str] | None = None) -> float:
    """Learn three parts, draw the belief after each, and return the coverage of 90 % intervals on all of them."""
    asked = options(__doc__, given)
    random = np.random.default_rng(0)
    grid = np.linspace(-4, 4, 161)
    net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh())
    # The curve bends more often than networks drawn from a prior with variances of 1.
    learner = vcl.ContinualRegressor(
        net, standardize=False, prior_var=10.0, epochs=20 if asked.quick else None, verbose=0
    )
    figure, axes = panels(len(PARTS))
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for axis, (low, high) in zip(axes, PARTS, strict=True):
        x = random.uniform(low, high, 60)
        y = truth(x) + NOISE * random.standard_normal(len(x))
        learner.update(x[:, None], y)

        mean, sd = learner.predict(grid[:, None], return_std=True)
        axis.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color="#0072B2", alpha=0.25, lw=0)
        axis.plot(grid, mean, color="#0072B2")
        axis.plot(grid, truth(grid), ":", color="gray")
        for old in seen:
            axis.plot(*old, "o", color="gray", ms=3, mfc="none")
        axis.plot(x, y, "o", color="black", ms=3)
        axis.set(title=f"after part {len(seen) + 1}", ylim=(-3, 3), xlabel="x")
        seen.append((x, y))
    axes[0].set_ylabel("mean ± 2 sd")

    x = np.concatenate([random.uniform(low, high, 200) for low, high in PARTS])
    y = truth(x) + NOISE * random.standard_normal(len(x))
    lower, upper = learner.intervals(x[:, None], level=0.9)
    coverage = float(((lower <= y) & (y <= upper)).mean())
    print(f"{coverage:.0%} of {len(x)} new points of the three parts lie in their 90 % intervals")
    write(figure, asked, "regression")
    return coverage


if __name__ == "__main__":
    main()
