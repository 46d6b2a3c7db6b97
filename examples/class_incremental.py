"""Ten digits, one after another, without a memory: a generator for each class, beside one classifier that forgets.

    python examples/class_incremental.py [--quick]

p(y | x) is proportional to p(x | y): each class has a small VAE, and their decoders share layers with a posterior.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from picture import options, write
from sklearn.datasets import load_digits

import vcl
from vcl.learner import generative_vcl


def main(given: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Learn the classes in two ways, draw accuracies and images, and return the accuracies over the classes so far."""
    asked = options(__doc__, given)
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32).reshape(-1, 8, 8)
    train = np.arange(len(x)) < 1200
    classes = range(3 if asked.quick else 10)

    fit = vcl.Ascent(5 if asked.quick else 400, 50, 1e-3)
    generators = vcl.GenerativeClassifier(vcl.mlp_vae(pixels=64, latent=8, features=50, hidden=50), generative_vcl(fit))
    classifier = vcl.ContinualClassifier(
        vcl.mlp(64, (50,)), classes=list(range(10)), epochs=2 if asked.quick else 30, verbose=0
    )
    scores: dict[str, list[float]] = {"a generator for each class": [], "one classifier": []}
    for digit in classes:
        new, seen = train & (y == digit), ~train & (y <= digit)
        generators.update(torch.tensor(x[new]), torch.tensor(y[new]))
        classifier.update(x[new].reshape(-1, 64), y[new])
        said = generators.predict(torch.tensor(x[seen]), draws=20)[0].numpy()
        scores["a generator for each class"].append(float((said == y[seen]).mean()))
        said = classifier.predict(x[seen].reshape(-1, 64))
        scores["one classifier"].append(float((said == y[seen]).mean()))
        print(f"after {digit}: " + ", ".join(f"{way} {found[-1]:.0%}" for way, found in scores.items()), flush=True)

    figure = Figure(figsize=(8, 3.8), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1))
    axis = left.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    for (way, found), colour, mark in zip(scores.items(), ("#0072B2", "#D55E00"), ("o-", "s-"), strict=True):
        axis.plot(classes, [100 * each for each in found], mark, color=colour, label=way)
    axis.set(xlabel="the newest class", ylabel="accuracy on all classes so far, %", ylim=(0, 102), xticks=classes)
    axis.legend()
    right.suptitle("drawn after the last class", fontsize="medium")
    grid = right.subplots(len(classes), 8, gridspec_kw={"wspace": 0, "hspace": 0})
    for row, digit in zip(grid, classes, strict=True):
        images = generators.learner.sample(str(digit), count=8)[0]
        for place, image in zip(row, images, strict=True):
            place.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
            place.set_axis_off()
    write(figure, asked, "class-incremental")
    return scores


if __name__ == "__main__":
    main()
