"""Answers that are known exactly, written as plainly as possible and independently of the package's own code."""

from __future__ import annotations

import torch
from torch import Tensor


def linear_posterior(
    X: Tensor, y: Tensor, noise: float, prior_var: float, prior_mean: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Textbook Bayesian linear regression: (mean [D], precision [D, D]) of w given y = X w + e."""
    D = X.shape[1]
    start = torch.zeros(D, dtype=X.dtype) if prior_mean is None else prior_mean
    precision = torch.eye(D, dtype=X.dtype) / prior_var + X.T @ X / noise**2
    mean = torch.linalg.inv(precision) @ (start / prior_var + X.T @ y / noise**2)
    return mean, precision


def linear_elbo(X: Tensor, y: Tensor, noise: float, mean: Tensor, var: Tensor, prior_var: float) -> Tensor:
    """The exact lower bound of a mean-field Gaussian on linear regression, all expectations by hand."""
    N = X.shape[0]
    squared = ((y - X @ mean) ** 2).sum() + (X**2 @ var).sum()
    expected = (
        -0.5 * squared / noise**2 - N * torch.log(torch.tensor(noise)) - 0.5 * N * torch.log(torch.tensor(2 * torch.pi))
    )
    q = torch.distributions.Normal(mean, var.sqrt())
    p = torch.distributions.Normal(torch.zeros_like(mean), torch.full_like(mean, prior_var**0.5))
    return expected - torch.distributions.kl_divergence(q, p).sum()


def greedy_k_center(points: Tensor, k: int) -> list[int]:
    """Greedy K-center in the most obvious way: whole-number arithmetic, one pair at a time."""
    rows = [[int(value) for value in row.flatten()] for row in points]

    def distance(a: list[int], b: list[int]) -> int:
        return sum((left - right) ** 2 for left, right in zip(a, b, strict=True))

    chosen = [0]
    while len(chosen) < k:
        gaps = [min(distance(row, rows[center]) for center in chosen) for row in rows]
        others = [index for index in range(len(rows)) if index not in chosen]
        chosen.append(max(others, key=lambda index: (gaps[index], -index)))
    return chosen


def factor_analysis(W: Tensor, b: Tensor, noise: float, x: Tensor, extra: float = 0.0) -> Tensor:
    """log p(x) [N] for x = W z + b + e, z ~ N(0, I), e ~ N(0, noise^2 I) and b with variance ``extra``."""
    cover = W @ W.T + (noise**2 + extra) * torch.eye(W.shape[0], dtype=W.dtype)
    return torch.distributions.MultivariateNormal(b, cover).log_prob(x)


def factor_posterior(W: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """(A, cover) such that p(z | x) = N(A (x - b), cover)."""
    cover = torch.linalg.inv(torch.eye(W.shape[1], dtype=W.dtype) + W.T @ W / noise**2)
    return cover @ W.T / noise**2, cover
