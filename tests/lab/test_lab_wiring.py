"""Every setting reaches the object that uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab_made import triangle_rows

from vcl.coresets import Budget, Everything, KCenter, Nothing, Only, RandomK
from vcl.fitting.curvature import Curvature
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.lab import class_incremental, classification
from vcl.lab.evaluation import Evaluation
from vcl.lab.experiments import sine, split_mnist_conv
from vcl.lab.generative import quality
from vcl.lab.generative.network import VaeSettings, vae
from vcl.lab.methods.generators import GENERATIVE_METHODS
from vcl.lab.methods.networks import METHODS
from vcl.lab.networks import Mlp, classifier
from vcl.lab.registry import method as entry_of
from vcl.lab.settings import values_of, with_values
from vcl.models import Normal
from vcl.projections import (
    ElasticWeightConsolidation,
    KroneckerLaplace,
    KroneckerVariational,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    MomentMatching,
    SequentialMonteCarlo,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method

# Every setting has a value that no other has, so that one which is dropped, or goes to another's place, is seen.
SETTINGS: dict[str, Any] = {
    "epochs": 11, "batch": 12, "coreset": 13, "coreset_epochs": 14, "coreset_batch": 15, "predictive": "per-head",
    "lr": 0.21, "schedule": "cosine", "average": 0.22, "draws": 16, "estimator": "local", "start": "restart",
    "coreset_start": "continue", "init_var": 0.23, "init_sd": 0.24, "lam": 0.25, "fisher": "true",
    "fisher_samples": 17, "anchor": "previous", "damping": 0.26, "filter_batch": 18, "particles": 190,
    "curvature": "expected", "labels": "exact", "curvature_rounds": 27, "curvature_draws": 28, "factors": "nearest",
    "head_factors": "diagonal", "sharing": "reduce", "newton_rate": 0.28, "forget": 19.0, "momentum": 0.29,
}  # fmt: skip
TASK, CORESET = Ascent(11, 12, 0.21, "cosine", 0.22), Ascent(14, 15, 0.21, "cosine", 0.22)
PATH = replace(TASK, average=0.0)  # synaptic intelligence follows every step
FIT = VariationalKL(TASK, 16, "local", "restart", 0.23, 0.24)
REFIT = VariationalKL(CORESET, 16, "local", "continue", 0.23, 0.24)
PHI = Curvature("true", 17)
FACTORS = KroneckerCurvature("expected", "exact", 17, 27, 28, "nearest", "diagonal", "reduce")
KRONECKER = KroneckerVariational(KroneckerLaplace(TASK, 0.25, FACTORS), TASK, 16, "local")
KRONECKER_REFIT = KroneckerVariational(KroneckerLaplace(CORESET, 0.25, FACTORS), CORESET, 16, "local")


def alone(project: Any) -> Method[Any]:
    return Method(project, Nothing(), project, "joint")


WIRED: dict[str, Method[Any]] = {
    "vcl": alone(FIT),
    "vcl-random": Method(FIT, RandomK(13), REFIT, "per-head"),
    "vcl-kcenter": Method(FIT, KCenter(13), REFIT, "per-head"),
    "vcl-budget": Method(FIT, Budget(13), REFIT, "joint"),
    "vcl-restart": alone(FIT),
    "vcl-restart-random": Method(FIT, RandomK(13), REFIT, "per-head"),
    "vcl-natural": alone(replace(FIT, natural=NaturalGradient(0.28, 19.0, 0.29))),
    "random-only": Method(REFIT, Only(RandomK(13)), REFIT, "per-head"),
    "kcenter-only": Method(REFIT, Only(KCenter(13)), REFIT, "per-head"),
    "batch-vi": Method(FIT, Everything(), FIT, "joint"),
    "mle": alone(MaximumLikelihood(TASK, 0.24)),
    "map": alone(MaximumAPosteriori(TASK, 0.25, 0.24)),
    "lp": alone(LaplacePropagation(TASK, 0.25, PHI, 0.24)),
    "lp-kron": alone(KroneckerLaplace(TASK, 0.25, FACTORS)),
    "lp-kron-random": Method(
        KroneckerLaplace(TASK, 0.25, FACTORS), RandomK(13), KroneckerLaplace(CORESET, 0.25, FACTORS), "per-head"
    ),
    "ewc-kron": alone(KroneckerLaplace(TASK, 0.25, FACTORS, prior=False)),
    "vcl-kron": alone(KRONECKER),
    "vcl-kron-natural": alone(replace(KRONECKER, natural=NaturalGradient(0.28, 19.0, 0.29))),
    "vcl-kron-random": Method(KRONECKER, RandomK(13), KRONECKER_REFIT, "per-head"),
    "ewc": alone(ElasticWeightConsolidation(TASK, 0.25, PHI, "previous", 0.24)),
    "si": alone(SynapticIntelligence(PATH, 0.25, 0.26, 0.24)),
    "adf": alone(MomentMatching(18, 0.24)),
    "smc": alone(SequentialMonteCarlo(190, max_parameters=500, refit="local")),
}

GENERATIVE_SETTINGS: dict[str, Any] = {
    "epochs": 11, "batch": 12, "lr": 0.21, "schedule": "cosine", "average": 0.22, "draws": 16, "start": "restart",
    "init_var": 0.23, "coreset": 13, "coreset_epochs": 14, "coreset_batch": 15, "lam": 0.25, "fisher_samples": 17,
    "fisher_draws": 18, "fisher_bound": "importance", "anchor": "previous", "damping": 0.26,
}  # fmt: skip
GENERATIVE_FIT = VariationalKL(TASK, 16, "weights", "restart", 0.23, 0.1, False, "glorot", "log_sd")
GENERATIVE_REFIT = replace(GENERATIVE_FIT, ascent=CORESET, start="continue")
GENERATIVE_PHI = Curvature("empirical", 17, 18, True)
GENERATIVE_WIRED: dict[str, Method[Any]] = {
    "vcl": alone(GENERATIVE_FIT),
    "vcl-random": Method(GENERATIVE_FIT, RandomK(13), GENERATIVE_REFIT, "joint"),
    "naive": alone(MaximumLikelihood(TASK, 0.1, "glorot", 16)),
    "ewc": alone(ElasticWeightConsolidation(TASK, 0.25, GENERATIVE_PHI, "previous", 0.1, "glorot", 16)),
    "lp": alone(LaplacePropagation(TASK, 0.25, GENERATIVE_PHI, 0.1, "glorot", 16)),
    "si": alone(SynapticIntelligence(PATH, 0.25, 0.26, 0.1, "glorot", 16)),
}


def built(name: str, values: dict[str, Any], models: Any = "networks") -> Method[Any]:
    """A method from its own settings, all of which are among the values."""
    entry = entry_of(name, models)
    assert set(values_of(entry.settings())) <= set(values)
    return entry.build(with_values(entry.settings(), values))


@pytest.mark.parametrize("method", [entry.name for entry in METHODS])
def test_settings_of_classifiers(method: str) -> None:
    assert built(method, SETTINGS) == WIRED[method]


@pytest.mark.parametrize("method", [entry.name for entry in GENERATIVE_METHODS])
def test_settings_of_generators(method: str) -> None:
    assert built(method, GENERATIVE_SETTINGS, "generators") == GENERATIVE_WIRED[method]


@pytest.mark.parametrize("models", ["networks", "generators"])
def test_every_setting_is_one_of_some_method(models: Any) -> None:
    values, entries = (SETTINGS, METHODS) if models == "networks" else (GENERATIVE_SETTINGS, GENERATIVE_METHODS)
    assert set(values) == {name for entry in entries for name in values_of(entry.settings())}


def test_where_a_coreset_fit_starts_is_its_own_setting() -> None:
    for start in ("continue", "restart"):
        made = built("vcl-random", {**SETTINGS, "start": "continue", "coreset_start": start})
        assert (made.project.start, made.refit.start) == ("continue", start)


def test_settings_of_networks() -> None:
    prior = classifier(Mlp((5, 3), 0.27), (2, 4)).prior({"a": 2})
    assert list(prior.layout.shapes) == [(5, 8), (5,), (3, 5), (3,), (2, 3), (2,)]
    assert prior.log_var.exp().unique().tolist() == [pytest.approx(0.27)]
    prior = vae(VaeSettings(latent=2, features=3, hidden=4, prior_var=0.27), (2, 4)).prior({"a": 8})
    encoder = [(4, 8), (4,), (4, 4), (4,), (4, 4), (4,), (4, 4), (4,)]
    assert list(prior.layout.shapes) == [(4, 3), (4,), (8, 4), (8,), (4, 2), (4,), (3, 4), (3,), *encoder]
    assert prior.log_var[prior.log_var.isfinite()].exp().unique().tolist() == [pytest.approx(0.27)]


def test_settings_of_the_convolutional_network() -> None:
    prior = split_mnist_conv.model(split_mnist_conv.Conv((2, 3), 5, 0.27), (7, 8)).prior({"a": 2})
    # 7 x 8 pixels, then 4 x 4, then 2 x 2.
    shapes = [(2, 1, 3, 3), (2,), (3, 2, 3, 3), (3,), (5, 3 * 2 * 2), (5,), (2, 5), (2,)]
    assert list(prior.layout.shapes) == shapes
    assert prior.log_var.exp().unique().tolist() == [pytest.approx(0.27)]


def test_settings_of_the_regression() -> None:
    model = sine.model(sine.Regressor((5,), 0.27, 0.3), (1,))
    prior = model.prior({"a": 1})
    assert list(prior.layout.shapes) == [(5, 1), (5,), (1, 5), (1,)]
    assert prior.log_var.exp().unique().tolist() == [pytest.approx(0.27)]
    assert isinstance(model.likelihood, Normal)
    assert model.likelihood.noise == 0.3


DRAWN = {
    "classify": (classification.CLASSIFICATION, ("accuracy",)),
    "generate": (quality.GENERATION, (quality.LIKELIHOOD, quality.UNCERTAINTY)),
    "regress": (sine.REGRESSION, (sine.RMSE,)),
    "classify by generators": (class_incremental.GENERATORS, ("accuracy", class_incremental.SIZE)),
    "classify by one head": (class_incremental.ONE_HEAD, ("accuracy", class_incremental.SIZE)),
}


@pytest.mark.parametrize(("evaluation", "metrics"), DRAWN.values(), ids=DRAWN)
def test_an_evaluation_draws_its_own_figure(evaluation: Evaluation, metrics: tuple[str, ...], tmp_path: Path) -> None:
    rows = [row for metric in metrics for row in triangle_rows("vcl", {0: [[0.9], [0.8, 0.7]]}, metric)]
    made = evaluation.draw(rows, "a title", {"vcl": 90.0}, tmp_path)
    assert {path.suffix for path in made} == {".png", ".svg"}
    assert all(path.stat().st_size > 0 for path in made)
    assert "a title" in next(path for path in made if path.suffix == ".svg").read_text(encoding="utf-8")


def test_which_methods_never_look_at_the_prior() -> None:
    assert {entry.name: entry.ignores for entry in METHODS if entry.ignores} == dict.fromkeys(
        ("mle", "ewc", "si"), ("prior_var",)
    )
    assert {entry.name: entry.ignores for entry in GENERATIVE_METHODS if entry.ignores} == dict.fromkeys(
        ("naive", "ewc", "si"), ("prior_var", "head_kl")
    )


@pytest.mark.parametrize(("images", "most"), [(5, 13_440), (500, 592_000)])
def test_the_memory_of_a_generators_evaluation(images: int, most: int) -> None:
    """64 x 10 + 2 x 10 x 10 weights four times over, or two runs' images and what they become, twice: 4 bytes each."""
    settings = quality.GenerationSettings(classifier_hidden=10, images=images)
    assert quality.GENERATION.memory(settings, (8, 8), 2) == most
