"""Split streams: the classes of a dataset as tasks of a few classes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from vcl.errors import VclError
from vcl.lab.classification import Prediction
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup, check_order
from vcl.lab.networks import Mlp
from vcl.lab.settings import Count, Limit
from vcl.lab.streams import Arrays, Stream, reordered
from vcl.lab.streams import split as split_stream
from vcl.ops.rng import Rng

Tasks = Annotated[int, Limit(1, 10**4)]
Order = Annotated[tuple[int, ...], "the order of the tasks, by their numbers from 0; none is the given one"]
TrainLimit = Annotated[Count | None, "training examples of a task, balanced over its classes; none takes all"]
TestLimit = Annotated[Count | None, "test examples of a task, balanced over its classes; none takes all"]


@dataclass(frozen=True)
class Split:
    """Tasks of a few classes each."""

    tasks: Annotated[Tasks | None, "tasks; none takes as many as the classes make"] = None
    classes: Annotated[Count, "classes of a task"] = 2
    pairing: Annotated[
        Literal["neighbours", "halves"], "0/1, 2/3, … or, of ten classes, 0/5, 1/6, … with two a task"
    ] = "neighbours"
    heads: Annotated[
        Literal["multi", "single", "shared"],
        "a head for each task, one over all classes, or one whose outputs all tasks share",
    ] = "multi"
    order: Order = ()
    train_limit: TrainLimit = None
    test_limit: TestLimit = None

    def check(self) -> None:
        """The order names each task once."""
        if self.tasks is not None:
            check_order(self.order, self.tasks)


def groups(total: int, s: Split) -> list[tuple[int, ...]]:
    """The classes of each task."""
    most = total // s.classes
    if s.classes > total:
        raise VclError(f"classes is {s.classes}; the dataset has {total}: give at most {total}.")
    if (s.tasks or 1) > most:
        raise VclError(
            f"tasks is {s.tasks}; {total} classes make at most {most} tasks of {s.classes}: give fewer tasks, or "
            "fewer classes a task."
        )
    step = (1, s.classes) if s.pairing == "neighbours" else (most, 1)
    made = [tuple(task * step[1] + place * step[0] for place in range(s.classes)) for task in range(most)]
    return made[: s.tasks or most]


def stream(data: Arrays, s: Split, rng: Rng) -> Stream:
    """Each task with a head of its own, or all with one: over all classes, or of the outputs that they share."""
    made = groups(len(data.classes), s)
    check_order(s.order, len(made))
    found = split_stream(
        data, made, len(rng.seeds), s.heads == "single", s.train_limit, s.test_limit, s.heads == "shared"
    )
    return reordered(found, s.order)


# A dataset of any size: two hidden layers, and as many steps as small tasks need.
PAPER = Setup(
    Split(), Mlp((256, 256)), Prediction(), RunSettings(10),
    {"epochs": 60, "batch": 256, "coreset": 40, "coreset_epochs": 120, "coreset_batch": None, "predictive": "per-head"},
)  # fmt: skip
QUICK = PAPER.but(epochs=10, coreset_epochs=60, draws=2, estimator="local", predict_draws=20, predict_estimator="local",
                  train_limit=6_000, test_limit=1_000, seeds=3)  # fmt: skip
SMOKE = QUICK.but(tasks=2, hidden=(20,), epochs=2, coreset=10, coreset_epochs=2, predict_draws=3, train_limit=200,
                  test_limit=100, seeds=2)  # fmt: skip

SPLIT = Experiment(
    name="split",
    about="any dataset (--dataset) as tasks of two classes, one head each",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
)
