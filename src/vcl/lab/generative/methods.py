"""Methods for generative models by name: the same projections, fitted as the authors' generative runs were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vcl.coresets import CoresetRule, Nothing, RandomK
from vcl.fitting.curvature import Curvature
from vcl.fitting.loop import Ascent
from vcl.lab.generative.settings import GenerativeSettings
from vcl.lab.kind import MethodEntry
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumLikelihood,
    Projection,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method

GLOROT: Any = {"init": "glorot"}
NO_PRIOR = ("prior_var", "head_kl")
"""Methods that maximise a likelihood, and hold only what data has said, never look at the prior."""


def ascent(s: GenerativeSettings) -> Ascent:
    """How a task's data is fitted."""
    return Ascent(s.epochs, s.batch, s.lr, s.schedule, s.average)


def path(s: GenerativeSettings) -> Ascent:
    """The same for synaptic intelligence, which follows every step and so ends at the last one."""
    return replace(ascent(s), average=0.0)


def curvature(s: GenerativeSettings) -> Curvature:
    """Phi_t from the gradients of each example's bound."""
    importance = s.fisher_bound == "importance"
    return Curvature("empirical", s.fisher_samples, draws=s.fisher_draws, importance=importance)


def variational(s: GenerativeSettings, how: Ascent, start: Any) -> VariationalKL:
    """proj by variational KL; what is climbed are log deviations, as in the authors' code."""
    return VariationalKL(
        how, s.draws, "weights", start, s.init_var, ml_start=False, init="glorot", climbs="log_sd"
    )  # fmt: skip


def vcl(s: GenerativeSettings, choose: CoresetRule) -> Method[Any]:
    """VCL with a coreset rule."""
    refit = variational(s, Ascent(s.coreset_epochs, s.coreset_batch, s.lr, s.schedule, s.average), "continue")
    return Method(variational(s, ascent(s), s.start), choose, refit, "joint")


def plain(project: Projection[Any]) -> Method[Any]:
    """A projection without a coreset."""
    return Method(project, Nothing(), project, "joint")


GENERATIVE_METHODS: tuple[MethodEntry, ...] = (
    MethodEntry(
        "vcl",
        "variational continual learning of the shared decoder",
        lambda s: plain(variational(s, ascent(s), s.start)),
    ),
    MethodEntry(
        "vcl-random",
        "VCL + random coreset of images, which the paper does not have",
        lambda s: vcl(s, RandomK(s.coreset)),
    ),
    MethodEntry(
        "naive",
        "the naive online VAE: each task from where the last one ended, nothing held",
        lambda s: plain(MaximumLikelihood(ascent(s), draws=s.draws, **GLOROT)),
        draws=False,
        ignores=NO_PRIOR,
    ),
    MethodEntry(
        "ewc",
        "elastic weight consolidation",
        lambda s: plain(ElasticWeightConsolidation(ascent(s), s.lam, curvature(s), s.anchor, draws=s.draws, **GLOROT)),
        draws=False,
        takes_lambda=True,
        ignores=NO_PRIOR,
    ),
    MethodEntry(
        "lp",
        "Laplace propagation, diagonal",
        lambda s: plain(LaplacePropagation(ascent(s), s.lam, curvature(s), draws=s.draws, **GLOROT)),
        draws=False,
        takes_lambda=True,
    ),
    MethodEntry(
        "si",
        "synaptic intelligence",
        lambda s: plain(SynapticIntelligence(path(s), s.lam, s.damping, draws=s.draws, **GLOROT)),
        draws=False,
        takes_lambda=True,
        ignores=NO_PRIOR,
    ),
)
