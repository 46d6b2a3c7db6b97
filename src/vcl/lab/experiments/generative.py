"""One class a task, learned by generators (section 6.2; appendix E)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from vcl.data import Data, unlabelled
from vcl.errors import VclError
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup, check_order
from vcl.lab.experiments.split import Order, Tasks
from vcl.lab.generative.network import VaeSettings, vae
from vcl.lab.generative.quality import GENERATION, GenerationSettings
from vcl.lab.settings import Count, Limit
from vcl.lab.streams import Arrays, Stream, limited, reordered
from vcl.ops.rng import Rng
from vcl.recursion import Task


@dataclass(frozen=True)
class OneClassEach:
    """One class a task, images without labels."""

    tasks: Annotated[Tasks, "tasks, each one class"] = 10
    order: Order = ()
    binarised: Annotated[Literal["no", "yes"], "whether pixels are rounded to 0 and 1"] = "no"
    validation: Annotated[
        float, Limit(0, 0.9), "share of each class's training images that is left out, as the authors did"
    ] = 0.1
    train_limit: Annotated[Count | None, "training images of a task; none takes all"] = None
    test_limit: Annotated[Count | None, "test images of a task; none takes all"] = None

    def check(self) -> None:
        """The order names each task once."""
        check_order(self.order, self.tasks)


PAPER = Setup(OneClassEach(), VaeSettings(), GenerationSettings(), RunSettings(3), {"epochs": 200, "batch": 50})
# Few steps: a larger rate, and a larger initial variance (see the digits below).
QUICK = PAPER.but(tasks=3, epochs=15, latent=20, features=100, hidden=100, lr=3e-3, init_var=exp(-8), draws=2,
                  coreset_epochs=10,
                  ll_draws=200, images=200, train_limit=1000, test_limit=100, seeds=2,
                  classifier_hidden=300, classifier_epochs=4)  # fmt: skip
SMOKE = QUICK.but(tasks=2, epochs=1, latent=3, features=8, hidden=8, coreset=5, coreset_epochs=1, ll_draws=5,
                  images=10, train_limit=60, test_limit=20, classifier_hidden=16, classifier_epochs=1)  # fmt: skip
# The 8x8 digits are 30 times fewer, with 64 pixels: a small network, a larger rate for 400 steps, and a larger initial
# variance (from e^-12, the shared part stays as the first task left it, and later tasks suffer).
DIGITS = PAPER.but(epochs=150, latent=10, features=50, hidden=50, lr=1e-2, init_var=exp(-8),
                   coreset=10, coreset_epochs=50, ll_draws=1000, classifier_hidden=200,
                   classifier_epochs=60)  # fmt: skip

GRID = (1.0, 10.0, 100.0)


def stream(data: Arrays, s: OneClassEach, rng: Rng) -> Stream:
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
        train = part(data.train_x, data.train_y, number, s.train_limit, 1 - s.validation)
        return Task(name, train, part(data.test_x, data.test_y, number, s.test_limit, 1.0), {name: pixels})

    return reordered(Stream(s.tasks, tuple(data.train_x.shape[1:]), make), s.order)


LONGER: dict[str, dict[str, Any]] = {"si": {"epochs": 400}}
"""SI is trained twice as long, as the authors did."""

GENERATIVE_MNIST = Experiment(
    name="generative-mnist",
    about="a generator of one MNIST digit a task",
    dataset="mnist",
    presets={"paper": PAPER.but(LONGER), "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    model=vae,
    evaluation=GENERATION,
    models="generators",
    grids={"ewc": GRID, "lp": GRID, "si": GRID},
)
GENERATIVE_NOTMNIST = GENERATIVE_MNIST._replace(
    name="generative-notmnist",
    about="a generator of one notMNIST letter a task (the small set)",
    dataset="notmnist",
    presets={"paper": PAPER.but(epochs=400), "quick": QUICK, "smoke": SMOKE},
)
GENERATIVE_DIGITS = GENERATIVE_MNIST._replace(
    name="generative-digits",
    about="a generator of one 8x8 digit a task",
    dataset="digits",
    presets={
        "paper": DIGITS,
        "quick": DIGITS.but(tasks=5, epochs=100, draws=3, ll_draws=300, images=200, seeds=2),
        "smoke": SMOKE,
    },
)
