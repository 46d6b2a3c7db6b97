"""To classify: the paper's networks, and their predictions on every task so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

from torch import Tensor

from vcl.beliefs.point import Point
from vcl.errors import NonFiniteError, too_fast
from vcl.lab import tables
from vcl.lab.kind import ACCURACY, EvaluationContext, Kind, TableFormat
from vcl.lab.methods import METHODS
from vcl.lab.results import Row
from vcl.lab.settings import Settings
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.predicting.metrics import accuracy, brier, calibration_error, log_predictive
from vcl.predicting.prediction import predict

METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "log predictive": log_predictive,
    "calibration error": calibration_error,
    "Brier score": brier,
}


def network(s: Settings, shape: tuple[int, ...]) -> Network:
    """The paper's network for inputs of this shape."""
    return Network(mlp(prod(shape), s.hidden), s.hidden[-1], Categorical(), s.prior_var)


def evaluate(context: EvaluationContext) -> list[Row]:
    """Every metric on the test data of every task so far, with the predictive posterior of its head."""
    settings, entry, state = context.settings, context.entry, context.state
    rows = []
    for number, task, test in context.tested():
        (source,) = test.sources
        belief = state.predictive[source.head]
        probabilities = predict(
            belief if entry.draws else Point(belief.layout, belief.mean),
            context.model,
            test.x,
            source.head,
            context.rng.at("evaluate", state.t, number),
            settings.predict_draws if entry.draws else 1,
            settings.predict_estimator,
        )
        fine = probabilities.isfinite().flatten(1).all(1)
        if not bool(fine.all()):  # their argmax would pass for an accuracy
            why = f"the predictions on task {number} ({task.name}) are not finite; {too_fast(settings.lr)}"
            bad = (~fine).nonzero()[:, 0].tolist()
            raise NonFiniteError(f"task {state.t} ({context.met[-1].name}): {why}", bad, why)
        for metric, measure in METRICS.items():
            values = measure(probabilities, test.y.to(probabilities.device)).tolist()
            rows += [
                Row(run.label, run.seed, state.t, number, metric, value)
                for run, value in zip(context.runs, values, strict=True)
            ]
    return rows


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """Average accuracy against tasks."""
    from vcl.lab.figures import average_accuracy

    return average_accuracy.draw(rows, title, paper, path / "average-accuracy")


DISCRIMINATIVE = Kind(
    methods=METHODS,
    model=network,
    evaluate=evaluate,
    score=ACCURACY,
    table=TableFormat(lambda rows: tables.COLUMNS, tables.cells, tables.explain),
    draw=draw,
    stream=("tasks", "heads", "order", "train_limit", "test_limit"),
    network=("hidden", "prior_var"),
    prediction=lambda entry: ("predict_draws", "predict_estimator") if entry.draws else (),
)
