"""p(y | theta, x) given the network's output: log densities, and the moments that prediction averages over draws."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, pi, prod
from typing import NamedTuple, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.data import WHOLE, as_labels
from vcl.engines.predictor import COLUMN_MOMENTS
from vcl.engines.walk import SCORED
from vcl.errors import VclError
from vcl.ops.layers import TINY


class Likelihood(Protocol):
    """An observation model on top of a network's output."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y^(n) | theta, x^(n)) of each example [N]; never averaged."""
        ...

    def expectation(self, output: Tensor) -> Tensor:
        """The moments of p(y | theta, x) [N, C] whose average over draws of theta is the prediction."""
        ...

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """log of the integral of p(y^(n) | f) N(f; mean, diag var) over the output f, of each example [N]."""
        ...

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """y^(n) ~ p(y | theta, x^(n)), from standard normal noise of y's shape."""
        ...

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Raise VclError unless ``y`` is valid for a head of this size."""
        ...


@runtime_checkable
class HasLabelPoints(Protocol):
    """A likelihood whose expectation over labels is a finite sum."""

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Labels [K, N, ...] and weights [K, N]: E_y g g^T = sum_k weight_k g_k g_k^T for g = grad log p(y | f)."""
        ...


class Categorical(NamedTuple):
    """p(y | theta, x) = softmax(f_theta(x))_y, with integer labels y [N] within the head."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log softmax(f)_y."""
        y = as_labels(y, output.dim() - 1)
        return F.log_softmax(output, dim=-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """Class probabilities [N, C]; prediction averages these, never the logits."""
        return F.softmax(output, dim=-1)

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """Two classes: log E[logistic(d)] of the difference d ~ N(m_y - m_other, v_0 + v_1), by quadrature.

        More classes: a closed-form approximation, the logistic for each pair with the probit's scale pi/8,
        E softmax(f)_y ~= 1 / sum_c exp( (m_c - m_y) / sqrt(1 + pi/8 (v_c + v_y)) ), where the term c = y is 1.
        Its probabilities sum to 1 within 0.005. With four classes the error is up to 0.03 at variances about 1 and 0.07
        about 10; with ten classes it is twice that.
        """
        y = as_labels(y, mean.dim() - 1)
        if mean.shape[-1] == 2:
            ahead = (mean[..., 1] - mean[..., 0]) * (2 * y - 1)
            return log_logistic_normal(ahead, var.sum(-1))
        label = y.unsqueeze(-1)
        scale = (1 + pi / 8 * (var + var.gather(-1, label))).rsqrt()
        return -((mean - mean.gather(-1, label)) * scale).logsumexp(-1)

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """The first class whose cumulative probability exceeds the uniform number Phi(noise): [N]."""
        below = F.softmax(output, dim=-1).cumsum(-1)[..., :-1] < torch.special.ndtr(noise).unsqueeze(-1)
        drawn: Tensor = below.sum(-1)
        return drawn

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Every class [C, N] and its probability [C, N]."""
        classes = torch.arange(output.shape[-1], device=output.device).unsqueeze(1)
        return classes.expand(-1, output.shape[0]), F.softmax(output, dim=-1).T

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Labels are integers from 0 to classes - 1, one per example."""
        if y.dtype not in WHOLE:
            raise VclError(
                f"{what}: labels have dtype {y.dtype}; a classifier takes integers 0 to {units - 1}, such as y.long()."
            )
        y = as_labels(y, 2, f"{what}: the labels of all runs")
        if y.numel() and not (int(y.min()) >= 0 and int(y.max()) < units):
            found = f"{int(y.min())} to {int(y.max())}"
            raise VclError(
                f"{what}: labels run from {found} but its head has {units} classes; relabel them 0 to {units - 1} "
                "or give the head more classes."
            )


@final
@dataclass(frozen=True)
class Normal:
    """p(y | theta, x) = N(y; f_theta(x), noise^2 I), with targets y [N] or [N, C] and a fixed noise deviation."""

    noise: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.noise < inf:
            raise VclError(f"noise is {self.noise}; a deviation must be a finite number above 0.")

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_c -1/2 ((y_c - f_c) / noise)^2 - log noise - 1/2 log 2 pi."""
        error = (y.reshape(output.shape) - output) / self.noise
        return (-0.5 * error.square() - log(self.noise) - 0.5 * log(2 * pi)).sum(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """E[y] and E[y^2], side by side [N, 2C]; :meth:`moments` turns their average into mean and variance."""
        return torch.cat([output, output.square() + self.noise**2], dim=-1)

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """sum_c log N(y_c; mean_c, var_c + noise^2), exactly."""
        total = var + self.noise**2
        error = y.reshape(mean.shape) - mean
        return (-0.5 * error.square() / total - 0.5 * total.log() - 0.5 * log(2 * pi)).sum(-1)

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """f + noise deviation * noise, [N] or [N, C] like the noise."""
        return output.reshape(noise.shape) + self.noise * noise

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """f + noise e_c for each output c [C, N, C], with weight 1 [C, N]: their gradients are e_c / noise."""
        width = output.shape[-1]
        steps = self.noise * torch.eye(width, dtype=output.dtype, device=output.device).unsqueeze(1)
        return output + steps, output.new_ones(width, len(output))

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Targets are floating-point, one value per output."""
        if not y.is_floating_point():
            raise VclError(
                f"{what}: targets have dtype {y.dtype}; a regressor takes floating-point targets, such as y.float()."
            )
        width = prod(y.shape[2:])
        if width != units:
            raise VclError(
                f"{what}: targets have {width} values per example but the head has {units}; make them equal."
            )

    @staticmethod
    def moments(prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and variance from averaged expectations [..., 2C]."""
        first, second = prediction.chunk(2, dim=-1)
        return first, second - first.square()


class Probit(NamedTuple):
    """p(y = 1 | theta, x) = Phi(f_theta(x)), with one output and integer labels y [N], 0 or 1."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log Phi(+f) for label 1 and log Phi(-f) for label 0."""
        y = as_labels(y, output.dim() - 1)
        return log_ndtr((2 * y - 1) * output.squeeze(-1))

    def expectation(self, output: Tensor) -> Tensor:
        """Class probabilities [1 - Phi(f), Phi(f)], side by side [N, 2]."""
        probabilities: Tensor = torch.special.ndtr(torch.cat([-output, output], dim=-1))
        return probabilities

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """log Phi(+-mean / sqrt(1 + var)), exactly."""
        return self.log_prob(mean * (1 + var).rsqrt(), y)

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """1 where f + noise is above 0, else 0."""
        return (output.squeeze(-1) + noise > 0).long()

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Both labels [2, N] and their probabilities [2, N]."""
        labels = torch.arange(2, device=output.device).unsqueeze(1).expand(-1, len(output))
        return labels, self.expectation(output).T

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Labels are 0 or 1, and there is one output."""
        if units != 1:
            raise VclError(f"{what}: its head has {units} units; a probit model has one output, so give the head 1.")
        if y.dtype not in WHOLE:
            raise VclError(
                f"{what}: labels have dtype {y.dtype}; a probit model takes the integers 0 and 1, such as y.long()."
            )
        y = as_labels(y, 2, f"{what}: the labels of all runs")
        if y.numel() and not (int(y.min()) >= 0 and int(y.max()) <= 1):
            found = f"{int(y.min())} to {int(y.max())}"
            raise VclError(f"{what}: labels run from {found}; a probit model has two classes, so relabel them 0 and 1.")


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


_HERMITE = _hermite(32)
_LOGISTIC = _logistic(0.5, 48.0)

SCORED[Categorical] = "softmax"
COLUMN_MOMENTS[Categorical] = lambda output: output.softmax(1)
