"""Class-incremental learning without memory: a generator for each class; beside it, one head over all classes.

The generators are those of section 6.2: a VAE per class whose decoders share their upper part, which has a posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import exp
from typing import Annotated, Any

from torch import Tensor

from vcl.data import Data, concat, dataset
from vcl.lab.class_incremental import GENERATORS, ONE_HEAD, ClassPrediction
from vcl.lab.classification import Prediction
from vcl.lab.experiments import split
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup, check_order
from vcl.lab.experiments.split import Order, Split, Tasks, TestLimit, TrainLimit
from vcl.lab.generative.network import VaeSettings, vae
from vcl.lab.networks import Mlp
from vcl.lab.settings import Count
from vcl.lab.streams import Arrays, Stream, limited, reordered
from vcl.lab.streams import split as split_stream
from vcl.ops.rng import Rng
from vcl.recursion import Task


@dataclass(frozen=True)
class ClassIncremental:
    """A few classes a task."""

    tasks: Annotated[Tasks | None, "tasks; none takes as many as the classes make"] = None
    classes: Annotated[Count, "classes of a task, learned together"] = 1
    order: Order = ()
    train_limit: TrainLimit = None
    test_limit: TestLimit = None

    def check(self) -> None:
        """The order names each task once."""
        if self.tasks is not None:
            check_order(self.order, self.tasks)


def groups(data: Arrays, s: ClassIncremental) -> list[tuple[int, ...]]:
    """The classes of each task, in the dataset's order."""
    made = split.groups(len(data.classes), Split(s.tasks, s.classes))
    check_order(s.order, len(made))
    return made


def stream_of_head(data: Arrays, s: ClassIncremental, rng: Rng) -> Stream:
    """All tasks with one head over all classes."""
    found = split_stream(data, groups(data, s), len(rng.seeds), True, s.train_limit, s.test_limit)
    return reordered(found, s.order)


def stream(data: Arrays, s: ClassIncremental, rng: Rng) -> Stream:
    """Each class with a generator; labels are places among the classes, and only the evaluation reads them."""
    made = groups(data, s)
    runs, pixels = len(rng.seeds), data.train_x[0].numel()

    def part(x: Tensor, y: Tensor, group: tuple[int, ...], task: str, most: int | None) -> Data:
        parts = []
        for place, label in enumerate(group):
            mine = (y == label).nonzero()[:, 0]
            # As many of each class; the first ones have one more where the limit does not divide.
            share = None if most is None else most // len(group) + (place < most % len(group))
            parts.append(dataset(*limited(x[mine], y[mine], share), task, data.classes[label], runs))
        return reduce(concat, parts)

    def make(number: int) -> Task:
        group = made[number]
        name = "/".join(data.classes[label] for label in group)
        train = part(data.train_x, data.train_y, group, name, s.train_limit)
        test = part(data.test_x, data.test_y, group, name, s.test_limit)
        return Task(name, train, test, {data.classes[label]: pixels for label in group})

    return reordered(Stream(len(made), tuple(data.train_x.shape[1:]), make), s.order)


GRID = (1.0, 10.0, 100.0)

# A larger rate and fewer passes than for images to look at: a class is told by its log-likelihood.
PAPER = Setup(
    ClassIncremental(), VaeSettings(), ClassPrediction(), RunSettings(10), {"epochs": 20, "batch": 50, "lr": 1e-3},
)  # fmt: skip
# Many small steps: an encoder and half a decoder start anew with each class.
QUICK = PAPER.but(latent=20, features=100, hidden=100, epochs=20, batch=20, lr=3e-3, schedule="cosine",
                  init_var=exp(-8), draws=2, coreset_epochs=10, train_limit=1_000, test_limit=100, seeds=2)  # fmt: skip
SMOKE = QUICK.but(tasks=2, epochs=1, latent=3, features=8, hidden=8, coreset=5, coreset_epochs=1, z_draws=5,
                  train_limit=60, test_limit=20)  # fmt: skip
# As for the generators of the 8x8 digits (generative.py), with a decayed rate.
DIGITS = PAPER.but(latent=10, features=50, hidden=50, epochs=150, lr=1e-2, schedule="cosine", init_var=exp(-8), draws=3,
                   coreset=10, coreset_epochs=50)  # fmt: skip

# One head over all classes, trained on the same tasks; a coreset is what it can remember them by.
HEAD_PAPER = Setup(
    ClassIncremental(), Mlp((256, 256)), Prediction(), RunSettings(10),
    {"epochs": 20, "batch": 256, "coreset": 200, "coreset_epochs": 100, "coreset_batch": 256},
)  # fmt: skip
HEAD_QUICK = HEAD_PAPER.but(epochs=10, coreset_epochs=50, draws=2, estimator="local", predict_draws=20,
                            predict_estimator="local", train_limit=1_000, test_limit=100, seeds=2)  # fmt: skip
HEAD_SMOKE = HEAD_QUICK.but(tasks=2, hidden=(20,), epochs=1, coreset=10, coreset_epochs=2, predict_draws=3,
                            train_limit=60, test_limit=20)  # fmt: skip
HEAD_DIGITS = HEAD_PAPER.but(hidden=(100,), epochs=60, batch=64, lr=5e-3, coreset=10, coreset_epochs=200)


def generators(name: str, of: str, presets: dict[Any, Setup]) -> Experiment:
    """The experiment on a dataset, by generators."""
    return Experiment(
        name=f"class-incremental-{name}",
        about=f"{of} one class a task, told apart by a generator for each class, without memory",
        dataset=name,
        presets=presets,
        stream=stream,
        model=vae,
        evaluation=GENERATORS,
        models="generators",
        grids={"ewc": GRID, "lp": GRID, "si": GRID},
    )


def one_head(name: str, of: str, presets: dict[Any, Setup]) -> Experiment:
    """The experiment on a dataset, by networks that classify."""
    return Experiment(
        name=f"single-head-{name}",
        about=f"{of} one class a task, one head over all: the discriminative counterpart of class-incremental-{name}",
        dataset=name,
        presets=presets,
        stream=stream_of_head,
        evaluation=ONE_HEAD,
    )


CLASS_INCREMENTAL_MNIST = generators("mnist", "MNIST", {"paper": PAPER, "quick": QUICK, "smoke": SMOKE})
CLASS_INCREMENTAL_NOTMNIST = generators(
    "notmnist", "notMNIST (small)", {"paper": PAPER.but(epochs=40), "quick": QUICK, "smoke": SMOKE}
)
CLASS_INCREMENTAL_DIGITS = generators(
    "digits", "8x8 digits", {"paper": DIGITS, "quick": DIGITS.but(epochs=100, draws=2, seeds=2), "smoke": SMOKE}
)
HEAD_PRESETS: dict[Any, Setup] = {"paper": HEAD_PAPER, "quick": HEAD_QUICK, "smoke": HEAD_SMOKE}
SINGLE_HEAD_MNIST = one_head("mnist", "MNIST", HEAD_PRESETS)
SINGLE_HEAD_NOTMNIST = one_head("notmnist", "notMNIST (small)", HEAD_PRESETS)
SINGLE_HEAD_DIGITS = one_head(
    "digits",
    "8x8 digits",
    {
        "paper": HEAD_DIGITS,
        "quick": HEAD_DIGITS.but(epochs=30, draws=2, estimator="local", predict_draws=20, seeds=2),
        "smoke": HEAD_SMOKE,
    },
)
