"""A custom convolutional network, trained task after task on the 8x8 digits. Any ``nn.Module`` works.

    python examples/own_network.py [--epochs 60]

Three tasks arrive one after another: digits 0-2, 3-5, 6-8. Old data is never seen again, except ten points per task.
After each task the program prints the mean accuracy over three seeds on every task so far.
"""

from __future__ import annotations

import argparse

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


def main() -> None:
    """Learn three tasks and print the accuracy matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    epochs = parser.parse_args().epochs

    model = Network(Features(), features=24, likelihood=Categorical())
    project = VariationalKL(Ascent(epochs, batch=64, lr=5e-3), draws=2, estimator="local")
    method = Method(project, RandomK(10), refit=project, predictive="per-head")

    seeds = (0, 1, 2)
    rng = Rng(seeds)
    stream = split(arrays(load("digits")), [(0, 1, 2), (3, 4, 5), (6, 7, 8)], runs=len(seeds))
    tasks = list(stream)
    for state in learn(initial(model, method, len(seeds)), tasks, model, method, rng):
        scores = []
        for task in tasks[: state.t]:
            head = task.test.heads[0]
            probabilities = predict(state, model, task.test.x, head, rng, draws=20)
            scores.append(f"{task.name}: {100 * accuracy(probabilities, task.test.y).mean():.1f} %")
        print(f"after task {state.t}   " + "   ".join(scores))


if __name__ == "__main__":
    main()
