"""Weighted particles of R runs: effective sample size, the next temperature, resampling, moments."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from vcl.ops.rng import Rng

HALVINGS = 60
"""Bisection steps for the next temperature: down to float64 precision."""


def weigh(log_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised weights [R, K] of log weights [R, K], the log of their mean [R], and ESS = 1 / sum_k w_k^2 [R]."""
    total = log_weight.logsumexp(1)
    normalised = log_weight - total[:, None]
    return normalised, total - log(log_weight.shape[1]), (-(2 * normalised).logsumexp(1)).exp()


def next_rise(log_lik: Tensor, most: Tensor, threshold: float) -> Tensor:
    """The increase of beta [R] at which weights p(D | theta)^rise have ESS = threshold * K, at most ``most`` [R].

    ESS decreases as the increase grows, so bisection finds it.
    """
    wanted = threshold * log_lik.shape[1]
    low, high = torch.zeros_like(most), most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        good = weigh(middle[:, None] * log_lik)[2] >= wanted
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return torch.where(weigh(most[:, None] * log_lik)[2] >= wanted, most, low)


def systematic(weight: Tensor, rng: Rng) -> Tensor:
    """Indices [R, K] by systematic resampling: particle k appears K w_k times, rounded, from one uniform per run."""
    K = weight.shape[1]
    offset = rng.per_run(lambda g: torch.rand(1, generator=g, dtype=torch.float64)).to(weight.device)
    marks = (torch.arange(K, device=weight.device) + offset) / K
    # The cumulative sum may end below the last mark by rounding.
    return torch.searchsorted(weight.double().cumsum(1), marks).clamp_max(K - 1)


def moments(theta: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted means and variances [R, D] of particles theta [R, K, D]."""
    weight = weight.to(theta)[:, None]
    mean = weight @ theta
    return mean[:, 0], (weight @ (theta - mean).square())[:, 0]
