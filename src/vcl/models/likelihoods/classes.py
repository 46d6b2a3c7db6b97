"""Likelihoods of labels: softmax and probit."""

from __future__ import annotations

from math import pi
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.data import WHOLE, as_labels
from vcl.engines.predictor import COLUMN_MOMENTS
from vcl.engines.walk import SCORED
from vcl.errors import VclError
from vcl.models.likelihoods.quadrature import log_logistic_normal, log_ndtr


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


SCORED[Categorical] = "softmax"
COLUMN_MOMENTS[Categorical] = lambda output: output.softmax(1)
