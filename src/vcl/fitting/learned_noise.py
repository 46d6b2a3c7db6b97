"""Learned noise of a regression, by coordinate ascent on q(theta) q(tau).

The model is y_c ~ N(f_c(x), 1 / tau_c) with the prior q_{t-1}(theta) prod_c Gamma(tau_c; a_{t-1}, b_{t-1}), shape and
rate. The best factors of q(theta) q(tau), each given the other, are

    given q(theta)   q(tau_c) = Gamma(a, b),  a = a_{t-1} + N/2,  b = b_{t-1} + 1/2 sum_n E_q (y_c^(n) - f_c(x^(n)))^2
    given q(tau)     q(theta): the usual fit, with the likelihood N(y; f, noise^2), noise_c = E[tau_c]^(-1/2)

since E_q log p(y | theta, tau) depends on tau through E[tau] alone, up to a constant. Each round starts from
yesterday's Gamma, so no example counts twice; when the rounds end, the new Gamma is tomorrow's prior:

    noise = before
    for _ in range(rounds):
        q = fit(q_before, Normal(noise.of_run(0)))
        noise = before.update(expected_squares(q, model, data, rng), data.size)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import final

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.data import Data, in_precision
from vcl.engines.choose import choose
from vcl.errors import VclError
from vcl.fitting.curvature import chunk_for, row_values
from vcl.models.base import HasOutputs, Model
from vcl.ops.bisection import bisect
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng

HALVINGS = 80
"""Steps of bisection for a bound of tau: as fine as float64."""


@final
@dataclass(frozen=True)
class NoiseBelief:
    """q(tau) = prod_c Gamma(tau_c; shape_c, rate_c) over the noise's precision of each target, [R, C] in float64."""

    shape: Tensor
    rate: Tensor

    @classmethod
    def prior(cls, targets: int, runs: int = 1, noise: float = 1.0, examples: float = 1.0) -> NoiseBelief:
        """The belief that ``examples`` errors, of mean square noise^2, would leave: Gamma(examples / 2, ...)."""
        if targets < 1 or runs < 1 or not 0 < noise < inf or not 0 < examples < inf:
            raise VclError(
                f"targets is {targets}, runs is {runs}, noise is {noise} and examples is {examples}; give at least 1 "
                "of the first two and finite numbers above 0 for the others."
            )
        shape = torch.full((runs, targets), examples / 2, dtype=torch.float64)
        return cls(shape, shape * noise**2)

    def update(self, expected_squares: Tensor, count: int) -> NoiseBelief:
        """The belief after ``count`` examples with sum_n E_q (y_c - f_c)^2 = ``expected_squares`` [R, C]."""
        if expected_squares.shape != self.rate.shape:
            raise VclError(
                f"expected_squares has shape {tuple(expected_squares.shape)} but the noise has {tuple(self.rate.shape)}"
                " (runs, targets); give one sum for each."
            )
        if count < 0 or not bool((expected_squares >= 0).all() & expected_squares.isfinite().all()):
            raise VclError(f"count is {count}; give at least 0, and finite sums of squares of at least 0.")
        return NoiseBelief(self.shape + count / 2, self.rate + expected_squares.to(self.rate) / 2)

    def fade(self, prior: NoiseBelief, share: float) -> NoiseBelief:
        """q^(1 - share) p^share, as :func:`vcl.beliefs.fading.fade` fades weights: means of shape and rate."""
        if not 0 <= share <= 1:
            raise VclError(f"share is {share}; give the share of the past to fade, from 0 to 1.")
        return NoiseBelief(torch.lerp(self.shape, prior.shape, share), torch.lerp(self.rate, prior.rate, share))

    @property
    def noise(self) -> Tensor:
        """E[tau]^(-1/2) [R, C], the deviation to fit theta with."""
        return (self.rate / self.shape).sqrt()

    def of_run(self, run: int) -> tuple[float, ...]:
        """:attr:`noise` of one run, as ``Normal(noise=...)`` takes it."""
        return tuple(self.noise[run].tolist())

    @property
    def sd(self) -> Tensor:
        """E[1 / tau]^(1/2) [R, C]: the deviation of y given f, a Student t; infinite if ``shape`` is at most 1."""
        return torch.where(self.shape > 1, self.rate / (self.shape - 1), inf).sqrt()

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The central credible interval of tau^(-1/2): its lower and upper bounds [R, C]."""
        if not 0 < level < 1:
            raise VclError(f"level is {level}; an interval holds a probability above 0 and below 1.")
        upper, lower = (self._quantile(p).rsqrt() for p in ((1 - level) / 2, (1 + level) / 2))
        return lower, upper

    def select(self, runs: Sequence[int]) -> NoiseBelief:
        """The selected runs, by position."""
        return NoiseBelief(self.shape[list(runs)], self.rate[list(runs)])

    def _quantile(self, level: float) -> Tensor:
        """The tau below which this probability lies, by bisection of its logarithm."""
        # P(b tau <= x) <= x^a / Gamma(a + 1) and, by Markov, P(b tau >= x) <= a / x.
        low = (torch.lgamma(self.shape + 1) + torch.tensor(level).double().log()) / self.shape - 1e-6
        high = self.shape.log() - torch.tensor(1 - level).double().log() + 1e-6
        log_x = bisect(lambda at: torch.special.gammainc(self.shape, at.exp()) >= level, low, high, HALVINGS)
        return log_x.exp() / self.rate


@torch.no_grad()
def expected_squares(q: Belief, model: Model, data: Data, rng: Rng, draws: int = 100) -> Tensor:
    """sum_n E_q (y_c^(n) - f_c(x^(n)))^2 [R, C] in float64, averaged over draws of theta.

    ``data`` has one head. Draws come in pairs theta = mean +- noise for a Gaussian belief, so that the mean of outputs
    which are linear in theta is exact. Examples are taken in blocks.
    """
    if draws < 1:
        raise VclError(f"draws is {draws}; give at least 1.")
    if not isinstance(model, HasOutputs):
        raise VclError(
            f"{type(model).__name__} has no outputs(params, x, head), which the noise is learned from; give it that "
            "method."
        )
    if len(data.heads) != 1 or not data.y.is_floating_point():
        raise VclError(
            f"the noise is learned from floating-point targets of one head, but these are {data.y.dtype} of the heads "
            f"{list(data.heads)}; give the examples of one head."
        )
    if not data.runs == q.mean.shape[0] == len(rng.seeds):
        raise VclError(
            f"the belief has {q.mean.shape[0]} runs, the data has {data.runs} and there are {len(rng.seeds)} seeds; "
            "give all three the same number of runs."
        )
    (head,) = data.heads
    data = in_precision(data, q.mean.dtype)
    q = q.restrict(q.layout.touched([head]))
    engine = choose(model, q.layout, data.heads, q.mean)
    half = draw_noise(-(-draws // 2) * q.layout.size, rng.generators(q.mean.device), q.mean)
    half = half.view(data.runs, -1, q.layout.size)
    total: Tensor | None = None
    size = chunk_for(data.runs * half.shape[1] * row_values(q.layout, data))
    for noise in (half, -half):
        theta = q.draw(noise)
        for x, y in zip(torch.split(data.x, size, dim=1), torch.split(data.y, size, dim=1), strict=True):
            f = engine.outputs(theta, x, head)
            error = y.reshape(len(f), 1, f.shape[2], -1).double() - f.double()
            found = error.square().sum(2).mean(1) / 2
            total = found if total is None else total + found
    assert total is not None
    return total
