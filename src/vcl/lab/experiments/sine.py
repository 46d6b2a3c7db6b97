"""Regression: a sine learned interval after interval by one head, with predictive mean, deviation and coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, pi, prod
from pathlib import Path
from typing import Annotated

import torch

from vcl.data import Data, Source
from vcl.lab.classification import Prediction, probabilities
from vcl.lab.evaluation import Evaluation, EvaluationContext, Score, TableFormat
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup, check_order
from vcl.lab.experiments.split import Order, Tasks
from vcl.lab.results import Row, averaged_over, final_score, forgotten, methods
from vcl.lab.settings import Deviation, Layers, Limit, Variance
from vcl.lab.streams import SHARED, Stream, reordered
from vcl.models import Network, Normal, mlp
from vcl.ops.rng import Rng
from vcl.recursion import Task

WIDTH = 4.0
"""Inputs are from -WIDTH to WIDTH."""


@dataclass(frozen=True)
class Intervals:
    """y = sin(2 x) + noise, each task an interval of x."""

    tasks: Annotated[Tasks, "tasks, each one interval of x"] = 4
    examples: Annotated[int, Limit(1, 10**6), "training examples of a task; as many test it"] = 200
    data_noise: Annotated[Deviation, "standard deviation of the noise in y"] = 0.1
    order: Order = ()

    def check(self) -> None:
        """The order names each task once."""
        check_order(self.order, self.tasks)


@dataclass(frozen=True)
class Regressor:
    """A multi-layer perceptron with Gaussian noise."""

    hidden: Annotated[Layers, "units of each hidden layer"] = (50,)
    prior_var: Annotated[Variance, "variance of the prior of every weight"] = 1.0
    noise: Annotated[Deviation, "standard deviation of the likelihood"] = 0.1


def stream(data: None, s: Intervals, rng: Rng) -> Stream:
    """Each run has data of its own."""
    side = 2 * WIDTH / s.tasks

    def part(number: int, kind: str) -> Data:
        at = rng.at("sine", kind, number)
        x = at.per_run(lambda g: torch.rand(s.examples, 1, generator=g)) * side - WIDTH + number * side
        y = torch.sin(2 * x[..., 0]) + s.data_noise * at.at("noise").per_run(
            lambda g: torch.randn(s.examples, generator=g)
        )
        source = torch.zeros(y.shape, dtype=torch.int64)
        return Data(x, y, source, (Source(f"interval {number + 1}", SHARED),))

    def make(number: int) -> Task:
        return Task(f"interval {number + 1}", part(number, "train"), part(number, "test"), {SHARED: 1})

    return reordered(Stream(s.tasks, (1,), make), s.order)


def model(s: Regressor, shape: tuple[int, ...]) -> Network:
    """The network for inputs of this shape."""
    return Network(mlp(prod(shape), s.hidden), s.hidden[-1], Normal(s.noise), s.prior_var)


LIKELIHOOD, RMSE, COVERAGE = "log predictive", "RMSE", "90 % coverage"
REACH = 1.6449
"""Deviations around the mean within which a normal variable lies with probability 0.9."""


def evaluate(context: EvaluationContext) -> list[Row]:
    """Log predictive density of a normal with the predictive moments, RMSE, and coverage of the 90 % interval."""
    rows = []
    for number, task, test in context.tested():
        (source,) = test.sources
        mean, var = Normal.moments(probabilities(context, test.x, source.head, number))
        error = test.y.to(mean.device)[..., None] - mean
        context.require_finite(
            error.isfinite().flatten(1).all(1), f"the predictions on task {number} ({task.name}) are"
        )
        density = -0.5 * (error.square() / var + var.log() + log(2 * pi))
        inside = (error.abs() <= REACH * var.sqrt()).double()
        for metric, values in ((LIKELIHOOD, density), (COVERAGE, inside)):
            rows += context.rows(number, metric, values.flatten(1).mean(1))
        rows += context.rows(number, RMSE, error.square().flatten(1).mean(1).sqrt())
    return rows


COLUMNS = ("method", LIKELIHOOD, "forgetting", RMSE, COVERAGE)


def cells(rows: Sequence[Row], paper: Mapping[str, float]) -> list[tuple[str, ...]]:
    """One line per method: mean and standard error over seeds after the last task."""
    return [
        (
            name,
            final_score(rows, name, LIKELIHOOD).text(),
            forgotten(rows, name, LIKELIHOOD).text(),
            final_score(rows, name, RMSE).text(),
            final_score(rows, name, COVERAGE).text(),
        )
        for name in methods(rows)
    ]


def explain(rows: Sequence[Row], paper: Mapping[str, float]) -> str:
    """What the numbers of a table are."""
    return (
        f"{averaged_over(rows)} "
        "Log predictive is in nats an example. Coverage is the share of test targets in the 90 % predictive interval."
    )


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """RMSE on each task as more are learned."""
    from vcl.lab.figures.generator_metrics import Measure, picture
    from vcl.lab.figures.style import save

    return save(picture(rows, title, Measure(RMSE, "RMSE (lower is better)", RMSE, up=False)), path / "rmse")


REGRESSION = Evaluation(
    evaluate=evaluate,
    score=Score(LIKELIHOOD, "log predictive", 1.0, " nats"),
    table=TableFormat(lambda rows: COLUMNS, cells, explain),
    draw=draw,
    unused_at_mean=("predict_draws", "predict_estimator"),
)
PAPER = Setup(
    Intervals(), Regressor(), Prediction(), RunSettings(10),
    {"epochs": 200, "batch": 50, "lr": 1e-2, "coreset": 20, "coreset_epochs": 200, "coreset_batch": None},
    {"ewc": {"lam": 10.0}, "si": {"lam": 1.0}},
)  # fmt: skip
QUICK = PAPER.but(epochs=100, coreset_epochs=100, draws=3, predict_draws=50, seeds=3)
SMOKE = QUICK.but(tasks=2, hidden=(8,), epochs=2, coreset=5, coreset_epochs=2, predict_draws=3, examples=20, seeds=2)

SINE = Experiment(
    name="sine",
    about="regression: a noisy sine, one interval of x a task, one head",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    makes_data=True,
    model=model,
    evaluation=REGRESSION,
)
