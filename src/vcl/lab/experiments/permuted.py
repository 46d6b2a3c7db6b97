"""Permuted streams: the inputs of a dataset under a new permutation for each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vcl.lab.classification import Prediction
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup, check_order
from vcl.lab.experiments.split import Order, Tasks, TestLimit, TrainLimit
from vcl.lab.networks import Mlp
from vcl.lab.streams import Arrays, Stream, reordered
from vcl.lab.streams import permuted as permuted_stream
from vcl.ops.rng import Rng


@dataclass(frozen=True)
class Permuted:
    """A permutation of the inputs for each task and run."""

    tasks: Annotated[Tasks, "tasks"] = 10
    order: Order = ()
    train_limit: TrainLimit = None
    test_limit: TestLimit = None

    def check(self) -> None:
        """The order names each task once."""
        check_order(self.order, self.tasks)


def stream(data: Arrays, s: Permuted, rng: Rng) -> Stream:
    """A permutation of the pixels per task and run; one head of all classes."""
    return reordered(permuted_stream(data, s.tasks, rng, s.train_limit, s.test_limit), s.order)


PAPER = Setup(
    Permuted(10), Mlp((100, 100)), Prediction(), RunSettings(10),
    {"epochs": 100, "batch": 256, "coreset": 200, "coreset_epochs": 100, "coreset_batch": 256},
)  # fmt: skip
QUICK = PAPER.but(tasks=4, epochs=10, draws=2, estimator="local", coreset_epochs=50, predict_draws=20,
                  predict_estimator="local", train_limit=10_000, test_limit=2_000, seeds=3)  # fmt: skip
SMOKE = QUICK.but(tasks=2, hidden=(20,), epochs=1, coreset=20, coreset_epochs=2, predict_draws=3, train_limit=500,
                  test_limit=200, seeds=2)  # fmt: skip

PERMUTED = Experiment(
    name="permuted",
    about="any dataset (--dataset) under a new permutation of its inputs each task, one head",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
)
