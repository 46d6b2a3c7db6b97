"""Methods with Kronecker-factored posteriors: their settings, and the projections that these make."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from vcl.coresets import RandomK
from vcl.fitting.loop import Ascent
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.methods.fits import Estimator, Fit, KroneckerFisher, NaturalSteps, Predictive, Weight
from vcl.lab.settings import Count, Repeats
from vcl.projections import KroneckerLaplace, KroneckerVariational
from vcl.recursion import Method


@dataclass(frozen=True)
class LpKron:
    """Laplace propagation with Kronecker factors."""

    fit: Fit = field(default_factory=Fit)
    lam: Weight = 1.0
    phi: KroneckerFisher = field(default_factory=KroneckerFisher)


@dataclass(frozen=True)
class LpKronCoreset:
    """Laplace propagation with Kronecker factors and a coreset."""

    lp: LpKron = field(default_factory=LpKron)
    coreset: Annotated[Count, "points kept of each task"] = 200
    coreset_epochs: Annotated[Repeats, "passes over the coreset"] = 100
    coreset_batch: Annotated[Count | None, "points a step of the coreset's fit; none takes all"] = 256
    predictive: Predictive = "joint"


@dataclass(frozen=True)
class VclKron:
    """VCL with Kronecker factors: Laplace propagation, and a variational fit of as many epochs from there."""

    lp: LpKron = field(default_factory=LpKron)
    draws: Annotated[Count, "draws of theta a step"] = 10
    estimator: Annotated[Estimator, "local reparameterisation, or drawn weights"] = "weights"


@dataclass(frozen=True)
class VclKronNatural:
    """VCL with Kronecker factors, fitted by natural gradients; ``lr`` is that of Laplace propagation."""

    vcl: VclKron = field(default_factory=VclKron)
    natural: NaturalSteps = field(default_factory=NaturalSteps)


@dataclass(frozen=True)
class VclKronCoreset:
    """VCL with Kronecker factors and a coreset."""

    vcl: VclKron = field(default_factory=VclKron)
    coreset: Annotated[Count, "points kept of each task"] = 200
    coreset_epochs: Annotated[Repeats, "passes over the coreset"] = 100
    coreset_batch: Annotated[Count | None, "points a step of the coreset's fit; none takes all"] = 256
    predictive: Predictive = "joint"


def lp_kron(s: LpKron, prior: bool = True) -> Method[Any]:
    """Laplace propagation with Kronecker factors; EWC without the prior."""
    return Method(KroneckerLaplace(s.fit.ascent(), s.lam, s.phi.kronecker(), prior))


def lp_kron_coreset(s: LpKronCoreset) -> Method[Any]:
    """Laplace propagation with Kronecker factors and a random coreset."""
    first = s.lp.fit.ascent()
    again = replace(first, epochs=s.coreset_epochs, batch=s.coreset_batch)
    project, refit = (KroneckerLaplace(how, s.lp.lam, s.lp.phi.kronecker()) for how in (first, again))
    return Method(project, RandomK(s.coreset), refit, s.predictive)


def kronecker_variational(s: VclKron, how: Ascent) -> KroneckerVariational:
    """proj by variational KL with Kronecker factors; both stages are fitted alike."""
    return KroneckerVariational(KroneckerLaplace(how, s.lp.lam, s.lp.phi.kronecker()), how, s.draws, s.estimator)


def vcl_kron_natural(s: VclKronNatural) -> Method[Any]:
    """VCL with Kronecker factors by natural gradients."""
    project = kronecker_variational(s.vcl, s.vcl.lp.fit.ascent())
    return Method(replace(project, natural=s.natural.natural()))


def vcl_kron_coreset(s: VclKronCoreset) -> Method[Any]:
    """VCL with Kronecker factors and a random coreset."""
    first = s.vcl.lp.fit.ascent()
    again = replace(first, epochs=s.coreset_epochs, batch=s.coreset_batch)
    refit = kronecker_variational(s.vcl, again)
    return Method(kronecker_variational(s.vcl, first), RandomK(s.coreset), refit, s.predictive)


COOLED = {"schedule": "cosine", "batch": 256}
"""Curvature is taken where the fit ends, so the learning rate decays to 0; full batches would take too few steps."""

ONE_DRAW = {**COOLED, "draws": 1, "estimator": "local"}
"""A variational fit by units takes one draw a step: their noise is independent for every example."""

NEAR = {**ONE_DRAW, "forget": 2.0}
"""The fit starts at the result of Laplace propagation, of which natural gradients keep an eighth."""

FACTOR_GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""lambda around 1, which is Bayes' rule."""

KRONECKER: tuple[MethodEntry, ...] = (
    MethodEntry(
        "lp-kron", "Laplace propagation, Kronecker-factored: curvature averaged over the posterior",
        LpKron, lp_kron, draws=False, values=COOLED, version=3, grid=FACTOR_GRID,
    ),
    MethodEntry(
        "lp-kron-random", "lp-kron + random coreset", LpKronCoreset, lp_kron_coreset, draws=False, values=COOLED,
        grid=FACTOR_GRID,
    ),
    MethodEntry(
        "ewc-kron", "lp-kron without a prior: EWC with Kronecker factors, anchored at the last estimate",
        LpKron, lambda s: lp_kron(s, prior=False), draws=False, values=COOLED, version=3, grid=FACTOR_GRID,
    ),
    MethodEntry(
        "vcl-kron", "VCL with a Kronecker-factored posterior: variational fit started at lp-kron's result",
        VclKron, lambda s: Method(kronecker_variational(s, s.lp.fit.ascent())), values=ONE_DRAW, version=3,
        grid=FACTOR_GRID,
    ),
    MethodEntry(
        "vcl-kron-natural", "vcl-kron, its variational fit by natural gradients", VclKronNatural, vcl_kron_natural,
        values=NEAR, version=2, grid=FACTOR_GRID,
    ),
    MethodEntry(
        "vcl-kron-random", "vcl-kron + random coreset", VclKronCoreset, vcl_kron_coreset, values=ONE_DRAW, version=3,
        grid=FACTOR_GRID,
    ),
)  # fmt: skip
