"""One class a task, learned by generators (section 6.2; appendix E)."""

from dataclasses import replace
from math import exp
from typing import Any

import torch
from torch import Tensor

from vcl.data import Data, unlabelled
from vcl.errors import VclError
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.generative import GENERATIVE, GenerativeSettings
from vcl.lab.streams import Arrays, Stream, limited, reordered
from vcl.ops.rng import Rng
from vcl.recursion import Task

PAPER = GenerativeSettings(tasks=10, epochs=200, batch=50)
# Few steps: a larger rate, and a larger variance to begin at (see the digits below).
QUICK = replace(PAPER, tasks=3, epochs=15, latent=20, features=100, hidden=100, lr=3e-3, init_var=exp(-8), draws=2,
                coreset_epochs=10,
                ll_draws=200, images=200, train_limit=1000, test_limit=100, seeds=2,
                classifier_hidden=300, classifier_epochs=4)  # fmt: skip
SMOKE = replace(QUICK, tasks=2, epochs=1, latent=3, features=8, hidden=8, coreset=5, coreset_epochs=1, ll_draws=5,
                images=10, train_limit=60, test_limit=20, classifier_hidden=16, classifier_epochs=1)  # fmt: skip
# The 8x8 digits are 30 times fewer, with 64 pixels: a small network, and what 400 steps can reach: a larger rate, and a
# larger variance to begin at (begun at e^-12, what is shared stays as the first task left it, and the others suffer).
DIGITS = replace(PAPER, epochs=150, latent=10, features=50, hidden=50, lr=1e-2, init_var=exp(-8),
                 coreset=10, coreset_epochs=50, ll_draws=1000, classifier_hidden=200, classifier_epochs=60)  # fmt: skip

GRID = (1.0, 10.0, 100.0)
VALIDATION = 0.1
"""The share of each class's training images that the authors set aside to choose by; nobody learns from it."""


def stream(data: Arrays, s: GenerativeSettings, rng: Rng) -> Stream:
    """Each class is a task with a generator of its own; limits keep a random sample of its images."""
    if s.tasks > len(data.classes):
        raise VclError(f"tasks is {s.tasks}; there are {len(data.classes)} classes, each of which makes one task.")
    runs, pixels = len(rng.seeds), data.train_x[0].numel()

    def part(x: Tensor, y: Tensor, number: int, most: int | None, share: float) -> Data:
        mine = (y == number).nonzero()[:, 0]
        mine = mine[: round(share * len(mine))]
        images, _ = limited(x[mine], y[mine], most)
        if s.binarised == "yes":
            images = torch.where(images > 127, 255, 0).to(torch.uint8)
        name = data.classes[number]
        return unlabelled(images, name, name, runs)

    def make(number: int) -> Task:
        name = data.classes[number]
        train = part(data.train_x, data.train_y, number, s.train_limit, 1 - VALIDATION)
        return Task(name, train, part(data.test_x, data.test_y, number, s.test_limit, 1.0), {name: pixels})

    return reordered(Stream(s.tasks, tuple(data.train_x.shape[1:]), make), s.order)


def overrides(epochs: int) -> dict[str, dict[str, Any]]:
    """SI is trained twice as long, as the authors did."""
    return {"si": {"epochs": 2 * epochs}}


GENERATIVE_MNIST = Experiment(
    name="generative-mnist",
    about="a generator of one MNIST digit a task",
    dataset="mnist",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    kind=GENERATIVE,
    overrides={"paper": overrides(PAPER.epochs)},
    grids={"ewc": GRID, "lp": GRID, "si": GRID},
)
GENERATIVE_NOTMNIST = Experiment(
    name="generative-notmnist",
    about="a generator of one notMNIST letter a task (the small set)",
    dataset="notmnist",
    presets={"paper": replace(PAPER, epochs=400), "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    kind=GENERATIVE,
    grids={"ewc": GRID, "lp": GRID, "si": GRID},
)
GENERATIVE_DIGITS = Experiment(
    name="generative-digits",
    about="a generator of one 8x8 digit a task",
    dataset="digits",
    presets={
        "paper": DIGITS,
        "quick": replace(DIGITS, tasks=5, epochs=100, draws=3, ll_draws=300, images=200, seeds=2),
        "smoke": SMOKE,
    },
    stream=stream,
    kind=GENERATIVE,
    grids={"ewc": GRID, "lp": GRID, "si": GRID},
)
