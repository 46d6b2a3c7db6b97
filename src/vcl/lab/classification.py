"""Classification: class probabilities on every task so far, and what is measured of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from torch import Tensor

from vcl.lab import tables
from vcl.lab.evaluation import Evaluation, EvaluationContext, Score, TableFormat
from vcl.lab.methods.fits import Estimator
from vcl.lab.results import Confidence, Row
from vcl.lab.settings import Repeats
from vcl.predicting.metrics import accuracy, brier, calibration_error, log_predictive, reliability
from vcl.predicting.prediction import predict

METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "log predictive": log_predictive,
    "calibration error": calibration_error,
    "Brier score": brier,
}
PANELS = 12
"""More tasks than this have no panel each."""

ACCURACY = Score("accuracy", "average accuracy", 100, " %")


@dataclass(frozen=True)
class Prediction:
    """p(y* | x*, D_{1:t}) by draws of the posterior."""

    predict_draws: Annotated[Repeats, "draws of theta that a prediction averages over"] = 100
    predict_estimator: Annotated[Estimator, "local reparameterisation, or drawn weights"] = "weights"


def probabilities(context: EvaluationContext, x: Tensor, head: str, number: int) -> Tensor:
    """What the likelihood expects at inputs x [R, N, ...] of a task: [R, N, ...], averaged over draws of q_t."""
    s = context.prediction
    return predict(
        context.belief(head),
        context.model,
        x,
        head,
        context.rng.at("evaluate", context.state.t, number),
        s.predict_draws if context.entry.draws else 1,
        s.predict_estimator,
    )


def evaluate(context: EvaluationContext) -> list[Row]:
    """Every metric on the test data of every task so far, with the predictive posterior of its head."""
    rows = []
    for number, task, test in context.tested():
        (source,) = test.sources
        found = probabilities(context, test.x, source.head, number)
        # The argmax of NaN would pass for an accuracy.
        context.require_finite(
            found.isfinite().flatten(1).all(1), f"the predictions on task {number} ({task.name}) are"
        )
        rows += measured(context, number, found, test.y.to(found.device))
    return rows


def measured(context: EvaluationContext, number: int, probabilities: Tensor, y: Tensor) -> list[Row]:
    """The rows of every metric of predictions on a task; their confidences are kept beside them."""
    bins = reliability(probabilities, y).tolist()
    context.confident([
        Confidence(run.label, run.seed, context.state.t, number, place, int(count), int(right), total / count)
        for run, mine in zip(context.runs, bins, strict=True)
        for place, (count, right, total) in enumerate(mine, start=1)
        if count
    ])  # fmt: skip
    return [
        row for metric, measure in METRICS.items() for row in context.rows(number, metric, measure(probabilities, y))
    ]


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """Average accuracy against tasks, and accuracy on each task as more are learned."""
    from vcl.lab.figures import average_accuracy, per_task

    made = average_accuracy.draw(rows, title, paper, path / "average-accuracy")
    tasks = [f"task {number + 1}" for number in range(max((row.on for row in rows), default=0))]
    if 1 < len(tasks) <= PANELS:
        made += per_task.draw(rows, title, paper, path / "accuracy-by-task", tasks)
    return made


CLASSIFICATION = Evaluation(
    evaluate=evaluate,
    score=ACCURACY,
    table=TableFormat(lambda rows: tables.COLUMNS, tables.cells, tables.explain),
    draw=draw,
    unused_at_mean=("predict_draws", "predict_estimator"),
)
