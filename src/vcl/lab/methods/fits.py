"""Settings that several methods have: how data is fitted, and how curvature is taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp
from typing import Annotated, Literal

from vcl.fitting.curvature import Curvature
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.lab.settings import Count, Deviation, Lambda, Limit, Positive, Repeats, Share, Variance

E6 = exp(-6)
Estimator = Literal["local", "weights"]
Predictive = Annotated[Literal["joint", "per-head"], "one q_t for all heads, or one fitted to each head's points"]
Weight = Annotated[Lambda, "lambda, the weight of the past"]
Anchor = Annotated[
    Literal["own", "previous"], "whether each task's penalty is centred at its own estimate or at the last"
]
Damping = Annotated[Variance, "added to the squared distance that a weight moved"]


@dataclass(frozen=True)
class Rate:
    """The learning rate."""

    lr: Annotated[Positive, "learning rate of Adam"] = 1e-3
    schedule: Annotated[Literal["constant", "cosine"], "whether the learning rate stays or decays to 0"] = "constant"


@dataclass(frozen=True)
class Steps:
    """Every step of a task's fit."""

    epochs: Annotated[Repeats, "passes over a task's data"] = 100
    batch: Annotated[Count | None, "examples a step; none takes the whole task"] = 256
    rate: Rate = field(default_factory=Rate)

    def ascent(self) -> Ascent:
        """Ends at the last iterate."""
        return Ascent(self.epochs, self.batch, self.rate.lr, self.rate.schedule)


@dataclass(frozen=True)
class Fit:
    """A task's fit."""

    steps: Steps = field(default_factory=Steps)
    average: Annotated[Share, "last share of a fit's steps whose iterates are averaged"] = 0.0

    def ascent(self) -> Ascent:
        """Ends at the mean of its last iterates."""
        s = self.steps
        return Ascent(s.epochs, s.batch, s.rate.lr, s.rate.schedule, self.average)


@dataclass(frozen=True)
class PointFit:
    """A task's fit of a single theta."""

    fit: Fit = field(default_factory=Fit)
    init_sd: Annotated[Deviation, "standard deviation of the initial weights"] = 0.1


@dataclass(frozen=True)
class Bound:
    """How the variational lower bound is estimated, and where its variances start."""

    draws: Annotated[Count, "draws of theta a step"] = 10
    estimator: Annotated[Estimator, "local reparameterisation, or drawn weights"] = "weights"
    init_var: Annotated[Variance, "initial variance of the posterior"] = E6
    init_sd: Annotated[Deviation, "standard deviation of the initial means"] = 0.1


NewtonRate = Annotated[float, Limit(0, 2, "give Newton steps above 0 and up to 2", open=True)]
Forget = Annotated[float, Limit(0, 1e3, "give a number above 0, up to 1000", open=True)]
Momentum = Annotated[float, Limit(0, 0.999, "give a share from 0 (none) to 0.999")]


@dataclass(frozen=True)
class NaturalSteps:
    """Steps of natural gradients, in place of Adam's."""

    newton_rate: Annotated[NewtonRate, "longest step of the means, in Newton steps; it decays to 0"] = 1.0
    forget: Annotated[Forget, "how strongly early curvature is forgotten: it ends with the weight e^-forget"] = 25.0
    momentum: Annotated[Momentum, "share of the mean gradient that a step keeps"] = 0.9

    def natural(self) -> NaturalGradient:
        """As the core takes it."""
        return NaturalGradient(self.newton_rate, self.forget, self.momentum)


Start = Literal["continue", "restart"]


@dataclass(frozen=True)
class CoresetFit:
    """The coreset and its fit."""

    coreset: Annotated[Count, "points kept of each task"] = 200
    coreset_epochs: Annotated[Repeats, "passes over the coreset"] = 100
    coreset_batch: Annotated[Count | None, "points a step of the coreset's fit; none takes all"] = 256
    coreset_start: Annotated[Start, "whether the coreset's fit starts at q_t or at small random means"] = "continue"


@dataclass(frozen=True)
class Fisher:
    """Phi_t, the curvature of a task's log-likelihood."""

    fisher: Annotated[
        Literal["empirical", "true", "hessian"], "gradients of the labels given, of labels drawn, or second derivatives"
    ] = "empirical"
    fisher_samples: Annotated[Count | None, "examples that curvature is taken from; none takes all"] = None

    def curvature(self) -> Curvature:
        """As the core takes it."""
        return Curvature(self.fisher, self.fisher_samples)


@dataclass(frozen=True)
class KroneckerFisher:
    """A_t and G_t, the factors of each layer's curvature."""

    curvature: Annotated[
        Literal["expected", "draws", "mode"],
        "curvature averaged over the ways from the mode of q_t to its draws, over the draws alone, or at the mode",
    ] = "expected"
    labels: Annotated[
        Literal["true", "empirical", "exact"], "gradients of labels drawn, of the labels given, or of all labels"
    ] = "true"
    fisher_samples: Annotated[Count | None, "examples that curvature is taken from; none takes all"] = None
    curvature_rounds: Annotated[int, Limit(1, 1000), "rounds of the fixed point of curvature and q_t"] = 4
    curvature_draws: Annotated[int, Limit(1, 1000), "draws of q_t a round, each for its share of the examples"] = 8
    factors: Annotated[
        Literal["mean", "nearest"], "how factors of tasks are merged: mean of A and sum of G, or the nearest product"
    ] = "mean"
    head_factors: Annotated[Literal["kronecker", "diagonal"], "whether heads have factors or a diagonal"] = "kronecker"
    sharing: Annotated[
        Literal["expand", "reduce"], "rows of an example, as of a convolution: each by itself, or mean and sum"
    ] = "expand"

    def kronecker(self) -> KroneckerCurvature:
        """As the core takes it; at the mode there are no rounds and no draws."""
        how = KroneckerCurvature(
            self.curvature, self.labels, self.fisher_samples,
            rule=self.factors, heads=self.head_factors, sharing=self.sharing,
        )  # fmt: skip
        if self.curvature == "mode":
            return how
        return replace(how, rounds=self.curvature_rounds, draws=self.curvature_draws)
