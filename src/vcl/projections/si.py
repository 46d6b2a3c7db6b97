"""Synaptic intelligence (Zenke et al. 2017; the paper's section 5).

    theta_t = argmax_theta log p(D_t | theta) - lambda sum_d Omega_d (theta_d - theta_{t-1,d})^2
    omega_d = sum over optimiser steps of  grad_d log p(D_t | theta) * (change of theta_d in that step)
    Omega_d += max(0, omega_d) / ( (theta_{t,d} - theta_{t-1,d})^2 + damping )

omega divides the gained likelihood among the parameters. On a quadratic bowl a straight path to the bottom gives
Omega = half its curvature, so 2 Omega is the precision Sigma_t^{-1} of the paper's common form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import final

import torch

from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.quadratic import Quadratic, without_past
from vcl.errors import VclError
from vcl.fitting.loop import Ascent, Report, climb, silent
from vcl.fitting.standing import Path
from vcl.models.base import Model, held
from vcl.ops.penalties import add_path
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, engine_at_points, fresh, start_mean
from vcl.projections.quadratic import Lambda, Penalised, check_fit, lambda_column, on_held


@final
@dataclass(frozen=True)
class SynapticIntelligence:
    """Importance by the path integral over the optimiser's steps; the penalty is centred at the last estimate."""

    ascent: Ascent = field(default_factory=Ascent)
    lam: Lambda = 1.0
    damping: float = 1e-3
    init_sd: float = 0.1
    init: Init = "normal"
    draws: int = 10

    def initial(self, prior: MeanField) -> Quadratic:
        """The prior's mean, without a past."""
        return without_past(prior)

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if self.ascent.epochs < 1:
            raise VclError(
                f"epochs is {self.ascent.epochs}, but synaptic intelligence measures importance along the optimiser's "
                "steps; give at least 1 epoch, or use another method."
            )
        check_fit(self.ascent, self.lam)
        if self.ascent.average:
            raise VclError(
                f"average is {self.ascent.average}, but synaptic intelligence measures importance along the "
                "optimiser's steps, which do not lead to an average of iterates; give 0."
            )
        if not 0 < self.damping < inf:
            raise VclError(f"damping is {self.damping}; give a number above 0, such as 1e-3.")

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[Quadratic], rng: Rng, report: Report = silent) -> Quadratic:
        """The penalised maximiser and its importances, over the parameters that the data informs."""
        self.check()
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        past = q.restrict(q.layout.touched(data.heads))
        penalty = past.factor().scaled(lambda_column(self.lam, past.mean)).on(held(model, past.layout))
        objective = Penalised(model, past.layout, penalty, self.draws)
        start = start_mean(model, past, fresh(past, prior), self.init_sd, rng, self.init)
        path = Path((torch.zeros_like(start), start.clone()))
        fit = climb(objective, (start,), data, self.ascent, rng, report, "synaptic intelligence", path=path)
        for (theta,), step in fit:
            # theta is after the step, the gradient before it. That gradient includes the penalty's, which is added
            # back.
            (omega, before), size, g = path.kept, penalty.layout.size, step.gradients[0]
            add_path(omega[:, :size], before[:, :size], theta[:, :size], g[:, :size], *penalty[1:])
        (theta,), (omega, _) = path.now, path.kept
        importance = omega.clamp(min=0) / ((theta - start).square() + self.damping)
        importance = on_held(model, past.layout, importance)
        return q.merge(Quadratic(past.layout, theta, theta.clone(), past.precision + 2 * importance))
