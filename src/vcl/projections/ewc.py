"""Elastic weight consolidation (Kirkpatrick et al. 2017; the paper's section 5).

    theta_t = argmax_theta log p(D_t | theta) - 1/2 sum_{t'<t} lambda_t' (theta - theta_t')^T Phi_t' (theta - theta_t')
    Phi_t = diag sum_n ( grad_theta log p(y^(n) | theta, x^(n)) )^2 at theta_t

Unlike Laplace propagation it has no prior and keeps an anchor for each task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, final

from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.quadratic import Quadratic, without_past
from vcl.errors import unknown
from vcl.fitting.curvature import Curvature
from vcl.fitting.journal import kept
from vcl.fitting.loop import Ascent, Report, ascend, silent
from vcl.models.base import Model, held
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, engine_at_points, fresh, start_mean
from vcl.projections.quadratic import Lambda, Penalised, check_fit, lambda_column

Anchor = Literal["own", "previous"]
ANCHORS: tuple[Anchor, ...] = ("own", "previous")


@final
@dataclass(frozen=True)
class ElasticWeightConsolidation:
    """One quadratic per past task, with its own anchor and lambda and no prior; their sum is stored as one quadratic.

    Task t' keeps the lambda_t' it was learned with. Another ``lam`` for a later task weights only that task.

    ``anchor="own"`` anchors task t' at its solution theta_t', as every implementation does; ``"previous"`` at
    theta_{t'-1}, the start of its fit, as printed in the paper.
    """

    ascent: Ascent = field(default_factory=Ascent)
    lam: Lambda = 1.0
    curvature: Curvature = field(default_factory=Curvature)
    anchor: Anchor = "own"
    init_sd: float = 0.1
    init: Init = "normal"
    draws: int = 10

    def initial(self, prior: MeanField) -> Quadratic:
        """The prior's mean, without a past."""
        return without_past(prior)

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        check_fit(self.ascent, self.lam)
        self.curvature.check()
        if self.anchor not in ANCHORS:
            raise unknown("anchor", self.anchor, ANCHORS)

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[Quadratic], rng: Rng, report: Report = silent) -> Quadratic:
        """The penalised maximiser and its Fisher information, over the parameters that the data informs."""
        self.check()
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        past = q.restrict(q.layout.touched(data.heads))
        penalty = past.factor().on(held(model, past.layout))  # includes the lambdas
        objective = Penalised(model, past.layout, penalty, self.draws)
        start = start_mean(model, past, fresh(past, prior), self.init_sd, rng, self.init)
        (theta,) = ascend(objective, (start,), data, self.ascent, rng, report, "elastic weight consolidation")
        at = rng.at("curvature")
        phi = kept(
            report, "curvature", at, theta, lambda: {"phi": self.curvature(model, past.layout, theta, data, at)}
        )["phi"]
        anchor = theta if self.anchor == "own" else start
        return q.merge(past._replace(mean=theta).add(anchor, lambda_column(self.lam, phi) * phi))
