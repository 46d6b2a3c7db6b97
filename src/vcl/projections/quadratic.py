"""Regularised maximum likelihood, the common form of MAP, Laplace propagation, EWC and SI (the paper's section 5).

    L^t(theta) = sum_n log p(y_t^(n) | theta, x_t^(n)) - lambda_t/2 (theta - centre)^T Sigma_{t-1}^{-1} (theta - centre)

The methods differ in Sigma_{t-1}^{-1} and in the centre; the fit is the same.
"""

from __future__ import annotations

from math import inf
from typing import final

import torch
from torch import Tensor

from vcl.beliefs.belief import Factor
from vcl.beliefs.layout import Layout, Rows
from vcl.data import Data
from vcl.errors import VclError
from vcl.fitting.guard import Climbed
from vcl.fitting.loop import Ascent
from vcl.fitting.step import Step
from vcl.models.base import Model, held
from vcl.ops.noise import NoiseShape
from vcl.projections.point import LogLikelihood

Lambda = float | tuple[float, ...]
"""lambda: one value for all runs or one per run, so that a grid is one stack of runs."""


def check_lambda(lam: Lambda) -> None:
    """Raise VclError unless every lambda is a number >= 0."""
    for value in lam if isinstance(lam, tuple) else (lam,):
        if not 0 <= value < inf:
            raise VclError(f"lambda is {value}; give a number from 0 (which forgets) up.")


def lambda_column(lam: Lambda, like: Tensor) -> Tensor:
    """lambda of each run as a column [R, 1] beside ``like`` [R, D]."""
    check_lambda(lam)
    values = lam if isinstance(lam, tuple) else (lam,) * like.shape[0]
    if len(values) != like.shape[0]:
        raise VclError(f"{len(values)} values of lambda were given for {like.shape[0]} runs; give one or one for each.")
    return torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)


def weight_of_past(lam: Lambda, layout: Layout, new: Rows, mean: Tensor) -> Tensor:
    """The weights of a penalty [R, D]: lambda, but 1 for the rows ``new``, whose past is only the prior.

    lambda_t weights previous data, and those parameters have none.
    """
    return lambda_column(lam, mean).expand_as(mean).masked_fill(layout.mask(new).to(mean.device), 1)


def on_held(model: Model, layout: Layout, values: Tensor) -> Tensor:
    """``values`` [R, D] with 0 for parameters without a posterior, which have no penalty."""
    part = held(model, layout)
    return layout.pad(layout.cut(values, part), part)


@final
class Penalised:
    """L(theta) = sum_n log p(y^(n) | theta, x^(n)) - penalty(theta).

    The penalty includes each run's lambda, and covers only parameters with a posterior.
    """

    def __init__(self, model: Model, layout: Layout, penalty: Factor, draws: int = 1) -> None:
        self.log_lik, self.penalty = LogLikelihood(model, layout, draws), penalty

    def climbed(self) -> tuple[Climbed, ...]:
        """What the optimised parameters are."""
        return self.log_lik.climbed()

    def noise(self, batch: Data) -> int:
        """The noise of the log-likelihood."""
        return self.log_lik.noise(batch)

    def noise_shape(self, batch: Data) -> NoiseShape:
        """What it is for."""
        return self.log_lik.noise_shape(batch)

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(theta) of each run [R], with the likelihood estimated from a batch."""
        return self.log_lik(parameters, batch, total, noise) - self.penalty.pull(parameters[0])

    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Step:
        """L(theta) and its gradient, with an explicit gradient of the penalty."""
        value, gradients = self.log_lik.gradient(parameters, batch, total, noise)
        return Step(value - self.penalty.pull(parameters[0], gradients[0]), gradients)


def check_fit(ascent: Ascent, lam: Lambda) -> None:
    """Raise VclError unless these settings are valid."""
    ascent.check()
    check_lambda(lam)
