"""Numbers with Gaussian noise whose deviation the network predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import asinh, inf, log, pi
from typing import final

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.models.likelihoods.base import check_width, mean_and_variance, refuse_whole, side_by_side
from vcl.models.likelihoods.quadrature import log_normal_expectation
from vcl.ops.layers import TINY

POINTS = ((0.0, 2 / 3), (3**0.5, 1 / 6), (-(3**0.5), 1 / 6))
"""Errors (y - f) / sd with their weights, whose moments up to the fifth are those of N(0, 1)."""

MOST_TARGETS = 4
"""The most targets for which all combinations of points are listed (81 labels)."""

FAR, ROUNDS = 1e6, 4
"""The search for the highest point of an integrand goes this many deviations far, in so many rounds."""


@final
@dataclass(frozen=True)
class HeteroscedasticNormal:
    """p(y | f, s) = N(y; f, sd(s)^2) per target, sd(s) = exp( limit tanh(s / limit) ), with 2C outputs (f, s).

    The first C outputs are the means f, the others s. Near 0 the deviation is e^s. It stays between e^-limit and
    e^limit (4.5e-5 and 22,000 by default), smoothly, so that no output gives an infinite density or gradient; scale
    targets to a deviation of about 1. Targets are [N] or [N, C].
    """

    limit: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.limit < inf:
            raise VclError(f"limit is {self.limit}; the largest log deviation must be a finite number above 0.")

    @property
    def whole(self) -> bool:
        """Targets are real numbers."""
        return False

    def units(self, targets: int) -> int:
        """A mean and a log deviation per target."""
        return 2 * targets

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_c -1/2 ((y_c - f_c) / sd_c)^2 - log sd_c - 1/2 log 2 pi."""
        f, log_sd = self._parts(output)
        error = (y.reshape(f.shape) - f) * (-log_sd).exp()
        return (-0.5 * error.square() - log_sd - 0.5 * log(2 * pi)).sum(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """E[y] and E[y^2], side by side [N, 2C]; :meth:`moments` turns their average into mean and variance."""
        return side_by_side(*self.moments_of(output))

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """sum_c log E_s N(y_c; mean_c, var_c + sd(s)^2) over s, by quadrature; the integral over f is exact.

        Its relative error is below 1e-6 for a variance of s up to 100.
        """
        (m, centre), (v, spread) = mean.chunk(2, dim=-1), var.chunk(2, dim=-1)
        squared, v = (y.reshape(m.shape) - m).square().unsqueeze(-1), v.unsqueeze(-1)
        centre, sd = centre.unsqueeze(-1), (spread + TINY).sqrt().unsqueeze(-1)

        def log_density(u: Tensor) -> Tensor:
            total = v + (2 * self._log_sd(centre + sd * u)).exp()
            return -0.5 * squared / total - 0.5 * total.log() - 0.5 * log(2 * pi)

        centre_of = _highest(log_density, torch.zeros_like(m))
        return log_normal_expectation(log_density, centre_of, torch.ones_like(m)).sum(-1)

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """f + sd noise, [N] or [N, C] like the noise."""
        f, log_sd = self._parts(output)
        return (f + log_sd.exp() * noise.reshape(f.shape)).reshape(noise.shape)

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """f + sd e for all combinations of three errors e per target [3^C, N, C], and their weights [3^C, N].

        The gradients in f and s are a line and a parabola in e, so three points give the expectation of their
        products exactly. For more than four targets there are too many combinations.
        """
        f, log_sd = self._parts(output)
        if f.shape[-1] > MOST_TARGETS:
            raise VclError(
                f"the sum over labels of {f.shape[-1]} targets with predicted deviations has 3^{f.shape[-1]} terms; "
                f"use labels='true', which draws them, or at most {MOST_TARGETS} targets."
            )
        chosen = list(product(POINTS, repeat=f.shape[-1]))
        labels = [f + log_sd.exp() * torch.stack([f.new_full((), e) for e, _ in each]) for each in chosen]
        weights = [
            f.new_full(f.shape[:-1], torch.tensor([w for _, w in each]).double().prod().item()) for each in chosen
        ]
        return torch.stack(labels), torch.stack(weights)

    def moments_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """f and sd^2 [..., C]."""
        f, log_sd = self._parts(output)
        return f, (2 * log_sd).exp()

    def cdf(self, output: Tensor, y: Tensor) -> Tensor:
        """Phi((y - f) / sd) [..., C]."""
        f, log_sd = self._parts(output)
        below: Tensor = torch.special.ndtr((y - f) * (-log_sd).exp())
        return below

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Targets are floating-point, and the head has two units per target."""
        refuse_whole(y, what)
        if units % 2:
            raise VclError(
                f"{what}: its head has {units} units; a mean and a log deviation per target make an even number."
            )
        check_width(y, units // 2, units, what)

    @staticmethod
    def moments(prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and variance from averaged expectations [..., 2C]."""
        return mean_and_variance(prediction)

    def _parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log deviations [..., C]."""
        f, s = output.chunk(2, dim=-1)
        return f, self._log_sd(s)

    def _log_sd(self, s: Tensor) -> Tensor:
        return self.limit * (s / self.limit).tanh()


def _highest(log_f: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """The u near which f(u) N(u; 0, 1) is highest, within about 1, of the shape of ``like``.

    By search on grids, each round around the best point of the last: the integrand may have two hills.
    """
    grid = torch.linspace(-1, 1, 129, dtype=like.dtype, device=like.device)
    best = like.detach().unsqueeze(-1)

    def best_of(u: Tensor) -> Tensor:
        value = log_f(u).detach() - 0.5 * u.square()
        return u.gather(-1, value.argmax(-1, keepdim=True))

    best = best_of(best + (asinh(FAR) * grid).sinh())
    reach = 0.3 * best.abs() + 0.5  # the neighbours on the first grid were 0.23 |u| away
    for _ in range(ROUNDS - 1):
        best, reach = best_of(best + reach * grid), reach / 20
    return best.squeeze(-1)
