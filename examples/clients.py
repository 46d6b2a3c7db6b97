"""One posterior from three clients, whose data stays where it is.

    python examples/clients.py [--quick]

The first client has mostly low digits, the second mostly middle ones, the third mostly high ones. In each round, a
client receives the common posterior and sends back a factor. Compared with each client alone, and with all data in one
place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from picture import options, panels, write
from sklearn.datasets import load_digits

import vcl
from vcl.beliefs import MeanField


def divided(y: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
    """The positions of each client's examples: nine of ten come from its own range of digits."""
    own = np.minimum(y * clients // 10, clients - 1)
    anyone = random.random(len(y)) < 0.1
    who = np.where(anyone, random.integers(0, clients, len(y)), own)
    return [np.flatnonzero(who == k) for k in range(clients)]


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Run the rounds, draw the accuracy, and return accuracies on all digits."""
    asked = options(__doc__, given)
    x, y = load_digits(return_X_y=True)
    inputs, labels = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    train, test = slice(0, 1200), slice(1200, None)
    heads = {"all": 10}
    parts = divided(y[train], 3, np.random.default_rng(0))
    clients = [vcl.dataset(inputs[train][part], labels[train][part], f"client {k}", "all")
               for k, part in enumerate(parts)]  # fmt: skip
    everything = vcl.dataset(inputs[train], labels[train], "all data", "all")

    model = vcl.Network(vcl.mlp(64, (50,)), features=50, likelihood=vcl.Categorical())
    project = vcl.VariationalKL(vcl.Ascent(3 if asked.quick else 60, 50, 5e-3), draws=2, estimator="local")
    inference, method = vcl.PartitionedVI(project, damping=0.5), vcl.Method(project)

    def accuracy(belief: MeanField) -> float:
        """On the test digits, averaged over draws of the weights."""
        p = vcl.predict(belief, model, inputs[test][None], "all", vcl.Rng(0), draws=20)
        return float((p[0].argmax(-1) == labels[test]).float().mean())

    state, together = inference.initial(model, heads, len(clients)), []
    for _ in range(3 if asked.quick else 15):
        state = inference.round(state, clients, model, vcl.Rng(0))
        together.append(accuracy(state.belief))

    def alone(data: vcl.Data) -> float:
        """One posterior from one set of data."""
        task = vcl.Task("alone", data, heads=heads)
        (found,) = vcl.learn(vcl.initial(model, method, 1), [task], model, method, vcl.Rng(0))
        return accuracy(found.propagated)

    scores = {f"client {k} alone": alone(data) for k, data in enumerate(clients)}
    scores |= {"all data in one place": alone(everything), "together": together[-1]}
    for name, score in scores.items():
        print(f"{name}: {score:.1%}")

    figure, (axis,) = panels(1, width=6)
    axis.plot(range(1, len(together) + 1), [100 * each for each in together], "o-", color="#0072B2", label="together")
    axis.axhline(100 * scores["all data in one place"], color="black", lw=1, label="all data in one place")
    for k in range(len(clients)):
        axis.axhline(100 * scores[f"client {k} alone"], color="#D55E00", ls=":", label=None if k else "a client alone")
    axis.set(xlabel="rounds", ylabel="accuracy on all digits, %", ylim=(0, 100))
    axis.legend(loc="lower right")
    write(figure, asked, "clients")
    return scores


if __name__ == "__main__":
    main()
