"""Methods by name: each is a projection and a coreset rule under the one recursion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vcl.coresets import Budget, CoresetRule, Everything, KCenter, Nothing, Only, RandomK
from vcl.errors import unknown
from vcl.lab.settings import Settings
from vcl.optimise import Ascent
from vcl.projections import MaximumLikelihood, VariationalKL
from vcl.recursion import Method, Predictive


class MethodEntry(NamedTuple):
    """A name for the command line, what it is, and how to build it from settings."""

    name: str
    about: str
    build: Callable[[Settings], Method[Any]]
    draws: bool = True
    """Whether prediction averages over draws; a point estimate needs only one."""


def ascent(s: Settings) -> Ascent:
    """How a task's data is fitted."""
    return Ascent(s.epochs, s.batch, s.lr, s.schedule)


def coreset_ascent(s: Settings) -> Ascent:
    """How a coreset is fitted."""
    return Ascent(s.coreset_epochs, s.coreset_batch, s.lr, s.schedule)


def variational(s: Settings, how: Ascent) -> VariationalKL:
    """proj by variational KL."""
    return VariationalKL(how, s.draws, s.estimator, s.start, s.init_var, s.init_sd)


def vcl(s: Settings, choose: CoresetRule, predictive: Predictive | None = None) -> Method[Any]:
    """VCL with a coreset rule."""
    refit = variational(s, coreset_ascent(s))
    return Method(variational(s, ascent(s)), choose, refit, predictive or s.predictive)


def batch_vi(s: Settings) -> Method[Any]:
    """All data so far in one joint fit, with the settings of a task's fit: the upper bound."""
    project = variational(s, ascent(s))
    return Method(project, Everything(), project, "joint")


def mle(s: Settings) -> Method[Any]:
    """Fine-tuning."""
    project = MaximumLikelihood(ascent(s), s.init_sd)
    return Method(project, Nothing(), project, "joint")


METHODS: tuple[MethodEntry, ...] = (
    MethodEntry("vcl", "variational continual learning, no coreset", lambda s: vcl(s, Nothing())),
    MethodEntry("vcl-random", "VCL + random coreset", lambda s: vcl(s, RandomK(s.coreset))),
    MethodEntry("vcl-kcenter", "VCL + K-center coreset", lambda s: vcl(s, KCenter(s.coreset))),
    MethodEntry(
        "vcl-budget",
        "VCL + random coreset of a fixed total size (that of one task), old points leave",
        lambda s: vcl(s, Budget(s.coreset), "joint"),
    ),
    MethodEntry("random-only", "the random coreset alone", lambda s: vcl(s, Only(RandomK(s.coreset)))),
    MethodEntry("kcenter-only", "the K-center coreset alone", lambda s: vcl(s, Only(KCenter(s.coreset)))),
    MethodEntry("batch-vi", "all data so far at once, an upper bound", batch_vi),
    MethodEntry("mle", "maximum likelihood (fine-tuning), the forgetting baseline", mle, draws=False),
)


def method(name: str) -> MethodEntry:
    """The method of this name."""
    for entry in METHODS:
        if entry.name == name:
            return entry
    raise unknown("method", name, [entry.name for entry in METHODS])
