"""What is measured of a generator: how probable it finds test images, and whether a classifier knows what it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from vcl.beliefs.point import Point
from vcl.errors import NonFiniteError, too_fast
from vcl.lab.datasets.data_folders import cache
from vcl.lab.generative.artifacts import generators, samples
from vcl.lab.generative.classifier import LAYERS, Classifier, Training, classifier
from vcl.lab.generative.methods import GENERATIVE_METHODS
from vcl.lab.generative.settings import GenerativeSettings
from vcl.lab.kind import EvaluationContext, Kind, PreparationContext, Score, TableFormat
from vcl.lab.results import Row, Summary, final_score, matrix, methods, summarise
from vcl.models.vae import Vae, mlp_vae
from vcl.predicting.generation import classifier_uncertainty, generate, log_marginal

LIKELIHOOD, DRAWN, UNCERTAINTY = "log likelihood", "log likelihood, weights drawn", "classifier uncertainty"


class Judge(NamedTuple):
    """The classifier, and which of its classes each task is."""

    classifier: Classifier
    classes: tuple[str, ...]


def model(s: GenerativeSettings, shape: tuple[int, ...]) -> Vae:
    """The paper's VAE for images of this shape."""
    return mlp_vae(
        prod(shape),
        s.latent,
        s.features,
        s.hidden,
        private=s.private,
        shared_encoder=s.encoder == "shared",
        head_kl=s.head_kl == "yes",
        prior_var=s.prior_var,
    )


def prepare(context: PreparationContext) -> Judge:
    """The classifier of these data."""
    how = Training(context.settings.classifier_hidden, context.settings.classifier_epochs)
    found = classifier(context.data, context.digest(), how, context.device, cache(), context.say)
    return Judge(found, context.data.classes)


def evaluate(context: EvaluationContext) -> list[Row]:
    """Both metrics for every task so far."""
    s, state, judge = context.settings, context.state, context.prepared
    chunk = 20_000 if context.device.type == "cpu" else 400_000
    rows: list[Row] = []
    for number, task, test in context.tested():
        (source,) = test.sources
        belief, rng = state.predictive[source.head], context.rng.at("evaluate", state.t, number)
        belief = belief if context.entry.draws else Point(belief.layout, belief.mean)
        x = test.x
        measured = {
            LIKELIHOOD: log_marginal(belief, context.model, x, source.head, rng, s.ll_draws, chunk=chunk).mean(1)
        }
        if s.ll_drawn:
            at = rng.at("drawn")
            drawn = log_marginal(belief, context.model, x, source.head, at, s.ll_drawn, "drawn", chunk=chunk)
            measured[DRAWN] = drawn.mean(1)
        images = generate(belief, context.model, source.head, s.images, rng.at("images"))
        log_probs = judge.classifier.log_probs(images.float())
        measured[UNCERTAINTY] = classifier_uncertainty(log_probs, judge.classes.index(task.name))
        for metric, values in measured.items():
            if not bool(values.isfinite().all()):
                why = f"the {metric} of task {number} ({task.name}) is not finite; {too_fast(s.lr)}"
                bad = (~values.isfinite()).nonzero()[:, 0].tolist()
                raise NonFiniteError(f"task {state.t} ({context.met[-1].name}): {why}", bad, why)
            rows += [
                Row(run.label, run.seed, state.t, number, metric, value)
                for run, value in zip(context.runs, values.tolist(), strict=True)
            ]
    return rows


def evaluation(s: GenerativeSettings, shape: tuple[int, ...], runs: int) -> int:
    """Bytes of the classifier while it is trained (weights, gradient, Adam's moments), or of the images it judges."""
    pixels, hidden = prod(shape), s.classifier_hidden
    trained = 4 * hidden * (pixels + (LAYERS - 1) * hidden)
    return 4 * max(trained, runs * s.images * 2 * (pixels + hidden))


def columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """What :func:`cells` are of."""
    drawn = ("weights drawn",) if _drawn(rows) else ()
    return "method", "log-likelihood", *drawn, "when just learned", "uncertainty"


def _drawn(rows: Sequence[Row]) -> bool:
    return any(row.metric == DRAWN for row in rows)


def cells(rows: Sequence[Row], paper: Mapping[str, float]) -> list[tuple[str, ...]]:
    """One line per method: mean and standard error over seeds after the last task."""
    lines: list[tuple[str, ...]] = []
    for name in methods(rows):
        diagonal = matrix(rows, name, LIKELIHOOD).diagonal(dim1=1, dim2=2).nanmean(-1)
        lines.append(
            (
                name,
                _text(final_score(rows, name, LIKELIHOOD), 1),
                *((_text(final_score(rows, name, DRAWN), 1),) if _drawn(rows) else ()),
                _text(summarise(diagonal), 1),
                _text(final_score(rows, name, UNCERTAINTY), 2),
            )
        )
    return lines


def _text(value: Summary, digits: int) -> str:
    mean, error, seeds = value
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if seeds > 1 else "")


def explain(rows: Sequence[Row], paper: Mapping[str, float]) -> str:
    """What the numbers of a table are."""
    seeds = sorted({final_score(rows, name, LIKELIHOOD).seeds for name in methods(rows)})
    return (
        f"Mean ± standard error over {' or '.join(map(str, seeds))} seeds, averaged over tasks, after the last task. "
        "Log-likelihoods are of test images in nats, by importance sampling at the posterior's mean weights"
        f"{', and averaged over drawn ones' if _drawn(rows) else ''}; "
        "uncertainty is a classifier's -log p(task | image) over generated images, 0 being sure."
    )


def draw(rows: Sequence[Row], title: str, paper: Mapping[str, float], path: Path) -> list[Path]:
    """Both metrics against tasks."""
    from vcl.lab.figures import generator_metrics

    return generator_metrics.draw(rows, title, path / "generators")


GENERATIVE = Kind(
    methods=GENERATIVE_METHODS,
    model=model,
    evaluate=evaluate,
    score=Score(LIKELIHOOD, "mean test log-likelihood", 1.0, " nats"),
    table=TableFormat(columns, cells, explain),
    draw=draw,
    stream=("tasks", "order", "binarised", "train_limit", "test_limit"),
    network=("latent", "features", "hidden", "private", "encoder", "head_kl", "prior_var"),
    prediction=lambda entry: ("ll_draws", "ll_drawn", "images", "classifier_hidden", "classifier_epochs"),
    prepare=prepare,
    evaluation=evaluation,
    samples=samples,
    save=generators,
)
