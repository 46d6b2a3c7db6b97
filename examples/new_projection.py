"""A new projection in 30 lines: each task moves the weights only part of the way.

    python examples/new_projection.py [--quick]

proj is a function from q(theta) p(D_t | theta) to a belief. This one fits D_t by maximum likelihood, starting at the
last estimate, and goes a share of the way there. It is compared with fine-tuning and VCL on five permutations of the
digits. docs/adding.md has projections with an objective of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from picture import options, panels, write
from sklearn.datasets import load_digits

import vcl
from vcl.beliefs import MeanField, Point
from vcl.fitting.loop import Report, silent
from vcl.projections.base import Target, fresh


@final
@dataclass(frozen=True)
class PartOfTheWay:
    """theta_t = theta_{t-1} + share (argmax_theta log p(D_t | theta) - theta_{t-1}), but the whole way at first."""

    fit: vcl.MaximumLikelihood
    share: float = 0.5

    def initial(self, prior: MeanField) -> Point:
        """The prior as this projection's kind of belief: its mean."""
        return self.fit.initial(prior)

    def __call__(self, target: Target[Point], rng: vcl.Rng, report: Report = silent) -> Point:
        """The new estimate."""
        old, new = target.q, self.fit(target, rng, report)
        if fresh(old, target.prior):  # tensors that no data has informed
            return new
        return Point(old.layout, old.mean + self.share * (new.mean - old.mean))


def main(given: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Learn five tasks with each projection, draw the accuracies, and return those after the last task."""
    asked = options(__doc__, given)
    x, y = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    tasks = []
    for k in range(5):
        data = vcl.dataset(pixels[:, torch.randperm(64)], labels, f"{k}", "all")
        train, test = data.divide(torch.arange(1200)[None])
        tasks.append(vcl.Task(f"permutation {k}", train, test, heads={"all": 10}))

    model = vcl.Network(vcl.mlp(64, (100,)), features=100, likelihood=vcl.Categorical())
    ascent = vcl.Ascent(2 if asked.quick else 60, 64, 5e-3)
    projections: dict[str, Any] = {
        "fine-tuning": vcl.MaximumLikelihood(ascent),
        "part of the way": PartOfTheWay(vcl.MaximumLikelihood(ascent)),
        "VCL": vcl.VariationalKL(ascent, draws=2, estimator="local"),
    }
    scores: dict[str, list[float]] = {}
    for name, project in projections.items():
        method, rng = vcl.Method(project), vcl.Rng(0)
        *_, state = vcl.learn(vcl.initial(model, method, runs=1), tasks, model, method, rng)
        scores[name] = []
        for task in tasks:
            p = vcl.predict(state, model, task.test.x, "all", rng, draws=20)
            scores[name].append(float((p.argmax(-1) == task.test.y).float().mean()))
        print(f"{name}: {' '.join(f'{each:.0%}' for each in scores[name])}")

    figure, (axis,) = panels(1, width=6)
    for (name, found), colour, mark in zip(scores.items(), ("#D55E00", "#009E73", "#0072B2"), "s^o", strict=True):
        axis.plot(range(1, 6), [100 * each for each in found], f"{mark}-", color=colour, label=name)
    axis.set(xlabel="task", ylabel="accuracy after the fifth, %", ylim=(0, 102), xticks=range(1, 6))
    axis.legend(loc="lower right")
    write(figure, asked, "new-projection")
    return scores


if __name__ == "__main__":
    main()
