"""Methods for VAEs: the same projections, fitted as the authors' generative runs were."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import Annotated, Any, Literal

from vcl.coresets import RandomK
from vcl.fitting.curvature import Curvature
from vcl.fitting.loop import Ascent
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.methods.fits import Anchor, Damping, Fit, Rate, Steps, Weight
from vcl.lab.settings import Count, Repeats, Variance
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumLikelihood,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method

E12 = exp(-12)
Draws = Annotated[Count, "draws of (theta, z) a step"]


def slow() -> Rate:
    """The authors' rate."""
    return Rate(lr=1e-4)


def slow_steps() -> Steps:
    """At that rate."""
    return Steps(rate=slow())


def slow_fit() -> Fit:
    """At that rate."""
    return Fit(slow_steps())


@dataclass(frozen=True)
class Vcl:
    """VCL of the shared decoder."""

    fit: Fit = field(default_factory=slow_fit)
    draws: Draws = 10
    start: Annotated[
        Literal["reset", "continue", "restart"], "what is reset at each task: the variances, nothing, or all"
    ] = "reset"
    init_var: Annotated[Variance, "initial variance of the posterior"] = E12


@dataclass(frozen=True)
class VclCoreset:
    """VCL with a coreset of images."""

    vcl: Vcl = field(default_factory=Vcl)
    coreset: Annotated[Count, "points kept of each task"] = 40
    coreset_epochs: Annotated[Repeats, "passes over the coreset"] = 100
    coreset_batch: Annotated[Count | None, "points a step of the coreset's fit; none takes all"] = 50


@dataclass(frozen=True)
class Naive:
    """Maximum likelihood."""

    fit: Fit = field(default_factory=slow_fit)
    draws: Draws = 10


@dataclass(frozen=True)
class Fisher:
    """Phi_t from the gradients of each example's bound."""

    fisher_samples: Annotated[Count | None, "examples that curvature is taken from; none takes all"] = 50
    fisher_draws: Annotated[Count, "draws of z for an example's gradient"] = 10
    fisher_bound: Annotated[
        Literal["mean", "importance"], "whose gradients are squared: the mean bound's or the importance-sampled one's"
    ] = "mean"

    def curvature(self) -> Curvature:
        """As the core takes it."""
        importance = self.fisher_bound == "importance"
        return Curvature("empirical", self.fisher_samples, draws=self.fisher_draws, importance=importance)


@dataclass(frozen=True)
class Lp:
    """Laplace propagation."""

    fit: Fit = field(default_factory=slow_fit)
    draws: Draws = 10
    lam: Weight = 1.0
    phi: Fisher = field(default_factory=Fisher)


@dataclass(frozen=True)
class Ewc(Lp):
    """Elastic weight consolidation, which has an anchor beside."""

    anchor: Anchor = "own"


@dataclass(frozen=True)
class Si:
    """Synaptic intelligence, which follows every step and so ends at the last one."""

    steps: Steps = field(default_factory=slow_steps)
    draws: Draws = 10
    lam: Weight = 1.0
    damping: Damping = 1e-6


GLOROT: Any = {"init": "glorot"}
NO_PRIOR = ("prior_var", "head_kl")
"""Methods that maximise a likelihood, or penalise by curvature alone, do not use the prior."""


def variational(s: Vcl, how: Ascent, start: Any) -> VariationalKL:
    """proj by variational KL; log deviations are optimised, as in the authors' code."""
    return VariationalKL(
        how, s.draws, "weights", start, s.init_var, ml_start=False, init="glorot", climbs="log_sd"
    )  # fmt: skip


def coreset(s: VclCoreset) -> Method[Any]:
    """VCL with a random coreset."""
    rate = s.vcl.fit.steps.rate
    how = Ascent(s.coreset_epochs, s.coreset_batch, rate.lr, rate.schedule, s.vcl.fit.average)
    project = variational(s.vcl, s.vcl.fit.ascent(), s.vcl.start)
    return Method(project, RandomK(s.coreset), variational(s.vcl, how, "continue"), "joint")


def lp(s: Lp) -> Method[Any]:
    """Laplace propagation."""
    return Method(LaplacePropagation(s.fit.ascent(), s.lam, s.phi.curvature(), draws=s.draws, **GLOROT))


def ewc(s: Ewc) -> Method[Any]:
    """Elastic weight consolidation."""
    how = s.fit.ascent()
    return Method(ElasticWeightConsolidation(how, s.lam, s.phi.curvature(), s.anchor, draws=s.draws, **GLOROT))


GENERATIVE_METHODS: tuple[MethodEntry, ...] = (
    MethodEntry(
        "vcl", "variational continual learning of the shared decoder",
        Vcl, lambda s: Method(variational(s, s.fit.ascent(), s.start)), models="generators",
    ),
    MethodEntry(
        "vcl-random", "VCL + random coreset of images, which the paper does not have",
        VclCoreset, coreset, models="generators",
    ),
    MethodEntry(
        "naive", "the naive online VAE: each task starts where the last ended, no penalty",
        Naive, lambda s: Method(MaximumLikelihood(s.fit.ascent(), draws=s.draws, **GLOROT)),
        models="generators", draws=False, ignores=NO_PRIOR,
    ),
    MethodEntry(
        "ewc", "elastic weight consolidation", Ewc, ewc, models="generators", draws=False, ignores=NO_PRIOR,
    ),
    MethodEntry("lp", "Laplace propagation, diagonal", Lp, lp, models="generators", draws=False),
    MethodEntry(
        "si", "synaptic intelligence",
        Si, lambda s: Method(SynapticIntelligence(s.steps.ascent(), s.lam, s.damping, draws=s.draws, **GLOROT)),
        models="generators", draws=False, ignores=NO_PRIOR,
    ),
)  # fmt: skip
