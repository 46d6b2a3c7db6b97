"""From an experiment and methods to rows: the recursion, and an evaluation after every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

from torch import Tensor

from vcl.errors import NonFiniteError
from vcl.lab.arithmetic import matrix_products
from vcl.lab.methods import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.results import Row
from vcl.lab.settings import Settings
from vcl.lab.streams import Arrays
from vcl.likelihood import Categorical
from vcl.metrics import accuracy, brier, calibration_error, log_predictive
from vcl.models import Network, mlp
from vcl.optimise import Report, silent
from vcl.prediction import predict
from vcl.projections import Point
from vcl.recursion import State, Task, initial, learn
from vcl.rng import Rng

METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "log predictive": log_predictive,
    "calibration error": calibration_error,
    "Brier score": brier,
}


class Done(NamedTuple):
    """One task learned by one method, for all runs."""

    method: str
    task: str
    number: int
    tasks: int
    seconds: float
    rows: list[Row]
    state: State[Any]
    """All that is needed to go on from here."""


def network(s: Settings, shape: tuple[int, ...]) -> Network:
    """The paper's network for inputs of this shape."""
    return Network(mlp(prod(shape), s.hidden), s.hidden[-1], Categorical(), s.prior_var)


def run_method(
    plan: Plan, entry: MethodEntry, data: Arrays, report: Report = silent, state: State[Any] | None = None
) -> Iterator[Done]:
    """Learn the stream with one method, all runs stacked, and evaluate on every task so far after each one.

    ``state`` is where an earlier run stopped; its tasks are not learned again, and the end is the same, bit for bit.
    """
    settings, runs = plan.settings_of(entry), plan.runs(entry)
    rng = Rng(tuple(run.seed for run in runs))
    stream = plan.experiment.stream(data.to(plan.device), settings, rng)
    model = network(settings, stream.shape)
    method = plan.build(entry)
    if state is None:
        state = initial(model, method, len(runs), plan.device)
    # Only the test data of old tasks is kept.
    met = [task._replace(train=task.train.empty()) for task in map(stream.make, range(state.t))]
    for number in range(state.t, stream.size):
        began = perf_counter()
        task = stream.make(number)
        met.append(task._replace(train=task.train.empty()))
        with matrix_products(settings.matmul):
            (state,) = learn(state, [task], model, method, rng, report)
            rows = evaluate(plan, entry, model, state, met, rng)
        yield Done(entry.name, task.name, state.t, stream.size, perf_counter() - began, rows, state)


def evaluate(plan: Plan, entry: MethodEntry, model: Network, state: State[Any], met: list[Task], rng: Rng) -> list[Row]:
    """Every metric on the test data of every task so far, with the predictive posterior of its head."""
    settings, runs = plan.settings_of(entry), plan.runs(entry)
    rows = []
    for number, task in enumerate(met, start=1):
        (source,) = task.test.sources
        belief = state.predictive[source.head]
        probabilities = predict(
            belief if entry.draws else Point(belief.layout, belief.mean),
            model,
            task.test.x,
            source.head,
            rng.at("evaluate", state.t, number),
            settings.predict_draws if entry.draws else 1,
            settings.predict_estimator,
            chunk=500_000 if plan.device.type == "cpu" else 20_000_000,
        )
        if not bool(probabilities.isfinite().all()):  # their argmax would pass for an accuracy
            raise NonFiniteError(
                f"task {state.t} ({met[-1].name}): the predictions on task {number} ({task.name}) are not finite; the "
                f"learning rate {settings.lr:g} is probably too large; lower it, or scale the inputs."
            )
        for metric, measure in METRICS.items():
            values = measure(probabilities, task.test.y.to(probabilities.device)).tolist()
            rows += [
                Row(run.label, run.seed, state.t, number, metric, value)
                for run, value in zip(runs, values, strict=True)
            ]
    return rows
