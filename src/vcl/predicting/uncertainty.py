"""How uncertain a prediction is, and why: from predictions of each draw of the weights.

Aleatoric uncertainty is that of the target given the weights, on average; no further data removes it. Epistemic
uncertainty comes from the differences between draws. The two add up to the total, exactly. Values are computed in
float64, a block of examples at a time.

    classes   p = predict_draws(...)     H(mean_s p_s) = mean_s H(p_s) + I          decompose(p)
    numbers   f = predict_outputs(...)   Var y = mean_s Var[y | f_s] + Var_s E[y | f_s]   variances(likelihood, f)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.models.likelihoods import HasCdf, HasMoments, Likelihood
from vcl.ops.bisection import bisect
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng

VALUES_IN_FLIGHT = 2**22
"""The most values of a block, over runs, draws, examples and columns (32 MiB of float64)."""

HALVINGS = 60
"""Steps of bisection for a quantile of real numbers: as fine as float64."""


class Entropies(NamedTuple):
    """Uncertainty about a class in nats [R, N]: total = aleatoric + epistemic."""

    total: Tensor
    """H( mean_s p_s ), the entropy of the prediction."""
    aleatoric: Tensor
    """mean_s H(p_s)."""
    epistemic: Tensor
    """mean_s KL(p_s || mean p): the mutual information of class and weights (BALD)."""


class Variances(NamedTuple):
    """The predictive mean of numbers, and its variance [R, N, C]: total = aleatoric + epistemic."""

    mean: Tensor
    """mean_s E[y | f_s]."""
    total: Tensor
    """The variance of the mixture over draws."""
    aleatoric: Tensor
    """mean_s Var[y | f_s]."""
    epistemic: Tensor
    """Var_s E[y | f_s], over the draws themselves (divided by S)."""


@torch.no_grad()
def decompose(probabilities: Tensor) -> Entropies:
    """The entropies of predictions of each draw [R, S, N, C], in nats; none is negative."""
    _check_draws(probabilities, "probabilities")
    return Entropies(*_in_blocks(_entropies, probabilities))


def _entropies(p: Tensor) -> tuple[Tensor, ...]:
    mean = p.mean(1, keepdim=True)
    aleatoric = torch.special.entr(p).sum(-1).mean(1).clamp(min=0)
    # The information is a mean of divergences: unlike H(mean p) - mean H(p), it keeps its digits where it is small.
    # Its terms p log(p / m) - p + m are each at least 0 up to rounding, and the latter two cancel in the sum.
    parts = torch.special.xlogy(p, p / mean.clamp(min=torch.finfo(p.dtype).tiny)) - p + mean
    epistemic = parts.clamp(min=0).sum(-1).mean(1)
    return aleatoric + epistemic, aleatoric, epistemic


@torch.no_grad()
def variances(likelihood: Likelihood, outputs: Tensor) -> Variances:
    """The mean and variances of a likelihood of numbers, from outputs of each draw [R, S, N, units]."""
    _check_draws(outputs, "outputs")
    numbers = _with_moments(likelihood)

    def found(f: Tensor) -> tuple[Tensor, ...]:
        mean, var = numbers.moments_of(f)
        centre, epistemic = mean.mean(1), mean.var(1, correction=0)
        aleatoric = var.mean(1)
        return centre, aleatoric + epistemic, aleatoric, epistemic

    return Variances(*_in_blocks(found, outputs))


@torch.no_grad()
def quantiles(likelihood: Likelihood, outputs: Tensor, levels: Sequence[float]) -> Tensor:
    """The quantiles at ``levels`` [L] of the mixture of p(y | f_s) over draws [R, L, N, C].

    ``outputs`` [R, S, N, units] are those of each draw. By bisection on the mean of the draws' distribution functions,
    between bounds that hold for any distribution of this mean and variance. Quantiles of whole numbers are whole: the
    smallest that reaches the level.
    """
    _check_draws(outputs, "outputs")
    numbers = _with_cdf(likelihood)
    if not levels or not all(0 < level < 1 for level in levels):
        raise VclError(f"levels are {list(levels)}; give at least one number above 0 and below 1.")

    def found(f: Tensor) -> tuple[Tensor, ...]:
        mean, var = numbers.moments_of(f)
        centre, sd = mean.mean(1), (var.mean(1) + mean.var(1, correction=0)).sqrt()
        return tuple(_quantile(numbers, f, level, centre, sd) for level in levels)

    return torch.stack(_in_blocks(found, outputs), dim=1)


def _quantile(likelihood: HasCdf, f: Tensor, level: float, mean: Tensor, sd: Tensor) -> Tensor:
    """The smallest y [R, N, C] with mean_s P(target <= y | f_s) >= level."""
    # Cantelli: mean - sd sqrt((1 - p) / p) <= y <= mean + sd sqrt(p / (1 - p)); a little wider, for rounding.
    wide = sd * (1 + 1e-9) + 1e-12 * mean.abs()
    lower, upper = mean - wide * ((1 - level) / level) ** 0.5, mean + wide * (level / (1 - level)) ** 0.5
    steps = HALVINGS
    if likelihood.whole:
        lower, upper = lower.floor() - 1, upper.ceil()
        steps = ceil(log2(max(2.0, float((upper - lower).amax())))) + 1 if lower.numel() else 0
    return bisect(
        lambda y: likelihood.cdf(f, y.unsqueeze(1)).mean(1) >= level, lower, upper, steps, whole=likelihood.whole
    )


def intervals(likelihood: Likelihood, outputs: Tensor, level: float = 0.9) -> tuple[Tensor, Tensor]:
    """The central interval of the mixture over draws: its lower and upper bounds [R, N, C].

    Each side leaves (1 - level) / 2 outside; for whole numbers at most that below the lower bound.
    """
    given: object = level
    if not isinstance(given, Real) or not 0 < level < 1:
        raise VclError(f"level is {level!r}; an interval holds a probability above 0 and below 1.")
    lower, upper = quantiles(likelihood, outputs, ((1 - level) / 2, (1 + level) / 2)).unbind(1)
    return lower, upper


@torch.no_grad()
def sample_targets(likelihood: Likelihood, outputs: Tensor, rng: Rng) -> Tensor:
    """y ~ p(y | f_s), one for each draw: [R, S, N, C] from outputs [R, S, N, units]. Draws of y keep those of theta."""
    _check_draws(outputs, "outputs")
    numbers = _with_moments(likelihood)
    if len(rng.seeds) != len(outputs):
        raise VclError(f"the outputs have {len(outputs)} runs and there are {len(rng.seeds)} seeds; give one per run.")
    targets = numbers.moments_of(outputs[:, :1, :1])[0].shape[-1]
    noise = draw_noise(outputs[0, ..., 0].numel() * targets, rng.generators(outputs.device), outputs)
    noise = noise.view(*outputs.shape[:3], targets)
    return likelihood.sample(outputs, noise)


def _in_blocks(function: Callable[[Tensor], tuple[Tensor, ...]], values: Tensor) -> list[Tensor]:
    """The results [R, N, ...] of ``function`` for blocks of examples of values [R, S, N, C], in float64."""
    rows = max(1, values.shape[0] * values.shape[1] * values.shape[3])
    blocks = torch.split(values, max(1, VALUES_IN_FLIGHT // rows), dim=2)
    return [torch.cat(parts, dim=1) for parts in zip(*(function(block.double()) for block in blocks), strict=True)]


def _check_draws(values: Tensor, what: str) -> None:
    if values.dim() != 4 or not values.shape[1]:
        raise VclError(
            f"{what} have shape {tuple(values.shape)}; give those of each draw, [runs, draws, examples, values]."
        )


def _with_moments(likelihood: Likelihood) -> HasMoments:
    if not isinstance(likelihood, HasMoments):
        raise VclError(
            f"the likelihood {type(likelihood).__name__} has no moments_of(output): it is none of numbers; use "
            "decompose for the probabilities of classes."
        )
    return likelihood


def _with_cdf(likelihood: Likelihood) -> HasCdf:
    _with_moments(likelihood)
    if not isinstance(likelihood, HasCdf):
        raise VclError(
            f"the likelihood {type(likelihood).__name__} has no cdf(output, y), which quantiles need; give it that "
            "method, or take quantiles of sample_targets."
        )
    return likelihood
