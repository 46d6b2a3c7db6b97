"""Metrics of a generator: the test log-likelihood, and a classifier's uncertainty about generated images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Annotated, NamedTuple

from torch import Tensor

from vcl.data import Data
from vcl.fitting.journal import kept
from vcl.lab.evaluation import Evaluation, EvaluationContext, PreparationContext, Score, TableFormat
from vcl.lab.generative.artifacts import decoders, samples
from vcl.lab.generative.classifier import LAYERS, Classifier, Training, classifier
from vcl.lab.results import Row, averaged_over, final_score, matrix, methods, summarise
from vcl.lab.settings import Count, Limit, Repeats
from vcl.ops.rng import Rng
from vcl.predicting.generation import classifier_uncertainty, generate, log_marginal
from vcl.recursion import Task

LIKELIHOOD, DRAWN, UNCERTAINTY = "log likelihood", "log likelihood, weights drawn", "classifier uncertainty"


class Judge(NamedTuple):
    """The classifier and the names of its classes; each task is one of them."""

    classifier: Classifier
    classes: tuple[str, ...]


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of the metrics of a generator, and of the classifier that judges its images."""

    ll_draws: Annotated[Repeats, "draws of z for the test log-likelihood"] = 5000
    ll_drawn: Annotated[
        int, Limit(0, 10**6, "give a number of draws from 0 (none) to 1,000,000"), "as many again with weights drawn"
    ] = 0
    images: Annotated[Count, "images generated for the classifier"] = 1000
    classifier_hidden: Annotated[Count, "units of the classifier's hidden layers"] = 1000
    classifier_epochs: Annotated[Repeats, "passes over all data that train the classifier"] = 20


def prepare(context: PreparationContext) -> Judge:
    """The classifier of this dataset, with its classes."""
    how = Training(context.prediction.classifier_hidden, context.prediction.classifier_epochs)
    return Judge(classifier(context, how), context.data.classes)


def depends_on(prepared: Judge) -> Mapping[str, str]:
    """The classifier's checksum, since the numbers depend on its weights."""
    return {"classifier": prepared.classifier.checksum}


def evaluate(context: EvaluationContext) -> list[Row]:
    """Rows of all metrics for every task so far."""
    rows: list[Row] = []
    for number, task, test in context.tested():
        rng = context.rng.at("evaluate", context.state.t, number)
        like = context.state.propagated.mean
        measured = kept(context.report, "evaluation", rng, like, partial(measure, context, task, test, rng))
        for metric in (name for name in (LIKELIHOOD, DRAWN, UNCERTAINTY) if name in measured):
            values = measured[metric]
            context.require_finite(values.isfinite(), f"the {metric} of task {number} ({task.name}) is")
            rows += context.rows(number, metric, values)
    return rows


def measure(context: EvaluationContext, task: Task, test: Data, rng: Rng) -> dict[str, Tensor]:
    """Every metric of one task, each [R]."""
    s, judge = context.prediction, context.prepared
    chunk = 20_000 if context.device.type == "cpu" else 400_000
    (source,) = test.sources
    belief, x = context.belief(source.head), test.x
    measured = {LIKELIHOOD: log_marginal(belief, context.model, x, source.head, rng, s.ll_draws, chunk=chunk).mean(1)}
    if s.ll_drawn:
        at = rng.at("drawn")
        drawn = log_marginal(belief, context.model, x, source.head, at, s.ll_drawn, "drawn", chunk=chunk)
        measured[DRAWN] = drawn.mean(1)
    images = generate(belief, context.model, source.head, s.images, rng.at("images"))
    log_probs = judge.classifier.log_probs(images.float())
    measured[UNCERTAINTY] = classifier_uncertainty(log_probs, judge.classes.index(task.name))
    return measured


def memory(s: GenerationSettings, shape: tuple[int, ...], runs: int) -> int:
    """Bytes of the classifier in training (weights, gradient, Adam's moments) or of the images it judges, if more."""
    pixels, hidden = prod(shape), s.classifier_hidden
    trained = 4 * hidden * (pixels + (LAYERS - 1) * hidden)
    return 4 * max(trained, runs * s.images * 2 * (pixels + hidden))


def columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """The column heads of :func:`cells`."""
    drawn = ("weights drawn",) if _drawn(rows) else ()
    return "method", "log-likelihood", *drawn, "when just learned", "uncertainty"


def _drawn(rows: Sequence[Row]) -> bool:
    return any(row.metric == DRAWN for row in rows)


def cells(rows: Sequence[Row], paper: Mapping[str, float]) -> list[tuple[str, ...]]:
    """One line per method: mean and standard error over seeds, after the last task."""
    lines: list[tuple[str, ...]] = []
    for name in methods(rows):
        diagonal = matrix(rows, name, LIKELIHOOD).diagonal(dim1=1, dim2=2).nanmean(-1)
        lines.append(
            (
                name,
                final_score(rows, name, LIKELIHOOD).text(1),
                *((final_score(rows, name, DRAWN).text(1),) if _drawn(rows) else ()),
                summarise(diagonal).text(1),
                final_score(rows, name, UNCERTAINTY).text(2),
            )
        )
    return lines


def explain(rows: Sequence[Row], paper: Mapping[str, float]) -> str:
    """The note below a table: what its numbers are."""
    return (
        f"{averaged_over(rows)} "
        "Log-likelihoods are of test images in nats, by importance sampling at the posterior's mean weights"
        f"{', and averaged over drawn ones' if _drawn(rows) else ''}; "
        "uncertainty is a classifier's -log p(task | image) over generated images, 0 being sure."
    )


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """Draw both metrics against tasks; returns the files."""
    from vcl.lab.figures import generator_metrics

    return generator_metrics.draw(rows, title, path / "generators")


GENERATION = Evaluation(
    evaluate=evaluate,
    score=Score(LIKELIHOOD, "mean test log-likelihood", 1.0, " nats"),
    table=TableFormat(columns, cells, explain),
    draw=draw,
    prepare=prepare,
    depends_on=depends_on,
    memory=memory,
    samples=samples,
    keep=decoders,
)
