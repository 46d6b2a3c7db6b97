"""Hamiltonian Monte Carlo moves of particles that leave q(theta) p(D | theta)^beta invariant, for R runs at once."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.belief import Factor
from vcl.beliefs.layout import Layout
from vcl.data import Data
from vcl.engines.choose import choose
from vcl.fitting.processes import current, own_pieces
from vcl.models.base import Model
from vcl.ops.rng import Rng

ROWS_IN_FLIGHT = 2**19
"""The most rows (runs x particles x examples) of one forward pass."""

LOWEST = -1e30
"""Replaces a log-likelihood that is NaN or below it; such a theta has no weight."""

TARGET_ACCEPTANCE = 0.75
"""The acceptance rate that the step size is adapted to; near the optimum in any dimension."""

JITTER = 0.3
"""Each particle's step is its run's times 1 +- this, so that no trajectory spans a full period of a direction."""


class Swarm(NamedTuple):
    """Particles theta [R, K, D], log p(D | theta) [R, K] and its gradient [R, K, D] (zeros if not requested)."""

    theta: Tensor
    log_lik: Tensor
    gradient: Tensor

    def take(self, index: Tensor) -> Swarm:
        """The particles at ``index`` [R, K]."""
        wide = index.unsqueeze(-1).expand_as(self.theta)
        return Swarm(self.theta.gather(1, wide), self.log_lik.gather(1, index), self.gradient.gather(1, wide))

    def where(self, chosen: Tensor, other: Swarm) -> Swarm:
        """These particles where ``chosen`` [R, K], and those of ``other`` elsewhere."""
        wide = chosen.unsqueeze(-1)
        theta, gradient = (torch.where(wide, a, b) for a, b in ((self.theta, other.theta), (self[2], other[2])))
        return Swarm(theta, torch.where(chosen, self.log_lik, other.log_lik), gradient)


@final
class LogLikelihoods:
    """log p(D | theta) = sum_n log p(y^(n) | theta, x^(n)) at many theta, in blocks of bounded size."""

    def __init__(self, model: Model, layout: Layout, data: Data) -> None:
        self.model, self.layout, self.data = model, layout, data

    def __call__(self, theta: Tensor, gradient: bool = True) -> Swarm:
        """The particles theta [R, K, D] with their log-likelihoods and, if requested, gradients."""
        self.engine = choose(self.model, self.layout, self.data.heads, theta)
        runs = self.data.runs
        block = max(1, min(self.data.size, ROWS_IN_FLIGHT // runs))
        blocks = torch.split(theta, max(1, ROWS_IN_FLIGHT // (runs * block)), dim=1)
        parts = [self._sum(part, block, gradient) for part in blocks]
        log_lik, slope = (torch.cat(pieces, dim=1) for pieces in zip(*parts, strict=True))
        return Swarm(theta, log_lik.nan_to_num(nan=LOWEST, neginf=LOWEST).clamp_min(LOWEST), slope)

    def at(self, runs: Tensor) -> LogLikelihoods:
        """The log-likelihoods of the selected runs; shared examples stay shared."""
        x, y, source = (
            part[: len(runs)] if part.stride(0) == 0 else part[runs]
            for part in (self.data.x, self.data.y, self.data.source)
        )
        return LogLikelihoods(self.model, self.layout, Data(x, y, source, self.data.sources))

    def _sum(self, theta: Tensor, block: int, gradient: bool) -> tuple[Tensor, Tensor]:
        """The sums over all examples, ``block`` of them at a time."""
        theta = theta.detach()
        total, slope = theta.new_zeros(theta.shape[:2]), torch.zeros_like(theta)
        if self.data.size == 0:
            return total, slope
        for x, y, source in own_pieces(self.data[:3], block):
            batch = Data(x, y, source, self.data.sources)
            if gradient:
                log_lik, g = self.engine.gradient(theta, batch, 1.0)
                slope += g
            else:
                log_lik = self.engine.log_lik(theta, batch).sum(-1)
            total += log_lik
        current().add(total, slope)
        return total, slope


def move(
    swarm: Swarm, beta: Tensor, q: Factor, likelihoods: LogLikelihoods, scale: Tensor, step: Tensor, leapfrog: int,
    rng: Rng,
) -> tuple[Swarm, Tensor, Tensor]:  # fmt: skip
    """One trajectory per particle, accepted or rejected: (the particles, which moved [R, K], the next step size [R]).

    H(theta, r) = -log q(theta) - beta log p(D | theta) + |r|^2 / 2, simulated for ``leapfrog`` steps in theta / scale;
    the end is accepted with probability min(1, exp(H_start - H_end)). beta [R]; scale [R, D]: particle deviations.
    """
    noise, uniform = draw(swarm.theta, rng)
    beta, width = beta.to(noise)[:, None], scale[:, None]
    size = (step[:, None] * (1 + JITTER * (2 * uniform[..., 0] - 1))).to(noise).unsqueeze(-1)
    now, momentum = swarm, noise
    before, slope = log_density(now, beta, q)
    after, momentum = before, momentum + 0.5 * size * width * slope
    for done in range(1, leapfrog + 1):
        now = likelihoods(now.theta + size * width * momentum)
        after, slope = log_density(now, beta, q)
        # Half momentum steps at both ends, full ones between.
        momentum = momentum + (0.5 if done == leapfrog else 1.0) * size * width * slope
    gain = after - before - 0.5 * (momentum.square().sum(-1) - noise.square().sum(-1))
    # A non-finite trajectory is rejected.
    acceptance = gain.nan_to_num(nan=-torch.inf, neginf=-torch.inf).clamp(max=0).exp()
    moved = uniform[..., 1] < acceptance
    return now.where(moved, swarm), moved, step * (acceptance.mean(1).double() - TARGET_ACCEPTANCE).exp()


def draw(like: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
    """Standard normals [R, K, D] and two uniforms per particle [R, K, 2], from each run's own generator."""
    noise = like.new_empty(like.shape)
    uniform = like.new_empty(*like.shape[:2], 2)
    for run, generator in enumerate(rng.generators(like.device)):
        noise[run].normal_(generator=generator)
        uniform[run].uniform_(generator=generator)
    return noise, uniform


def log_density(swarm: Swarm, beta: Tensor, q: Factor) -> tuple[Tensor, Tensor]:
    """log q(theta) + beta log p(D | theta) up to a constant [R, K], and its gradient [R, K, D]; beta [R, 1]."""
    slope = beta.unsqueeze(-1) * swarm.gradient
    penalty = q.pull(swarm.theta, slope)
    return beta * swarm.log_lik - penalty, slope
