"""A custom convolutional network, trained task after task on the 8x8 digits. Any ``nn.Module`` works.

    python examples/own_network.py [--quick]

Three tasks arrive one after another: digits 0-2, 3-5, 6-8. Old data is never seen again, except ten points per task.
After each task the program prints the mean accuracy over three seeds on every task so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from picture import options, panels, write
from torch import Tensor, nn

from vcl import Ascent, Categorical, Method, Network, RandomK, Rng, VariationalKL, initial, learn, predict
from vcl.lab.datasets import load
from vcl.lab.streams import arrays, split
from vcl.predicting.metrics import accuracy


class Features(nn.Module):
    """A plain module from images to 24 features. It uses GroupNorm: BatchNorm's running statistics would forget."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.GroupNorm(1, 8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 24),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, 8, 8] to [N, 24]."""
        return self.layers(x.unsqueeze(1))


def main(given: Sequence[str] | None = None) -> np.ndarray:
    """Learn three tasks, draw the accuracies, and return them: [after task, on task], nan for tasks to come."""
    asked = options(__doc__, given)
    epochs = 3 if asked.quick else 60

    model = Network(Features(), features=24, likelihood=Categorical())
    project = VariationalKL(Ascent(epochs, batch=64, lr=5e-3), draws=2, estimator="local")
    method = Method(project, RandomK(10), refit=project, predictive="per-head")

    seeds = (0, 1, 2)
    rng = Rng(seeds)
    stream = split(arrays(load("digits")), [(0, 1, 2), (3, 4, 5), (6, 7, 8)], runs=len(seeds))
    tasks = list(stream)
    scores = np.full((len(tasks), len(tasks)), np.nan)
    for state in learn(initial(model, method, len(seeds)), tasks, model, method, rng):
        for place, task in enumerate(tasks[: state.t]):
            head = task.test.heads[0]
            probabilities = predict(state, model, task.test.x, head, rng, draws=20)
            scores[state.t - 1, place] = 100 * accuracy(probabilities, task.test.y).mean()
        print(f"after task {state.t}: " + ", ".join(f"{each:.1f} %" for each in scores[state.t - 1, : state.t]))

    figure, (axis,) = panels(1, width=6)
    after = range(1, len(tasks) + 1)
    for place, (task, colour, mark) in enumerate(zip(tasks, ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True)):
        axis.plot(after, scores[:, place], f"{mark}-", color=colour, label=task.name)
    axis.set(xlabel="tasks learned", ylabel="accuracy, %", xticks=after, ylim=(min(90, np.nanmin(scores) - 2), 100.5))
    axis.legend(title="on task", loc="lower left")
    write(figure, asked, "own-network")
    return scores


if __name__ == "__main__":
    main()
