"""Integrals over a Gaussian output, in logarithms and stable in the tails."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.ops.layers import TINY


def log_ndtr(x: Tensor) -> Tensor:
    """log Phi(x), with value and gradient stable in the tails.

    Like torch.special.log_ndtr, which vmap cannot batch: log erfcx(-t) / 2 - t^2 below, log(1 - erfc(t) / 2) above.
    """
    t = x * 2**-0.5
    lower = (torch.special.erfcx(-t.clamp(max=-0.5)) / 2).log() - t.square()
    upper = torch.log1p(-torch.special.erfc(t.clamp(min=-0.5)) / 2)
    return torch.where(t < -0.5, lower, upper)


def log_logistic_normal(mean: Tensor, var: Tensor) -> Tensor:
    """log E[logistic(d)] for d ~ N(mean, var), elementwise, to 1e-10 or better at any mean and var.

    Up to variance 1 it uses Gauss-Hermite quadrature over d. For a wider normal the logistic resembles a step, which
    these nodes miss, so the roles are swapped: with L logistic, E[logistic(d)] = P(L < d) = E_L[Phi((mean - L) / sd)],
    by the trapezoid rule over L. The lower tail is first reflected, exactly: since e^d N(d; m, v) is
    e^(m + v/2) N(d; m + v, v), log E[logistic(d)] = m + v/2 + log E[logistic(d')] with d' ~ N(-(m + v), v).
    """
    low = mean < -0.5 * var
    mean, outside = torch.where(low, -(mean + var), mean).unsqueeze(-1), torch.where(low, mean + 0.5 * var, 0.0)
    var = var.unsqueeze(-1)
    z, log_w = _HERMITE.to(mean.device, mean.dtype)
    narrow = (log_w + F.logsigmoid(mean + (var.clamp(max=1) + TINY).sqrt() * z)).logsumexp(-1)
    grid, log_p = _LOGISTIC.to(mean.device, mean.dtype)
    wide = (log_p + log_ndtr((mean - grid) * var.clamp(min=1).rsqrt())).logsumexp(-1)
    return outside + torch.where(var.squeeze(-1) < 1, narrow, wide)


def _hermite(count: int) -> Tensor:
    """Nodes and log weights [2, count] for expectations over N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return torch.stack([torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum()).log()])


def _logistic(step: float, reach: float) -> Tensor:
    """Nodes and log weights [2, K] for expectations over the logistic distribution."""
    grid = torch.arange(-reach, reach + step, step, dtype=torch.float64)
    log_density = F.logsigmoid(grid) + F.logsigmoid(-grid)
    return torch.stack([grid, log_density - log_density.logsumexp(0)])


def log_normal_expectation(log_f: Callable[[Tensor], Tensor], centre: Tensor, scale: Tensor) -> Tensor:
    """log E_u f(u) for u ~ N(0, 1), elementwise, given log f of u [..., K].

    The trapezoid rule over t, with u = centre + scale sinh(t): nodes are dense around ``centre``, where most of
    f(u) N(u; 0, 1) should be, and reach 27 ``scale`` to each side. Nodes carry no gradient: the rule approximates the
    integral whatever they are.
    """
    step, log_weight = _WIDE.to(centre.device, centre.dtype)
    u = centre.detach().unsqueeze(-1) + scale.detach().unsqueeze(-1) * step
    total: Tensor = (log_f(u) - 0.5 * u.square() + log_weight).logsumexp(-1)
    return total + (scale.detach().log() - 0.5 * log(2 * pi))


def _sinh(count: int, reach: float) -> Tensor:
    """Nodes sinh(t) and log weights log(cosh(t) dt) [2, count], |t| <= reach."""
    t = torch.linspace(-reach, reach, count, dtype=torch.float64)
    return torch.stack([t.sinh(), t.cosh().log() + (t[1] - t[0]).log()])


_HERMITE = _hermite(32)
_LOGISTIC = _logistic(0.5, 48.0)
_WIDE = _sinh(257, 4.0)
