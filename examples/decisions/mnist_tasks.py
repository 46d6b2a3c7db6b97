"""MNIST in tasks on two cores: pairs of digits with two shared outputs, and class after class with one head.

    python examples/decisions/mnist_tasks.py [--only pairs] [--quick]

``pairs``: is the digit odd? Five tasks (0/1, 2/3, ...), a small convolutional network, and nobody says at test time
from which task an image is. ``classes``: five tasks of two new digits each, one head over all ten. No learner keeps a
memory.
Each task has 2,000 images; the test has 400 images of each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from common import Baseline, Results, accuracy, cell, ece, log_loss, options, say
from matplotlib.figure import Figure
from torch import Tensor, nn

import vcl
from vcl.lab.datasets import load
from vcl.lab.figures.style import colour

TASKS, TRAIN, TEST = 5, 2000, 400


class Conv(nn.Module):
    """Two convolutions and a layer of 50 units, 22,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(400, 50),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, 28, 28] to [N, 50]."""
        return self.layers(x.unsqueeze(1))


class Part(NamedTuple):
    """One task."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def parts(stream: str, seed: int, quick: bool) -> list[Part]:
    """The tasks: labels are odd or even for ``pairs``, digits for ``classes``."""
    data, random = load("mnist"), np.random.default_rng(seed)
    train, test = (32, 10) if quick else (TRAIN, TEST)
    found = []
    for task in range(TASKS):
        own = [random.permutation(np.flatnonzero(y // 2 == task)) for y in (data.train_y, data.test_y)]
        x, y = data.train_x[own[0][:train]], data.train_y[own[0][:train]].astype(int)
        test_x, test_y = data.test_x[own[1][:test]], data.test_y[own[1][:test]].astype(int)
        pairs = stream == "pairs"
        found.append(Part((x, y % 2 if pairs else y), (test_x, test_y % 2 if pairs else test_y)))
    return found


def learners(stream: str, seed: int, quick: bool) -> dict[str, Any]:
    """Learners by name, as functions that make them."""
    outputs = 2 if stream == "pairs" else 10
    few: dict[str, Any] = {"epochs": 2} if quick else {}

    def net() -> nn.Module:
        torch.manual_seed(seed)
        return Conv()

    def ours(method: Any) -> vcl.ContinualClassifier:
        given = None if method == "generative" else net()
        classes = list(range(outputs))
        return vcl.ContinualClassifier(
            given, method=method, heads="shared", classes=classes, seed=seed, verbose=0, **few
        )

    found = {
        "default": lambda: ours("structured"),
        "fine-tuning": lambda: Baseline(net(), 50, outputs, "fine-tuning", seed=seed, **few),
        "EWC, lambda 1": lambda: Baseline(net(), 50, outputs, "ewc", 1.0, seed, **few),
        "EWC, lambda 100": lambda: Baseline(net(), 50, outputs, "ewc", 100.0, seed, **few),
    }
    if stream == "pairs":
        return found
    plain = {name: found[name] for name in ("default", "fine-tuning")}
    return {**plain, "generative": lambda: ours("generative")}


def one(stream: str, name: str, seed: int, quick: bool, results: Results) -> None:
    """Learn all tasks, and judge on those so far after each."""
    tasks, learner, spent = parts(stream, seed, quick), learners(stream, seed, quick)[name](), 0.0
    for number, part in enumerate(tasks):
        begun = process_time()
        learner.update(*part.train, f"task {number}")
        spent += process_time() - begun
        x = np.concatenate([each.test[0] for each in tasks[: number + 1]])
        y = np.concatenate([each.test[1] for each in tasks[: number + 1]])
        p = learner.predict_proba(x)
        results.add(
            stream=stream, learner=name, seed=seed, after=number + 1, accuracy=accuracy(p, y),
            log_loss=log_loss(p, y), ece=ece(p, y), seconds=spent,
        )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Run both streams, print the table, write rows and figure."""
    asked = options(__doc__, 5, given, ("pairs", "classes"))
    results = Results("mnist-tasks", asked)
    for seed in range(asked.seeds):
        for stream in asked.only:
            for name in learners(stream, seed, asked.quick):
                if not results.where(stream=stream, learner=name, seed=seed, after=TASKS):
                    one(stream, name, seed, asked.quick, results)
                    results.keep()
                    last = results.rows[-1]
                    say(f"seed {seed}, {stream}, {name}: {last['accuracy']:.1f} %, {last['seconds']:.0f} s")
    kinds = list(dict.fromkeys((row["stream"], row["learner"]) for row in results.rows))
    scores = (("accuracy", 1), ("log_loss", 2), ("ece", 1), ("seconds", 0))
    table = []
    for stream, name in kinds:
        found = {of: results.values(of, stream=stream, learner=name, after=TASKS) for of, _ in scores}
        table.append([stream, name, str(len(found["ece"])), *(cell(found[of], digits) for of, digits in scores)])
    note = f"On test images of all tasks after the last one; {TRAIN:,} training images a task; seconds of five updates."
    heading = ("stream", "learner", "seeds", "accuracy, %", "log-loss", "ECE, %", "seconds")
    results.write(heading, table, figure(results, kinds), note)


def figure(results: Results, kinds: Sequence[tuple[str, str]]) -> Figure:
    """Accuracy on the tasks so far after each task, one panel a stream."""
    drawn = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, stream in zip(drawn.subplots(1, 2), ("pairs", "classes"), strict=True):
        for place, name in enumerate(name for each, name in kinds if each == stream):
            after = range(1, TASKS + 1)
            means = [np.mean(results.values("accuracy", stream=stream, learner=name, after=k)) for k in after]
            axes.plot(after, means, color=colour(place), marker="o", ms=3, label=name)
        axes.set(title=stream, xlabel="tasks learned", ylabel="accuracy on them, %", ylim=(0, 102))
        axes.legend(fontsize=7)
    return drawn


if __name__ == "__main__":
    main()
