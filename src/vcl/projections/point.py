"""Maximum likelihood: the projection to a single theta. It ignores q, so it forgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.data import Data, weight_of_each
from vcl.engines.choose import Engine, choose
from vcl.engines.general import General
from vcl.errors import VclError
from vcl.fitting.guard import Climbed
from vcl.fitting.loop import Ascent, Report, ascend, scaled_sum, silent
from vcl.fitting.step import Step
from vcl.models.base import Model
from vcl.ops.noise import NoiseShape
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, engine_at_points, fresh, start_mean


@final
class LogLikelihood:
    """L(theta) = sum_n log p(y^(n) | theta, x^(n)); with latent variables each example's bound, by ``draws`` of z."""

    def __init__(self, model: Model, layout: Layout, draws: int = 1) -> None:
        if draws < 1:
            raise VclError(f"draws is {draws}; give at least 1.")
        self.model, self.layout, self.draws = model, layout, draws
        self.engines: dict[tuple[str, ...], Engine] = {}

    def engine(self, batch: Data, like: Tensor) -> Engine:
        """The engine that computes L(theta) on such batches."""
        if batch.heads not in self.engines:
            self.engines[batch.heads] = choose(self.model, self.layout, batch.heads, like)
        return self.engines[batch.heads]

    def climbed(self) -> tuple[Climbed, ...]:
        """What the optimised parameters are."""
        return (Climbed("weights", self.layout),)

    def noise(self, batch: Data) -> int:
        """The noise of the latent variables only: theta is a point."""
        return self.noise_shape(batch).size(batch.size)

    def noise_shape(self, batch: Data) -> NoiseShape:
        """What it is for."""
        return NoiseShape(self.draws, 0, (self.model.latent,) if self.model.latent else ())

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(theta) of each run [R], estimated from a batch; differentiable by torch."""
        engine, z = General(self.model, self.layout), self._latent(batch, noise)
        theta = parameters[0].unsqueeze(1).expand(-1, 1 if z is None else self.draws, -1)
        return scaled_sum(engine.log_lik(theta, batch, z).mean(1), total)

    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Step:
        """L(theta) and its gradient."""
        (theta,), share = parameters, weight_of_each(batch.size, total)
        value, g = self.engine(batch, theta).point_gradient(theta, batch, share, self._latent(batch, noise))
        return Step(share * value, (g,))

    def _latent(self, batch: Data, noise: Tensor) -> Tensor | None:
        """The noise of the latent variables [R, S, B, latent], if any."""
        if not self.model.latent:
            return None
        return noise.view(len(noise), self.draws, batch.size, self.model.latent)


def maximum_likelihood(
    model: Model,
    layout: Layout,
    start: Tensor,
    data: Data,
    ascent: Ascent,
    rng: Rng,
    report: Report = silent,
    draws: int = 1,
) -> Tensor:
    """argmax_theta sum_n log p(y^(n) | theta, x^(n)) [R, D], by ascent from ``start`` [R, D]."""
    (theta,) = ascend(LogLikelihood(model, layout, draws), (start,), data, ascent, rng, report, "maximum likelihood")
    return theta


@final
@dataclass(frozen=True)
class MaximumLikelihood:
    """theta_t = argmax_theta log p(D_t | theta), by ascent from theta_{t-1}: fine-tuning, lambda_t = 0 in the paper.

    With latent variables this is the naive online VAE; ``draws`` is the number of draws of z.
    """

    ascent: Ascent = field(default_factory=Ascent)
    init_sd: float = 0.1
    init: Init = "normal"
    draws: int = 10

    def initial(self, prior: MeanField) -> Point:
        """The prior's mean."""
        return Point(prior.layout, prior.mean)

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[Point], rng: Rng, report: Report = silent) -> Point:
        """The maximiser over the parameters that the data informs; the others stay."""
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        part = q.restrict(q.layout.touched(data.heads))
        start = start_mean(model, part, fresh(part, prior), self.init_sd, rng, self.init)
        theta = maximum_likelihood(model, part.layout, start, data, self.ascent, rng, report, self.draws)
        return Point(q.layout, q.layout.put(q.mean, part.layout, theta))
