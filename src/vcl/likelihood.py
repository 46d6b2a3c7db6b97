"""p(y | theta, x) given the network's output: log densities, and what prediction averages over draws."""

from __future__ import annotations

from math import log, pi
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.errors import VclError


class Likelihood(Protocol):
    """An observation model on top of a network's output."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y^(n) | theta, x^(n)) of each example [N]; never averaged."""
        ...

    def expectation(self, output: Tensor) -> Tensor:
        """The moments of p(y | theta, x) [N, C] whose average over draws of theta is the prediction."""
        ...

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Raise one clear sentence unless ``y`` is what a head of this size can be asked for."""
        ...


class Categorical(NamedTuple):
    """p(y | theta, x) = softmax(f_theta(x))_y, with integer labels y [N] within the head."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log softmax(f)_y."""
        return F.log_softmax(output, dim=-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """Class probabilities: prediction averages these, never the logits."""
        return F.softmax(output, dim=-1)

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Labels are whole numbers from 0 to classes - 1."""
        if y.is_floating_point():
            raise VclError(f"{what}: labels have dtype {y.dtype}; a classifier takes integers 0 to {units - 1}.")
        if y.numel() and not (int(y.min()) >= 0 and int(y.max()) < units):
            found = f"{int(y.min())} to {int(y.max())}"
            raise VclError(
                f"{what}: labels run from {found} but its head has {units} classes; relabel them 0 to {units - 1} "
                "or give the head more classes."
            )


class Normal(NamedTuple):
    """p(y | theta, x) = N(y; f_theta(x), noise^2 I), with targets y [N] or [N, C] and a fixed noise deviation."""

    noise: float = 1.0

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_c -1/2 ((y_c - f_c) / noise)^2 - log noise - 1/2 log 2 pi."""
        error = (y.reshape(output.shape) - output) / self.noise
        return (-0.5 * error.square() - log(self.noise) - 0.5 * log(2 * pi)).sum(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """E[y] and E[y^2], side by side [N, 2C]; :meth:`moments` turns their average into mean and variance."""
        return torch.cat([output, output.square() + self.noise**2], dim=-1)

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Targets are floating-point, one value per output."""
        if not y.is_floating_point():
            raise VclError(f"{what}: targets have dtype {y.dtype}; a regressor takes floating-point targets.")
        width = 1 if y.dim() == 2 else y.shape[-1]
        if width != units:
            raise VclError(f"{what}: targets have {width} values an example but the head has {units}; make them equal.")

    @staticmethod
    def moments(prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and variance from averaged expectations [..., 2C]."""
        first, second = prediction.chunk(2, dim=-1)
        return first, second - first.square()
