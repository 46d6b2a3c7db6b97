"""Variational continual learning with a Kronecker-factored Gaussian: the paper's eq. (1) in another family.

    q_t = argmin_q KL( q(theta) || q_{t-1}(theta) p(D_t | theta) / Z_t ),   q Kronecker-factored in a fixed basis

Laplace propagation gives the basis, the eigenvectors of its factors, and the start. Then means and variances are
fitted by gradients of L(q), with KL in closed form. lambda = 1 is the paper's equation. Another lambda tempers what
q_{t-1} knows from data: its precision P becomes lambda (P - delta) + delta, where delta is the prior's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from vcl.beliefs.kronecker import Kronecker
from vcl.beliefs.kronecker_fit import InBasis
from vcl.beliefs.mean_field import MeanField
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError, unknown
from vcl.fitting.health import Health, health_in_basis
from vcl.fitting.loop import Ascent, Report, ascend, silent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.models.base import Model
from vcl.ops.adam import make_adam
from vcl.ops.rng import Rng
from vcl.projections.base import Target
from vcl.projections.kronecker import KroneckerLaplace, cooled, prior_precision
from vcl.projections.quadratic import Lambda, lambda_column
from vcl.projections.vi import Elbo


@final
@dataclass(frozen=True)
class KroneckerVariational:
    """A variational fit that starts at the result of Laplace propagation, in its basis.

    ``laplace`` has lambda and the curvature; ``ascent`` is the variational fit, with ``draws`` draws a step. Its last
    report has its :class:`vcl.fitting.health.Health`: the variances are those of Z, and the KL is that of each layer.
    """

    laplace: KroneckerLaplace = field(default_factory=KroneckerLaplace)
    ascent: Ascent = field(default_factory=cooled)
    draws: int = 1
    estimator: Estimator = "local"
    natural: NaturalGradient | None = None
    """Steps of natural gradients instead of Adam's."""

    @property
    def lam(self) -> Lambda:
        """lambda, that of Laplace propagation."""
        return self.laplace.lam

    def initial(self, prior: MeanField) -> Kronecker:
        """q_0 = p."""
        return Kronecker.from_prior(prior)

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        self.laplace.check()
        self.ascent.check()
        if self.natural is not None:
            self.natural.check()
        if self.draws < 1:
            raise VclError(f"draws is {self.draws}; give at least 1.")
        if self.estimator not in ESTIMATORS:
            raise unknown("estimator", self.estimator, ESTIMATORS)

    def select(self, runs: list[int]) -> KroneckerVariational:
        """The projection for the selected runs."""
        lam = self.laplace.lam
        chosen = tuple(lam[run] for run in runs) if isinstance(lam, tuple) else lam
        return replace(self, laplace=replace(self.laplace, lam=chosen))

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        q = self.initial(prior.restrict(prior.layout.touched(heads)))
        return Elbo(model, InBasis(q, {}), self.draws, self.estimator).bound_for(heads).name

    def __call__(self, target: Target[Kronecker], rng: Rng, report: Report = silent) -> Kronecker:
        """The maximiser of L(q) over the parameters that the data informs; the others keep their bits."""
        self.check()
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        part = q.layout.touched(data.heads)
        start = self.laplace(target, rng, report).restrict(part)
        previous = tempered(q.restrict(part), model, prior, self.laplace.lam)
        elbo = Elbo(model, InBasis(previous, start.blocks), self.draws, self.estimator)
        natural = self.natural
        optimiser = make_adam if natural is None else natural.optimiser(self.ascent.steps(data.size), elbo.fit.scale)
        ends = ascend(
            elbo, elbo.parameters(start), data, self.ascent, rng.at("variational"), report, "variational fit",
            optimiser, partial(self._health, elbo, start, data.size),
        )  # fmt: skip
        return q.merge(elbo.belief(ends))

    def _health(self, elbo: Elbo, start: Kronecker, size: int, parameters: tuple[Tensor, ...]) -> Health:
        """How far the fit got that ends here, from the variances of Laplace propagation."""
        natural, adams = self.natural, elbo.fit.scale * self.ascent.reach(size)
        reach = adams if natural is None else natural.reach(self.ascent.steps(size))
        return health_in_basis(elbo.fit, parameters, elbo.parameters(start), reach, natural is not None)


def tempered(q: Kronecker, model: Model, prior: MeanField, lam: Lambda) -> Kronecker:
    """q with the precision lambda (P - delta) + delta; a run with lambda = 1 keeps its bits.

    A fitted variance may be above the prior's. Then nothing is known from data, and lambda != 1 takes the prior's.
    """
    if lam == 1:
        return q
    delta, column = prior_precision(model, q, prior), lambda_column(lam, q.mean)
    precision = column * ((-q.log_var).exp() - delta).clamp(min=0) + delta
    return q._replace(log_var=torch.where(column == 1, q.log_var, -torch.log(precision)))
