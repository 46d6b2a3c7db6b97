"""MAP: the mode of a Gaussian prior at the last estimate, with unit precision (the paper's section 5).

    theta_t = argmax_theta log p(D_t | theta) - lambda/2 |theta - theta_{t-1}|^2

At the first task the prior p(theta) replaces the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch

from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.fitting.loop import Ascent, Report, ascend, silent
from vcl.models.base import Model, held
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, engine_at_points, fresh, start_mean
from vcl.projections.quadratic import Lambda, Penalised, check_fit, weight_of_past


@final
@dataclass(frozen=True)
class MaximumAPosteriori:
    """Sigma_t = I for every task. It does not keep the certainty of each parameter, so it forgets much.

    Parameters that no data has informed (all at the first task, new heads later) use the prior p(theta) instead,
    without lambda.
    """

    ascent: Ascent = field(default_factory=Ascent)
    lam: Lambda = 1.0
    init_sd: float = 0.1
    init: Init = "normal"
    draws: int = 10

    def initial(self, prior: MeanField) -> Point:
        """The prior's mean."""
        return Point(prior.layout, prior.mean)

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        check_fit(self.ascent, self.lam)

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[Point], rng: Rng, report: Report = silent) -> Point:
        """The mode over the parameters that the data informs; the others stay."""
        self.check()
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        part = q.restrict(q.layout.touched(data.heads))
        new = fresh(part, prior)
        # Sigma_{t-1}^{-1} = I, but the prior's precision for parameters without data.
        of_prior = (-prior.restrict(part.layout).log_var).exp().to(part.mean)
        precision = torch.where(part.layout.mask(new).to(part.mean.device), of_prior, torch.ones_like(part.mean))
        weight = weight_of_past(self.lam, part.layout, new, part.mean)
        penalty = DiagonalFactor(part.layout, part.mean, precision).scaled(weight)
        objective = Penalised(model, part.layout, penalty.on(held(model, part.layout)), self.draws)
        start = start_mean(model, part, new, self.init_sd, rng, self.init)
        (theta,) = ascend(objective, (start,), data, self.ascent, rng, report, "maximum a posteriori")
        return Point(q.layout, q.layout.put(q.mean, part.layout, theta))
