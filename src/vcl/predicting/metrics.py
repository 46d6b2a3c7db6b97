"""Metrics of a continual learner, from one matrix A[i, j]: accuracy on task j after learning task i.

Rows are *after task i*, columns are *on task j*, both from 0. Entries with j > i are unknown and NaN, as are those of
tasks without test data; means over tasks skip them. A may have leading axes (runs): [..., T, T]. Labels may be integers
of any dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcl.data import as_labels
from vcl.errors import VclError


def average_accuracy(A: Tensor) -> Tensor:
    """mean_{j <= i} A[i, j] after each task i: [..., T]. The last entry is the paper's metric."""
    return A.nanmean(-1)


def forgetting(A: Tensor) -> Tensor:
    """mean_{j < T-1} ( max_{i < T-1} A[i, j] - A[T-1, j] ): how far old tasks fell from their best."""
    if A.shape[-1] < 2:
        return torch.zeros(A.shape[:-2], dtype=A.dtype)
    past = A[..., :-1, :-1].nan_to_num(nan=-torch.inf)
    return (past.amax(-2) - A[..., -1, :-1]).nanmean(-1)


def backward_transfer(A: Tensor) -> Tensor:
    """mean_{j < T-1} ( A[T-1, j] - A[j, j] ): the change of a task's accuracy since it was learned."""
    if A.shape[-1] < 2:
        return torch.zeros(A.shape[:-2], dtype=A.dtype)
    return (A[..., -1, :-1] - A.diagonal(dim1=-2, dim2=-1)[..., :-1]).nanmean(-1)


def accuracy(probabilities: Tensor, y: Tensor) -> Tensor:
    """The fraction of examples whose most probable class is right: probabilities [..., N, C], y [..., N] -> [...]."""
    return (probabilities.argmax(-1) == _labels(y, probabilities)).double().mean(-1)


def log_predictive(probabilities: Tensor, y: Tensor) -> Tensor:
    """mean_n log p(y^(n) | x^(n), D), from averaged probabilities clipped at 1e-30: [...]."""
    chosen = probabilities.double().gather(-1, _labels(y, probabilities).unsqueeze(-1)).squeeze(-1)
    return chosen.clamp_min(1e-30).log().mean(-1)


def brier(probabilities: Tensor, y: Tensor) -> Tensor:
    """mean_n sum_c (p_c - [y = c])^2: [...]."""
    truth = torch.nn.functional.one_hot(_labels(y, probabilities), probabilities.shape[-1])
    return (probabilities.double() - truth).square().sum(-1).mean(-1)


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> Tensor:
    """Expected calibration error: sum_b (n_b / N) | accuracy_b - confidence_b | over equal bins of confidence."""
    confidence, guess = probabilities.double().max(-1)
    right = (guess == _labels(y, probabilities)).double()
    # Bin b holds confidences in (b / bins, (b + 1) / bins].
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gap = torch.zeros(*confidence.shape[:-1], bins, dtype=torch.float64, device=confidence.device)
    gap.scatter_add_(-1, place, right - confidence)
    return gap.abs().sum(-1) / confidence.shape[-1]


def reliability(probabilities: Tensor, y: Tensor, bins: int = 10) -> Tensor:
    """What a reliability diagram is drawn from: examples, those that are right, and the sum of confidences.

    One line for each of ``bins`` equal bins of confidence, as in :func:`calibration_error`: [..., bins, 3].
    """
    confidence, guess = probabilities.double().max(-1)
    right = (guess == _labels(y, probabilities)).double()
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    each = torch.stack([torch.ones_like(right), right, confidence], -1)
    found = torch.zeros(*confidence.shape[:-1], bins, 3, dtype=torch.float64, device=confidence.device)
    return found.scatter_add_(-2, place.unsqueeze(-1).expand_as(each), each)


def _labels(y: Tensor, probabilities: Tensor) -> Tensor:
    """Labels as int64 [..., N], which runs may share; VclError unless they match [..., N, C]."""
    wanted = probabilities.shape[:-1]
    y = as_labels(y, len(wanted))
    if not y.dim() or y.shape != wanted[len(wanted) - y.dim() :]:
        raise VclError(
            f"labels of shape {tuple(y.shape)} do not match probabilities of shape {tuple(probabilities.shape)}; "
            "give one label per example."
        )
    return y.expand(wanted)
