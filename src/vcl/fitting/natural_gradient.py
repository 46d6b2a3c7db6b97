"""Natural gradients for mean-field Gaussians: variational online Newton with reparameterised curvature.

With q(theta_d) = N(mu_d, 1/s_d), the prior's precision s0_d and L(q) the lower bound, the gradient of the bound holds
the curvature that Newton's method needs, without bias and without second derivatives (Bonnet, Price):

    dL/dmu = E_q[ d log p / d theta ] - s0 (mu - mu0)
    dL/dlog sigma^2 = 1/2 ( 1 - ( E_q[ -d^2 log p / d theta^2 ] + s0 ) / s )

The natural-gradient step of the precision has length rho, and the second-order term of its retraction keeps it
positive, as in IVON (Shen et al., 2024), with u = -2 rho dL/dlog sigma^2:

    s  <-  s (1 + u + u^2 / 2)      since   s (1 + u) = (1 - rho) s + rho ( E_q[ -d^2 log p / d theta^2 ] + s0 )

The step of the mean is Newton's, damped by the noise v of the gradient and never longer than sigma:

    m  <-  m + gain (g - m),    v  <-  v + gain ((g - m)^2 - v),      g = dL/dmu, gain = max(1/k, 1 - momentum)
    mu <-  mu + sigma clip( rate sigma m / (1 + sigma^2 v), -1, 1 )

v sets only the length of a step, never where it ends: the curvature is not a squared gradient. All of it is invariant
to a change of the parameters' units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import cos, expm1, inf, log1p, pi
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.ops.adam import make_adam

PIECE = 2**18
"""The most values of a run that a step processes at once on a CPU; this bounds the memory of temporaries."""

WAIT = 0.3
"""The part of a fit in which the steps of the means grow to their full length."""


class Rates(NamedTuple):
    """The rates of one step."""

    rho: float
    """The step of the precision: the weight of the new curvature."""
    gain: float
    """The weight of the new gradient in its mean and in its noise."""
    rate: float
    """The step of the mean, in Newton steps."""


@final
@dataclass(frozen=True)
class NaturalGradient:
    """Steps of natural gradients, for :class:`vcl.projections.VariationalKL` in place of Adam's.

    Their lengths follow from the number of steps K of a fit:

        rho_k = (1 - e^{-3 forget / K}) (1 - k/K)^2:  the start's weight in the precision at the end is about e^-forget
        rate_k = rate min(1, k / 0.3 K)^2 (1 + cos(pi k/K)) / 2:  means wait until variances suit them, and come to rest

    so that ``init_var`` matters no more at the end, and the last steps average the noise of many draws.
    """

    rate: float = 1.0
    forget: float = 25.0
    momentum: float = 0.9

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if not 0 < self.rate <= 2:
            raise VclError(f"rate is {self.rate}; give Newton steps of the mean above 0 and up to 2, such as 1.")
        if not 0 < self.forget < inf:
            raise VclError(f"forget is {self.forget}; give a finite number above 0, such as 25.")
        if not 0 <= self.momentum < 1:
            raise VclError(f"momentum is {self.momentum}; give a share from 0 (none) to below 1, such as 0.9.")

    def rates(self, step: int, steps: int) -> Rates:
        """The rates of a step, counted from 0."""
        part = step / steps
        rho = -expm1(-3 * self.forget / steps) * (1 - part) ** 2
        rate = self.rate * min(1.0, part / WAIT) ** 2 * 0.5 * (1 + cos(pi * part))
        return Rates(rho, max(1 / (step + 1), 1 - self.momentum), rate)

    def reach(self, steps: int) -> float:
        """The farthest that a log variance can grow in so many steps, where no data holds it."""
        rhos = (self.rates(step, steps).rho for step in range(steps))
        return -sum(log1p(-rho + rho**2 / 2) for rho in rhos)

    def optimiser(self, steps: int, scale: int = 1) -> Callable[[tuple[Tensor, ...], float], Natural]:
        """Makes the optimiser of a fit of so many steps; the optimised logs are log sigma^2 / ``scale``."""
        self.check()
        return partial(Natural, settings=self, steps=steps, scale=scale)


@final
class Natural:
    """Moves means and logs [R, D] in place by natural gradients, and points, which have no variance, by Adam.

    On a CPU each run is computed by itself, in the same memory, so that a run's bits do not depend on the others. On a
    GPU the rates of all steps are a table there and the step counts itself, so that it can be captured.
    """

    def __init__(
        self, parameters: tuple[Tensor, ...], lr: float, settings: NaturalGradient, steps: int, scale: int
    ) -> None:
        mean, log, *rest = (value.detach() for value in parameters)
        self.mean, self.log, self.scale, self.steps = mean, log, scale, steps
        self.slope, self.noise = torch.zeros_like(mean), torch.zeros_like(mean)
        self.points = make_adam(tuple(rest), lr) if rest else None
        rates = [settings.rates(step, steps) for step in range(steps)]
        self.rates = [(-2 * rho / scale, gain, rate) for rho, gain, rate in rates]
        self.count = torch.zeros(1, dtype=torch.int64, device=mean.device)
        size, every = mean.shape[1], slice(None)
        self.table: Tensor | None = None
        if mean.is_cuda:
            self.table = torch.tensor(self.rates, dtype=mean.dtype, device=mean.device)
            self.places = [(every, every)]
            self.memory = torch.empty(2, *mean.shape, dtype=mean.dtype, device=mean.device)
        else:
            starts = range(0, size, PIECE)
            self.places = [
                (slice(run, run + 1), slice(first, first + PIECE)) for run in range(len(mean)) for first in starts
            ]
            self.memory = mean.new_empty(2, 1, min(size, PIECE))

    def rate(self, lr: float) -> None:
        """Set the learning rate of the points in the next steps."""
        if self.points is not None:
            self.points.rate(lr)

    def held(self) -> tuple[Tensor, ...]:
        """The means of the gradient and of its noise, the number of steps, and what the points' optimiser holds."""
        return (self.slope, self.noise, self.count, *(() if self.points is None else self.points.held()))

    def step(self, gradients: tuple[Tensor, ...]) -> None:
        """Take one step uphill."""
        g_mean, g_log, *rest = gradients
        now = self._now()
        for at in self.places:
            self._move(at, g_mean[at], g_log[at], now)
        if self.points is not None:
            self.points.step(tuple(rest))

    def _now(self) -> tuple[float, float, float] | tuple[Tensor, ...]:
        """-2 rho / scale, gain and rate of this step; those of the last step after it."""
        if self.table is None:
            done = int(self.count)
            self.count.fill_(min(done + 1, self.steps - 1))
            return self.rates[done]
        row = self.table.index_select(0, self.count)[0]
        self.count.add_(1).clamp_(max=self.steps - 1)
        return row.unbind(0)

    def _move(
        self,
        at: tuple[slice, slice],
        g_mean: Tensor,
        g_log: Tensor,
        now: tuple[float, float, float] | tuple[Tensor, ...],
    ) -> None:
        """One step of the runs and coordinates ``at``."""
        turn, gain, rate = now
        mean, log, m, v = self.mean[at], self.log[at], self.slope[at], self.noise[at]
        one, two = self.memory[..., : mean.shape[1]]
        u = torch.mul(g_log, turn, out=one)
        log.sub_(torch.addcmul(u, u, u, value=0.5, out=two).log1p_(), alpha=1 / self.scale)
        excess = torch.sub(g_mean, m, out=one)
        v.lerp_(excess.square_(), gain)
        m.lerp_(g_mean, gain)
        sd = torch.mul(log, 0.5 * self.scale, out=one).exp_()
        damped = torch.mul(v, sd, out=two).mul_(sd).add_(1)  # 1 + sigma^2 v
        damped.reciprocal_().mul_(sd).mul_(m).mul_(rate).clamp_(-1, 1)
        mean.addcmul_(sd, damped)
