"""Maximum likelihood: the projection to a single theta, which keeps nothing of q and so forgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.data import Data
from vcl.engines.forward import evaluate_stacked, evaluate_thetas
from vcl.engines.perceptron import fused
from vcl.engines.places import pieces
from vcl.engines.straight import straight_on_gpu
from vcl.errors import VclError
from vcl.fitting.loop import Ascent, Report, ascend, scaled_sum, silent
from vcl.fitting.step import Step, by_autograd
from vcl.models.base import Model, Perceptrons
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, fresh, small_random


@final
class LogLikelihood:
    """L(theta) = sum_n log p(y^(n) | theta, x^(n)); with latent variables the bound of each, over ``draws`` of z."""

    def __init__(self, model: Model, layout: Layout, draws: int = 1) -> None:
        if draws < 1:
            raise VclError(f"draws is {draws}; give at least 1.")
        self.model, self.layout, self.draws = model, layout, draws
        self.perceptrons = Perceptrons(model, layout)

    def noise(self, batch: Data) -> int:
        """None for theta, which is a point: only that of the latent variables."""
        return self.draws * batch.size * self.model.latent

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(theta) of each run, estimated from a batch."""

        def log_lik(params: Params, x: Tensor, y: Tensor, source: Tensor, *z: Tensor) -> Tensor:
            return self.model.log_lik(params, Data(x, y, source, batch.sources), *z)

        (theta,), values, model = parameters, (batch.x, batch.y, batch.source), self.model
        if not model.latent:
            found = evaluate_thetas(log_lik, self.layout, theta.unsqueeze(1), model.row_wise, *values)
            return scaled_sum(found[:, 0], total)
        z = noise.view(noise.shape[0], self.draws, batch.size, model.latent)
        if model.row_wise:
            found = evaluate_stacked(log_lik, pieces(self.layout, theta), *values, each=(z,))
        else:
            each = straight_on_gpu(log_lik, theta)
            found = evaluate_thetas(each, self.layout, theta.unsqueeze(1), False, *values, z)[:, 0]
        return scaled_sum(found.mean(1), total)

    @torch.no_grad()
    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Step:
        """L(theta) and its gradient: written out for a narrow perceptron on a CUDA device, by torch for others."""
        net = self.perceptrons.on(parameters[0], batch, fused.suits) if parameters[0].is_cuda else None
        if net is None:
            return by_autograd(self, parameters, batch, total, noise)
        value, g = fused.point_gradient(net, self.layout, parameters[0], batch, total)
        return Step(value, (g,))


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
    """argmax_theta sum_n log p(y^(n) | theta, x^(n)), climbed from ``start`` [R, D]."""
    (theta,) = ascend(LogLikelihood(model, layout, draws), (start,), data, ascent, rng, report, "maximum likelihood")
    return theta


@final
@dataclass(frozen=True)
class MaximumLikelihood:
    """theta_t = argmax_theta log p(D_t | theta), climbed from theta_{t-1}: fine-tuning, lambda_t = 0 in the paper.

    With latent variables this is the naive online VAE; ``draws`` counts those of z.
    """

    ascent: Ascent = field(default_factory=Ascent)
    init_sd: float = 0.1
    init: Init = "normal"
    draws: int = 10

    def initial(self, prior: MeanField) -> Point:
        """The prior's mean."""
        return Point(prior.layout, prior.mean)

    def __call__(self, target: Target[Point], rng: Rng, report: Report = silent) -> Point:
        """The maximiser over the parameters that the data touches; the others stay."""
        q, model, data, prior, *_ = target
        if data.size == 0:
            return q
        part = q.restrict(q.layout.touched(data.heads))
        start = small_random(part.layout, fresh(part, prior), part.mean, self.init_sd, rng, self.init)
        theta = maximum_likelihood(model, part.layout, start, data, self.ascent, rng, report, self.draws)
        return Point(q.layout, q.layout.put(q.mean, part.layout, theta))
