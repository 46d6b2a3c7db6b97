"""Methods for networks that classify or regress: each is a projection and a coreset rule under the one recursion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from vcl.coresets import Budget, CoresetRule, Everything, KCenter, Only, RandomK
from vcl.fitting.loop import Ascent
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.methods.fits import (
    Anchor,
    Bound,
    CoresetFit,
    Damping,
    Fisher,
    Fit,
    NaturalSteps,
    PointFit,
    Predictive,
    Rate,
    Start,
    Steps,
    Weight,
)
from vcl.lab.methods.kronecker import KRONECKER
from vcl.lab.settings import Count, Deviation, Limit, Share
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    MomentMatching,
    SequentialMonteCarlo,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method


@dataclass(frozen=True)
class Vcl:
    """VCL without a coreset."""

    fit: Fit = field(default_factory=Fit)
    bound: Bound = field(default_factory=Bound)
    start: Annotated[Start, "whether a task's fit starts at q_{t-1} or at small random means"] = "continue"


@dataclass(frozen=True)
class VclNatural:
    """VCL without a coreset, fitted by natural gradients; ``lr`` is that of the maximum-likelihood start."""

    vcl: Vcl = field(default_factory=Vcl)
    natural: NaturalSteps = field(default_factory=NaturalSteps)


@dataclass(frozen=True)
class VclBudget:
    """VCL with a coreset, one q_t for all heads."""

    vcl: Vcl = field(default_factory=Vcl)
    points: CoresetFit = field(default_factory=CoresetFit)


@dataclass(frozen=True)
class VclCoreset:
    """VCL with a coreset."""

    vcl: Vcl = field(default_factory=Vcl)
    points: CoresetFit = field(default_factory=CoresetFit)
    predictive: Predictive = "joint"


@dataclass(frozen=True)
class CoresetAlone:
    """A coreset and nothing else."""

    rate: Rate = field(default_factory=Rate)
    average: Annotated[Share, "last share of a fit's steps whose iterates are averaged"] = 0.0
    bound: Bound = field(default_factory=Bound)
    points: CoresetFit = field(default_factory=CoresetFit)
    predictive: Predictive = "joint"


@dataclass(frozen=True)
class BatchVi:
    """All data so far in one fit."""

    fit: Fit = field(default_factory=Fit)
    bound: Bound = field(default_factory=Bound)
    start: Annotated[Start, "whether a fit starts at the last one or at small random means"] = "continue"


@dataclass(frozen=True)
class Mle:
    """Maximum likelihood."""

    point: PointFit = field(default_factory=PointFit)


@dataclass(frozen=True)
class Map:
    """Maximum a posteriori."""

    point: PointFit = field(default_factory=PointFit)
    lam: Weight = 1.0


@dataclass(frozen=True)
class Lp:
    """Laplace propagation."""

    point: PointFit = field(default_factory=PointFit)
    lam: Weight = 1.0
    phi: Fisher = field(default_factory=Fisher)


@dataclass(frozen=True)
class Ewc(Lp):
    """Elastic weight consolidation, which has an anchor beside."""

    anchor: Anchor = "own"


@dataclass(frozen=True)
class Si:
    """Synaptic intelligence, which follows every step and so ends at the last one."""

    steps: Steps = field(default_factory=Steps)
    init_sd: Annotated[Deviation, "standard deviation of the initial weights"] = 0.1
    lam: Weight = 1.0
    damping: Damping = 1e-3


@dataclass(frozen=True)
class Adf:
    """Moment matching."""

    filter_batch: Annotated[Count, "examples taken in at a time"] = 1
    init_sd: Annotated[Deviation, "standard deviation of the initial means"] = 0.1


@dataclass(frozen=True)
class Smc:
    """Sequential Monte Carlo."""

    particles: Annotated[int, Limit(2, 10**9), "weighted particles"] = 1000


def variational(bound: Bound, how: Ascent, start: Start) -> VariationalKL:
    """proj by variational KL."""
    return VariationalKL(how, bound.draws, bound.estimator, start, bound.init_var, bound.init_sd)


def project(s: Vcl | BatchVi) -> VariationalKL:
    """The projection of a task's data."""
    return variational(s.bound, s.fit.ascent(), s.start)


def natural(s: VclNatural) -> Method[Any]:
    """VCL by natural gradients."""
    return Method(replace(project(s.vcl), natural=s.natural.natural()))


def refit(bound: Bound, rate: Rate, average: float, points: CoresetFit) -> VariationalKL:
    """The projection of a coreset."""
    how = Ascent(points.coreset_epochs, points.coreset_batch, rate.lr, rate.schedule, average)
    return variational(bound, how, points.coreset_start)


def refit_of(s: VclBudget | VclCoreset) -> VariationalKL:
    """The coreset's fit of VCL."""
    return refit(s.vcl.bound, s.vcl.fit.steps.rate, s.vcl.fit.average, s.points)


def coreset(rule: Callable[[int], CoresetRule]) -> Callable[[VclCoreset], Method[Any]]:
    """VCL with a coreset rule."""
    return lambda s: Method(project(s.vcl), rule(s.points.coreset), refit_of(s), s.predictive)


def budget(s: VclBudget) -> Method[Any]:
    """VCL with a coreset of a fixed total size."""
    return Method(project(s.vcl), Budget(s.points.coreset), refit_of(s), "joint")


def alone(rule: Callable[[int], CoresetRule]) -> Callable[[CoresetAlone], Method[Any]]:
    """A coreset alone: the only fit is that of the coreset."""

    def build(s: CoresetAlone) -> Method[Any]:
        only = refit(s.bound, s.rate, s.average, s.points)
        return Method(only, Only(rule(s.points.coreset)), only, s.predictive)

    return build


def batch_vi(s: BatchVi) -> Method[Any]:
    """All data so far in one joint fit, with the settings of a task's fit: the upper bound."""
    return Method(project(s), Everything(), project(s), "joint")


def lp(s: Lp) -> Method[Any]:
    """Laplace propagation."""
    return Method(LaplacePropagation(s.point.fit.ascent(), s.lam, s.phi.curvature(), s.point.init_sd))


def ewc(s: Ewc) -> Method[Any]:
    """Elastic weight consolidation."""
    return Method(ElasticWeightConsolidation(s.point.fit.ascent(), s.lam, s.phi.curvature(), s.anchor, s.point.init_sd))


RESTART = {"start": "restart", "schedule": "cosine"}
"""Every fit starts at small random means, with q_{t-1} as the prior alone, and its learning rate decays to 0.

A constant rate leaves each fit noisy where it stops, and that noise is part of the prior of all later tasks.
"""

SMC_LIMIT = 500
NO_PRIOR = ("prior_var",)
"""Methods that maximise a likelihood, or penalise by curvature alone, do not use the prior."""

METHODS: tuple[MethodEntry, ...] = (
    MethodEntry("vcl", "variational continual learning, no coreset", Vcl, lambda s: Method(project(s))),
    MethodEntry("vcl-random", "VCL + random coreset", VclCoreset, coreset(RandomK)),
    MethodEntry("vcl-kcenter", "VCL + K-center coreset", VclCoreset, coreset(KCenter)),
    MethodEntry(
        "vcl-budget", "VCL + random coreset of a fixed total size (that of one task); old points leave",
        VclBudget, budget,
    ),
    MethodEntry(
        "vcl-restart", "VCL, each fit restarted, learning rate decayed to 0 (Swaroop et al., 2019)",
        Vcl, lambda s: Method(project(s)), values=RESTART,
    ),
    MethodEntry(
        "vcl-restart-random", "vcl-restart + random coreset", VclCoreset, coreset(RandomK), values=RESTART,
    ),
    MethodEntry(
        "vcl-natural", "VCL, each fit by natural gradients (variational online Newton), one draw a step",
        VclNatural, natural, values={"draws": 1},
    ),
    MethodEntry("random-only", "the random coreset alone", CoresetAlone, alone(RandomK)),
    MethodEntry("kcenter-only", "the K-center coreset alone", CoresetAlone, alone(KCenter)),
    MethodEntry("batch-vi", "all data so far at once: an upper bound", BatchVi, batch_vi),
    MethodEntry(
        "mle", "maximum likelihood (fine-tuning): the baseline that forgets",
        Mle, lambda s: Method(MaximumLikelihood(s.point.fit.ascent(), s.point.init_sd)),
        draws=False, ignores=NO_PRIOR,
    ),
    MethodEntry(
        "map", "maximum a posteriori: one penalty strength for all weights",
        Map, lambda s: Method(MaximumAPosteriori(s.point.fit.ascent(), s.lam, s.point.init_sd)),
        draws=False,
    ),
    MethodEntry("lp", "Laplace propagation, diagonal", Lp, lp, draws=False),
    *KRONECKER,
    MethodEntry("ewc", "elastic weight consolidation", Ewc, ewc, draws=False, ignores=NO_PRIOR),
    MethodEntry(
        "si", "synaptic intelligence",
        Si, lambda s: Method(SynapticIntelligence(s.steps.ascent(), s.lam, s.damping, s.init_sd)),
        draws=False, ignores=NO_PRIOR,
    ),
    MethodEntry(
        "adf", "moment matching (assumed density filtering), one pass",
        Adf, lambda s: Method(MomentMatching(s.filter_batch, s.init_sd)),
    ),
    MethodEntry(
        "smc", "sequential Monte Carlo, for networks of a few hundred parameters (--set hidden=4)",
        Smc, lambda s: Method(SequentialMonteCarlo(s.particles, max_parameters=SMC_LIMIT, refit="local")),
        most_parameters=SMC_LIMIT,
    ),
)  # fmt: skip
