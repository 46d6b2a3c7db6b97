"""Methods by name: each is a projection and a coreset rule under the one recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vcl.coresets import Budget, CoresetRule, Everything, KCenter, Nothing, Only, RandomK
from vcl.errors import unknown
from vcl.fitting.curvature import Curvature
from vcl.fitting.loop import Ascent
from vcl.lab.kind import MethodEntry
from vcl.lab.settings import Settings
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    MomentMatching,
    Projection,
    SequentialMonteCarlo,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method, Predictive


def ascent(s: Settings) -> Ascent:
    """How a task's data is fitted."""
    return Ascent(s.epochs, s.batch, s.lr, s.schedule, s.average)


def path(s: Settings) -> Ascent:
    """The same for synaptic intelligence, which follows every step and so ends at the last one."""
    return replace(ascent(s), average=0.0)


def coreset_ascent(s: Settings) -> Ascent:
    """How a coreset is fitted."""
    return Ascent(s.coreset_epochs, s.coreset_batch, s.lr, s.schedule, s.average)


def curvature(s: Settings) -> Curvature:
    """How Phi_t is taken."""
    return Curvature(s.fisher, s.fisher_samples)


def variational(s: Settings, how: Ascent) -> VariationalKL:
    """proj by variational KL."""
    return VariationalKL(how, s.draws, s.estimator, s.start, s.init_var, s.init_sd)


def refit(s: Settings) -> VariationalKL:
    """The projection of a coreset."""
    return replace(variational(s, coreset_ascent(s)), start=s.coreset_start)


def vcl(s: Settings, choose: CoresetRule, predictive: Predictive | None = None) -> Method[Any]:
    """VCL with a coreset rule."""
    return Method(variational(s, ascent(s)), choose, refit(s), predictive or s.predictive)


def alone(s: Settings, choose: CoresetRule) -> Method[Any]:
    """A coreset and nothing else: there is no other fit than that of the coreset."""
    return Method(refit(s), Only(choose), refit(s), s.predictive)


RESTART = {"start": "restart", "schedule": "cosine"}
"""VCL whose every fit begins at small random means, with q_{t-1} as the prior only, and cools to its end.

A constant rate leaves each fit noisy where it stops, and what is noise then is prior for all tasks to come.
"""


def batch_vi(s: Settings) -> Method[Any]:
    """All data so far in one joint fit, with the settings of a task's fit: the upper bound."""
    project = variational(s, ascent(s))
    return Method(project, Everything(), project, "joint")


def plain(project: Projection[Any]) -> Method[Any]:
    """A projection without a coreset, so that nothing is ever refitted."""
    return Method(project, Nothing(), project, "joint")


def with_lambda(method: Method[Any], lam: tuple[float, ...]) -> Method[Any]:
    """The same method with a lambda for each run."""
    project: Any = method.project
    refit: Any = method.refit
    return replace(method, project=replace(project, lam=lam), refit=replace(refit, lam=lam))


SMC_LIMIT = 500
NO_PRIOR = ("prior_var",)
"""Methods that maximise a likelihood, and hold only what data has said, never look at the prior."""

METHODS: tuple[MethodEntry, ...] = (
    MethodEntry("vcl", "variational continual learning, no coreset", lambda s: plain(variational(s, ascent(s)))),
    MethodEntry("vcl-random", "VCL + random coreset", lambda s: vcl(s, RandomK(s.coreset))),
    MethodEntry("vcl-kcenter", "VCL + K-center coreset", lambda s: vcl(s, KCenter(s.coreset))),
    MethodEntry(
        "vcl-budget",
        "VCL + random coreset of a fixed total size (that of one task), old points leave",
        lambda s: vcl(s, Budget(s.coreset), "joint"),
    ),
    MethodEntry(
        "vcl-restart",
        "VCL, each task's fit begun anew and its rate taken to 0: the best without memory",
        lambda s: plain(variational(s, ascent(s))),
        settings=RESTART,
    ),
    MethodEntry(
        "vcl-restart-random",
        "the same + random coreset",
        lambda s: vcl(s, RandomK(s.coreset)),
        settings=RESTART,
    ),
    MethodEntry("random-only", "the random coreset alone", lambda s: alone(s, RandomK(s.coreset))),
    MethodEntry("kcenter-only", "the K-center coreset alone", lambda s: alone(s, KCenter(s.coreset))),
    MethodEntry("batch-vi", "all data so far at once, an upper bound", batch_vi),
    MethodEntry(
        "mle",
        "maximum likelihood (fine-tuning), the forgetting baseline",
        lambda s: plain(MaximumLikelihood(ascent(s), s.init_sd)),
        draws=False,
        ignores=NO_PRIOR,
    ),
    MethodEntry(
        "map",
        "maximum a posteriori: held at the last estimate, all parameters alike",
        lambda s: plain(MaximumAPosteriori(ascent(s), s.lam, s.init_sd)),
        draws=False,
        takes_lambda=True,
    ),
    MethodEntry(
        "lp",
        "Laplace propagation, diagonal",
        lambda s: plain(LaplacePropagation(ascent(s), s.lam, curvature(s), s.init_sd)),
        draws=False,
        takes_lambda=True,
    ),
    MethodEntry(
        "ewc",
        "elastic weight consolidation",
        lambda s: plain(ElasticWeightConsolidation(ascent(s), s.lam, curvature(s), s.anchor, s.init_sd)),
        draws=False,
        takes_lambda=True,
        ignores=NO_PRIOR,
    ),
    MethodEntry(
        "si",
        "synaptic intelligence",
        lambda s: plain(SynapticIntelligence(path(s), s.lam, s.damping, s.init_sd)),
        draws=False,
        takes_lambda=True,
        ignores=NO_PRIOR,
    ),
    MethodEntry(
        "adf",
        "moment matching (assumed density filtering), one pass",
        lambda s: plain(MomentMatching(s.filter_batch, s.init_sd)),
        climbs=False,
    ),
    MethodEntry(
        "smc",
        "sequential Monte Carlo, for networks of a few hundred parameters (--set hidden=4)",
        lambda s: plain(SequentialMonteCarlo(s.particles, max_parameters=SMC_LIMIT, refit="local")),
        climbs=False,
        most_parameters=SMC_LIMIT,
    ),
)


def method(name: str, methods: Sequence[MethodEntry] = METHODS) -> MethodEntry:
    """The method of this name."""
    for entry in methods:
        if entry.name == name:
            return entry
    raise unknown("method", name, [entry.name for entry in methods])
