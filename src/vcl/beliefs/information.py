"""What data says about a model's layers: pairs of Kronecker factors, and how they are added and averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vcl.ops.layer_weights import Block

AddRule = Literal["mean", "nearest"]


class Pair(NamedTuple):
    """A [R, n, n], G [R, m, m] and the number of rows of A [R]."""

    A: Tensor
    G: Tensor
    rows: Tensor


class Information(NamedTuple):
    """What a task's data says: the factors of each layer, and the diagonal [R, D] of all other parameters."""

    pairs: Mapping[Block, Pair]
    diagonal: Tensor


def add(old: Pair, new: Pair, rule: AddRule) -> Pair:
    """One pair for the sum of two products, A_1 (x) G_1 + A_2 (x) G_2."""
    return ADD_RULES[rule](old, new)


def _mean_and_sum(old: Pair, new: Pair) -> Pair:
    """The mean of A over all rows, and the sum of G."""
    count = old.rows + new.rows
    share = (new.rows / count.clamp(min=1)).view(-1, 1, 1)
    return Pair(torch.lerp(old.A, new.A, share), old.G + new.G, count)


def _nearest(old: Pair, new: Pair, rounds: int = 100) -> Pair:
    """The nearest product: min || A_1 (x) G_1 + A_2 (x) G_2 - A (x) G ||_F, by alternating least squares.

    A = sum_k b_k A_k and G = sum_k c_k G_k, so only 2 x 2 matrices of inner products take part. A has the mean trace of
    the rule ``mean``.
    """
    A, G = torch.stack([old.A, new.A]).double(), torch.stack([old.G, new.G]).double()
    inner_A, inner_G = (torch.einsum("kr...,lr...->rkl", X, X) for X in (A, G))
    b = torch.ones_like(inner_A[..., 0])
    c = torch.ones_like(b)
    for _ in range(rounds):
        c = _coefficients(inner_A, b)
        b = _coefficients(inner_G, c)
    plain = _mean_and_sum(old, new)
    found_A, found_G = (torch.einsum("rk,kr...->r...", coefficients, X) for coefficients, X in ((b, A), (c, G)))
    size = _trace(plain.A).double() / _trace(found_A).clamp(min=torch.finfo(torch.float64).tiny)
    return Pair((found_A * size).to(old.A), (found_G / size.clamp(min=1e-300)).to(old.G), plain.rows)


def _coefficients(inner: Tensor, b: Tensor) -> Tensor:
    """c_k = <X_k, X> / <X, X> for X = sum_k b_k X_k: least squares for the other side."""
    with_each = (inner @ b.unsqueeze(-1)).squeeze(-1)
    return with_each / (b * with_each).sum(-1, keepdim=True).clamp(min=1e-300)


def _trace(values: Tensor) -> Tensor:
    return values.diagonal(dim1=-2, dim2=-1).sum(-1).view(-1, 1, 1)


ADD_RULES: dict[str, Callable[[Pair, Pair], Pair]] = {"mean": _mean_and_sum, "nearest": _nearest}


def between(old: Information, new: Information, share: float) -> Information:
    """``share`` of the way from one to the other: shapes linearly, scales geometrically.

    The scale of G varies over orders of magnitude between rounds of a fixed point; a plain mean would keep the largest.
    """
    pairs = {
        block: Pair(_blend(pair.A, new.pairs[block].A, share), _blend(pair.G, new.pairs[block].G, share), pair.rows)
        for block, pair in old.pairs.items()
    }
    return Information(pairs, _blend(old.diagonal, new.diagonal, share))


SAME = 1e-5
"""Relative to the largest entry."""


def _blend(x: Tensor, y: Tensor, share: float) -> Tensor:
    """s ((1 - share) x / |x| + share y / |y|) with log s = (1 - share) log |x| + share log |y|, by run.

    x itself in a run in which y equals it up to rounding, as the inputs of a first layer do, which depend on no draw.
    """
    gap, largest = (x - y).abs().flatten(1).amax(1), x.abs().flatten(1).amax(1)
    same = gap <= SAME * largest
    if bool(same.all()):
        return x
    size_x, size_y = (value.abs().flatten(1).sum(1).view(-1, *(1,) * (value.dim() - 1)) for value in (x, y))
    both = (size_x > 0) & (size_y > 0)
    tiny = torch.finfo(x.dtype).tiny
    a, b = size_x.clamp(min=tiny), size_y.clamp(min=tiny)
    size = torch.exp(torch.lerp(a.log(), b.log(), share))
    blended = torch.where(both, size * torch.lerp(x / a, y / b, share), torch.lerp(x, y, share))
    return torch.where(same.view(both.shape), x, blended)
