"""Laplace propagation (Smola et al. 2004; the paper's section 5), with diagonal precisions.

    theta_t = argmax_theta log p(D_t | theta) + lambda log q_{t-1}(theta)
    Sigma_t^{-1} = Phi_t + Sigma_{t-1}^{-1},   Phi_t = - diag of the Hessian of log p(D_t | theta) at theta_t

Then q_t = N(theta_t, Sigma_t), and q_0 = p.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import final

from vcl.beliefs.mean_field import MeanField
from vcl.fitting.curvature import Curvature
from vcl.fitting.journal import kept
from vcl.fitting.loop import Ascent, Report, ascend, silent
from vcl.models.base import Model, held
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, engine_at_points, fresh, start_mean
from vcl.projections.quadratic import Lambda, Penalised, check_fit, weight_of_past


@final
@dataclass(frozen=True)
class LaplacePropagation:
    """A Gaussian at the mode; the curvature there is added to the precision, which starts at the prior's.

    lambda = 1 is Bayes' rule; the paper tunes it. It weights the information of previous data only: the first task and
    new heads use the plain prior. For networks ``curvature`` is the Fisher information, as in the paper;
    ``Curvature("hessian")`` is the definition, for small models.
    """

    ascent: Ascent = field(default_factory=Ascent)
    lam: Lambda = 1.0
    curvature: Curvature = field(default_factory=Curvature)
    init_sd: float = 0.1
    init: Init = "normal"
    draws: int = 10

    def initial(self, prior: MeanField) -> MeanField:
        """q_0 = p."""
        return prior

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        check_fit(self.ascent, self.lam)
        self.curvature.check()

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> MeanField:
        """N(mode, curvature^{-1}) over the parameters that the data informs; the others keep their bits."""
        self.check()
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        previous = q.restrict(q.layout.touched(data.heads))
        known = held(model, previous.layout)
        factor = previous.factor()
        new = fresh(previous, prior)
        weight = weight_of_past(self.lam, previous.layout, new, previous.mean)
        objective = Penalised(model, previous.layout, factor.scaled(weight).on(known), self.draws)
        start = start_mean(model, previous, new, self.init_sd, rng, self.init)
        (theta,) = ascend(objective, (start,), data, self.ascent, rng, report, "Laplace propagation")
        # Sigma_t^{-1} = Phi_t + Sigma_{t-1}^{-1}
        at = rng.at("curvature")
        phi = kept(
            report, "curvature", at, theta, lambda: {"phi": self.curvature(model, previous.layout, theta, data, at)}
        )["phi"]
        precision = phi + factor.precision
        # A parameter without a posterior is a point, with variance 0.
        log_var = previous.layout.pad(-previous.layout.cut(precision, known).log(), known, -inf)
        return q.merge(MeanField(previous.layout, theta, log_var))
