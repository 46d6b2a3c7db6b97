"""The variational fit of a mean-field Gaussian: optimises means, log variances (or log deviations), and points."""

from __future__ import annotations

from math import inf
from typing import Literal, final

import torch
from torch import Tensor

from vcl.beliefs.belief import Roles
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import KlTo, MeanField
from vcl.errors import unknown

Climbs = Literal["log_var", "log_sd"]
CLIMBS: tuple[Climbs, ...] = ("log_var", "log_sd")

Parameters = tuple[Tensor, ...]
"""Means and logs [R, D] of the drawn parameters, and the points [R, P], if any."""


@final
class MeanFieldFit:
    """q(theta) = prod_d N(theta_d; mu_d, sigma_d^2), optimised in mu and log sigma^2 (or log sigma).

    Coordinates are independent, so engines may work with means and variances, without drawing all of theta.
    """

    def __init__(self, previous: MeanField, roles: Roles, climbs: str = "log_var") -> None:
        if climbs not in CLIMBS:
            raise unknown("climbs", climbs, CLIMBS)
        self.layout, self.held, self.spread, self.points = previous.layout, *roles
        self.previous = KlTo(previous.restrict(self.held))
        self.scale = 1 if climbs == "log_var" else 2
        """log sigma^2 = scale * log, where log is the optimised parameter."""
        self.held_size = self.held.size
        self.rules: dict[str, str] = {}
        """The rule of each layer that does not use its estimator's rule, by weight name."""
        self.held_first = self.held.names == self.spread.names[: len(self.held.names)]

    @property
    def noise(self) -> int:
        """One standard normal per drawn parameter."""
        return self.spread.size

    def parameters(self, q: MeanField) -> Parameters:
        """The optimised parameters at q."""
        mean, log_var = (self.layout.cut(part, self.spread) for part in (q.mean, q.log_var))
        drawn = mean, log_var if self.scale == 1 else log_var / self.scale
        climbed = (*drawn, self.layout.cut(q.mean, self.points)) if self.points.names else drawn
        return tuple(part.contiguous() for part in climbed)

    def belief(self, parameters: Parameters) -> MeanField:
        """The inverse of :meth:`parameters`; points have variance 0."""
        mean, log, *rest = parameters
        points = self.points.split(rest[0]) if rest else {}
        means = self.layout.join({**self.spread.split(mean), **points}, lead=1) if points else mean
        return MeanField(self.layout, means, self.layout.pad(self.log_var(log), self.spread, -inf))

    def log_var(self, log: Tensor) -> Tensor:
        """log sigma^2, from the optimised log."""
        return log if self.scale == 1 else self.scale * log

    def draw(self, parameters: Parameters, noise: Tensor) -> Tensor:
        """theta = mu + sigma eps [R, S, D], with the points unchanged."""
        mean, log, *rest = parameters
        theta = mean.unsqueeze(1) + (0.5 * self.log_var(log)).exp().unsqueeze(1) * noise
        if not rest:
            return theta
        points = self.points.split(rest[0].unsqueeze(1).expand(-1, noise.shape[1], -1))
        return self.layout.join({**self.spread.split(theta), **points}, lead=2)

    def kl(self, parameters: Parameters) -> Tensor:
        """KL(q || q_{t-1}) of each run [R], over the parameters with a posterior."""
        mean, log = parameters[:2]
        return self.previous(*(self.spread.cut(part, self.held) for part in (mean, self.log_var(log))))

    def subtract_kl(
        self, mean: Tensor, log_var: Tensor, g_mean: Tensor, g_log_var: Tensor, var: Tensor | None, runs: slice
    ) -> Tensor:
        """KL of ``runs``; subtracts its gradient from g_mean and g_log_var in place; all [G, D]."""
        size = self.held_size
        if self.held_first:
            q_mean, q_log_var, to_mean, to_log_var = (part[:, :size] for part in (mean, log_var, g_mean, g_log_var))
            given = None if var is None else var[:, :size]
            return self.previous.subtract_gradient(q_mean, q_log_var, to_mean, to_log_var, given, runs)
        q_mean, q_log_var = (self.spread.cut(part, self.held) for part in (mean, log_var))
        less_mean, less_log_var = torch.zeros_like(q_mean), torch.zeros_like(q_mean)
        kl = self.previous.subtract_gradient(q_mean, q_log_var, less_mean, less_log_var, None, runs)
        g_mean.add_(self.spread.pad(less_mean, self.held))
        g_log_var.add_(self.spread.pad(less_log_var, self.held))
        return kl


def spans(layout: Layout) -> dict[str, tuple[int, int]]:
    """The start of each tensor in the flat vector, and its number of values."""
    found, first = {}, 0
    for name, size in zip(layout.names, layout.sizes, strict=True):
        found[name] = first, size
        first += size
    return found
