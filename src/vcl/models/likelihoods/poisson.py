"""Counts. A likelihood in one file; a new one can start as a copy."""

from __future__ import annotations

from math import exp, pi
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.data import WHOLE
from vcl.errors import VclError
from vcl.models.likelihoods.base import check_width, mean_and_variance, side_by_side
from vcl.models.likelihoods.quadrature import log_normal_expectation
from vcl.ops.bisection import bisect
from vcl.ops.layers import TINY

STRAIGHT = 20.0
"""From this output on the rate grows along a straight line."""

FARTHEST = 7.0
"""Noise beyond so many deviations counts as this many."""

BELOW, ABOVE, HALVINGS = 9.0, 3.0, 4
"""The bracket of a draw around its expansion, which is at most 8.0 too high and 1.9 too low, and its bisection."""


class Poisson(NamedTuple):
    """p(y | theta, x) = prod_c rate_c^y_c e^-rate_c / y_c!, rate = e^f, with targets y [N] or [N, C].

    Targets are whole numbers from 0 on, in an integer or a floating-point dtype. For f above 20 the rate is
    e^20 (1 + f - 20), which keeps values and gradients finite.
    """

    @property
    def whole(self) -> bool:
        """Targets are whole numbers."""
        return True

    def units(self, targets: int) -> int:
        """One per target."""
        return targets

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_c y_c log rate_c - rate_c - log y_c!."""
        return _log_prob(output, y.to(output.dtype).reshape(output.shape)).sum(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """E[y] and E[y^2], side by side [N, 2C]; :meth:`moments` turns their average into mean and variance."""
        return side_by_side(*self.moments_of(output))

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """sum_c log E_f p(y_c | f) over f ~ N(mean_c, var_c), by quadrature around the mode.

        Its relative error in float64 is below 1e-6 for a variance up to 100.
        """
        y, sd = y.to(mean.dtype).reshape(mean.shape), (var + TINY).sqrt()
        mode, slope, curvature = _mode(mean.detach(), sd.detach().square(), y)
        # At the mode u = (f - mean) / sd equals sd times the slope in f, which has more digits where sd is small.
        centre = torch.where(curvature < 1, sd * slope, (mode - mean) / sd)
        scale = (1 + curvature).rsqrt()
        mean, sd, y = mean.unsqueeze(-1), sd.unsqueeze(-1), y.unsqueeze(-1)

        def log_density(u: Tensor) -> Tensor:
            return _log_prob(mean + sd * u, y)

        return log_normal_expectation(log_density, centre, scale).sum(-1)

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """The smallest count y with P(Y <= y) >= Phi(noise), as floats, [N] or [N, C] like the noise."""
        z = noise.reshape(output.shape).double().clamp(-FARTHEST, FARTHEST)
        rate, level = _rate(output.double()), torch.special.ndtr(z)
        near = rate + z * rate.sqrt() + (z.square() - 1) / 6  # Cornish and Fisher's expansion
        lower, upper = (near - BELOW).floor().clamp(min=-1), (near + ABOVE).ceil().clamp(min=0)

        def reached(y: Tensor) -> Tensor:
            found: Tensor = (y >= 0) & (torch.special.gammaincc(y.clamp(min=0) + 1, rate) >= level)
            return found

        return bisect(reached, lower, upper, HALVINGS, whole=True).to(output.dtype).reshape(noise.shape)

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """rate + sqrt(rate_c) e_c for each output c [C, N, C], with weight 1 [C, N].

        These are no counts, but the gradient (y - rate) dlog rate/df is linear in y, so that they give the expectation
        of its products exactly.
        """
        rate, width = _rate(output), output.shape[-1]
        steps = rate.sqrt() * torch.eye(width, dtype=output.dtype, device=output.device).unsqueeze(1)
        return rate + steps, output.new_ones(width, len(output))

    def moments_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The rate, twice [..., C]."""
        rate = _rate(output)
        return rate, rate

    def cdf(self, output: Tensor, y: Tensor) -> Tensor:
        """P(Y <= y) = Q(floor(y) + 1, rate) [..., C], with the regularised upper incomplete gamma function Q."""
        rate = _rate(output)
        count = y.to(rate.dtype).floor().clamp(min=0)
        below: Tensor = torch.special.gammaincc(count + 1, rate)
        return below.where(y >= 0, 0.0)

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Targets are whole numbers from 0 on, one per output."""
        if y.dtype not in WHOLE and not y.is_floating_point():
            raise VclError(f"{what}: counts have dtype {y.dtype}; give whole numbers, as integers or floats.")
        check_width(y, units, units, what)
        bad = y[(y < 0) | (y != y.floor())] if y.is_floating_point() else y[y < 0]
        if bad.numel():
            raise VclError(
                f"{what}: targets hold {float(bad[0]):g}; a Poisson likelihood takes counts, whole numbers from 0 on."
            )

    @staticmethod
    def moments(prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and variance from averaged expectations [..., 2C]."""
        return mean_and_variance(prediction)


def _rate(f: Tensor) -> Tensor:
    """e^f, and its tangent beyond f = 20."""
    return f.clamp(max=STRAIGHT).exp() * (1 + (f - STRAIGHT).clamp(min=0))


def _log_rate(f: Tensor) -> Tensor:
    """The logarithm of the rate."""
    return f.clamp(max=STRAIGHT) + torch.log1p((f - STRAIGHT).clamp(min=0))


def _log_prob(f: Tensor, y: Tensor) -> Tensor:
    """y log rate - rate - log y!, elementwise, without differences of large numbers where the rate is near y.

    With d = log(rate / y) it is -y (e^d - 1 - d) - r(y), r(y) = log y! - y log y + y, and -rate for y = 0.
    """
    some = y.where(y > 0, 1.0)
    d = _log_rate(f) - some.log()
    # r(y) by Stirling's series from 10 on, where the difference would lose digits; its error is below 1e-10.
    large = some.clamp(min=10.0)
    series = 0.5 * (2 * pi * large).log() + (1 / 12 - (1 / 360 - large**-2 / 1260) * large**-2) / large
    rest = torch.where(some < 10, torch.lgamma(some + 1) - some * some.log() + some, series)
    return torch.where(y > 0, -some * (d.expm1() - d) - rest, -_rate(f))


def _mode(mean: Tensor, var: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mode f of p(y | f) N(f; mean, var), and there the slope of log p(y | f) and its curvature times -var.

    Where the rate is e^f, f + var e^f = mean + var y. With l = log(var e^f) it is e^l + l = mean + var y + log var,
    convex in l: Newton's steps converge from above. On the straight line g = rate / e^20 solves a quadratic equation,
    g^2 + (var e^20 + 19 - mean) g = var y.
    """
    a = mean + var * y + var.log()
    log_w = torch.where(a < 1, a, (a - a.clamp(min=1).log()).clamp(min=1).log())
    for _ in range(6):
        w = log_w.exp()
        log_w = log_w - (w + log_w - a) / (w + 1)
    f = log_w - var.log()
    rate, top = f.clamp(max=STRAIGHT).exp(), exp(STRAIGHT)
    b = var * top + (STRAIGHT - 1) - mean
    root = (b.square() + 4 * var * y).sqrt()
    g = torch.where(b > 0, 2 * var * y / (b.abs() + root), (root - b) / 2).clamp(min=1)
    curved = f < STRAIGHT
    return (
        torch.where(curved, f, STRAIGHT - 1 + g),
        torch.where(curved, y - rate, y / g - top),
        var * torch.where(curved, rate, y / g.square()),
    )
