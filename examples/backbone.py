"""A frozen network that was trained elsewhere, with a posterior over its head, or over adapters and its head.

    python examples/backbone.py [--quick]

The backbone is a small convolutional network, trained by plain PyTorch on the digits 0 to 4. Then four tasks arrive one
after another: the digits 5 to 9, upright and turned by 90, 180 and 270 degrees. Nothing of a task is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from picture import options, panels, write
from sklearn.datasets import load_digits
from torch import nn

import vcl

ANGLES = (0, 90, 180, 270)


def trained(x: np.ndarray, y: np.ndarray, steps: int) -> nn.Module:
    """A network from images [N, 1, 8, 8] to 64 features, trained as a classifier of y."""
    features = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
    )  # fmt: skip
    whole = nn.Sequential(features, nn.Linear(64, 5))
    images, labels = torch.tensor(x), torch.tensor(y)
    adam = torch.optim.Adam(whole.parameters(), 2e-3)
    for _ in range(steps):
        adam.zero_grad()
        nn.functional.cross_entropy(whole(images), labels).backward()
        adam.step()
    return features


def main(given: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Learn the tasks in two ways, draw the accuracies, and return them: for each way, one number a task."""
    asked = options(__doc__, given)
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    old, new = y < 5, y >= 5
    backbone = trained(x[old], y[old], 20 if asked.quick else 150)
    turned = [np.rot90(x[new], angle // 90, axes=(2, 3)).copy() for angle in ANGLES]
    labels, train, test = y[new], slice(0, 100 if asked.quick else 600), slice(600, None)

    ways: dict[str, dict[str, Any]] = {
        "the head": {"posterior": "head"},
        "adapters of rank 8, the head": {"adapters": 8},
    }
    scores: dict[str, list[float]] = {}
    for way, settings in ways.items():
        learner = vcl.ContinualClassifier(
            backbone, heads="shared", epochs=2 if asked.quick else 15, verbose=0, **settings
        )
        for angle, images in zip(ANGLES, turned, strict=True):
            learner.update(images[train], labels[train], task=f"{angle} degrees")
        scores[way] = [float((learner.predict(images[test]) == labels[test]).mean()) for images in turned]
        print(f"{way}: {' '.join(f'{each:.0%}' for each in scores[way])}")

    figure, (axis,) = panels(1, width=6, height=3.2)
    for place, (way, found) in enumerate(scores.items()):
        at = np.arange(len(ANGLES)) + 0.4 * (place - 0.5)
        axis.bar(at, [100 * each for each in found], 0.38, label=way, color=("#0072B2", "#D55E00")[place])
    axis.set(xticks=range(len(ANGLES)), xticklabels=[f"{angle}°" for angle in ANGLES], ylim=(0, 100))
    axis.set(xlabel="task, in the order of learning", ylabel="accuracy after the last, %")
    figure.legend(title="a posterior over", loc="outside upper center", ncols=2)
    write(figure, asked, "backbone")
    return scores


if __name__ == "__main__":
    main()
