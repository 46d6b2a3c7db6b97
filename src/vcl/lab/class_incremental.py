"""Class-incremental learning: which class of all that were met, told by generators or by one head over all classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from vcl.lab import classification, tables
from vcl.lab.classification import ACCURACY, measured
from vcl.lab.evaluation import Evaluation, EvaluationContext, PreparationContext, TableFormat
from vcl.lab.generative.artifacts import decoders, samples
from vcl.lab.results import Row, final_score, methods
from vcl.lab.settings import Limit, Repeats
from vcl.predicting.generative_classifier import class_log_marginals, classify

SIZE = "parameters a class"


@dataclass(frozen=True)
class ClassPrediction:
    """p(y | x) from log p(x | y) of each class, by importance sampling; all classes are alike beforehand."""

    z_draws: Annotated[Repeats, "draws of z for log p(x | y) of each image and class"] = 50
    theta_draws: Annotated[
        int,
        Limit(0, 10**6, "give a number of draws from 0 (none) to 1,000,000"),
        "draws of the weights that these are divided among; 0 takes the posterior's mean",
    ] = 0


def names_of_classes(context: PreparationContext) -> tuple[str, ...]:
    """The names of the classes: a label is a place among them, a generator's head is a name."""
    return context.data.classes


def evaluate(context: EvaluationContext) -> list[Row]:
    """Every metric on the test data of every task so far, among all classes met so far."""
    s, heads, rows = context.prediction, list(context.state.heads), list[Row]()
    drawn = s.theta_draws if context.entry.draws else 0
    place = torch.zeros(len(context.prepared), dtype=torch.int64, device=context.device)
    for at, head in enumerate(heads):
        place[context.prepared.index(head)] = at
    for number, task, test in context.tested():
        found = class_log_marginals(
            context.state,
            context.model,
            test.x,
            heads,
            context.rng.at("evaluate", context.state.t, number),
            s.z_draws,
            "drawn" if drawn else "mean",
            max(1, drawn),
        )
        context.require_finite(
            found.isfinite().flatten(1).all(1), f"the log p(x | y) on task {number} ({task.name}) are"
        )
        rows += measured(context, number, classify(found), place[test.y])
    return rows + sizes(context, len(heads))


def evaluate_head(context: EvaluationContext) -> list[Row]:
    """The metrics of classification by one head, which has all classes from the start."""
    met = torch.unique(torch.cat([test.y[0] for _, _, test in context.tested()])).numel()
    return classification.evaluate(context) + sizes(context, met)


def sizes(context: EvaluationContext, classes: int) -> list[Row]:
    """The weights of the model, points and means, for each class met so far."""
    size = torch.full((len(context.runs),), context.state.propagated.layout.size / classes, dtype=torch.float64)
    return [row for number, _, _ in context.tested() for row in context.rows(number, SIZE, size)]


def columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns of classification, and the size."""
    return *tables.COLUMNS, SIZE


def cells(rows: Sequence[Row], paper: Mapping[str, float]) -> list[tuple[str, ...]]:
    """One line per method."""
    known = zip(tables.cells(rows, paper), methods(rows), strict=True)
    return [(*line, f"{final_score(rows, name, SIZE).mean:,.0f}") for line, name in known]


def explain(rows: Sequence[Row], paper: Mapping[str, float]) -> str:
    """The note below a table."""
    return (
        f"{tables.explain(rows, paper)} An answer is one of all classes met so far. Parameters are weights (means and "
        "points, not variances); seconds are of all seeds and lambdas of a line together, fits and evaluations."
    )


TABLE = TableFormat(columns, cells, explain, seconds=True)
GENERATORS = Evaluation(
    evaluate=evaluate,
    score=ACCURACY,
    table=TABLE,
    draw=classification.draw,
    unused_at_mean=("theta_draws",),
    prepare=names_of_classes,
    samples=samples,
    keep=decoders,
)
ONE_HEAD = classification.CLASSIFICATION._replace(evaluate=evaluate_head, table=TABLE)
