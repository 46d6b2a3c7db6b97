"""Kernels over the parameters: the KL, penalties, Adam."""

from __future__ import annotations

from importlib import import_module
from math import log
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import BLOCK, blocks_of, in_units, triton

if triton is not None:
    tl: Any = import_module("triton.language")

    # In all kernels a program processes BLOCK coordinates of one run (or of one draw of one run). Addresses are 64 bits
    # wide from the run on, because R x S x D may exceed 32 bits. With a UNIT, sizes and strides are multiples of it (4
    # if all allow it): the compiler then knows that four neighbours are aligned to 16 bytes and moves them at once.

    @triton.jit
    def kl_of(mean, log_var, p_mean, p_log_var):
        # The KL of each coordinate, and its gradient in the mean and in the log variance.
        log_ratio, shift = log_var - p_log_var, mean - p_mean
        excess, pull = tl.exp(log_ratio) - 1, shift * tl.exp(-p_log_var)
        return 0.5 * (excess - log_ratio + shift * pull), pull, 0.5 * excess

    @triton.jit
    def _take_quadratic(
        part, g, theta, centre, precision, size, blocks, g_stride, theta_stride, centre_stride, precision_stride,
        UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        shift = tl.load(theta + run * theta_stride * UNIT + at, inside, other=0.0)
        shift -= tl.load(centre + run * centre_stride * UNIT + at, inside, other=0.0)
        pull = shift * tl.load(precision + run * precision_stride * UNIT + at, inside, other=0.0)
        place = g + run * g_stride * UNIT + at
        tl.store(place, tl.load(place, inside) - pull, inside)
        tl.store(part + tl.program_id(0), 0.5 * tl.sum(shift * pull, 0))

    @triton.jit
    def _add_path(
        omega, before, theta, g, centre, precision,
        size, blocks, omega_stride, before_stride, theta_stride, g_stride, centre_stride, precision_stride,
        UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        old = tl.load(before + run * before_stride * UNIT + at, inside)
        new = tl.load(theta + run * theta_stride * UNIT + at, inside)
        pull = old - tl.load(centre + run * centre_stride * UNIT + at, inside)
        pull *= tl.load(precision + run * precision_stride * UNIT + at, inside)
        slope = tl.load(g + run * g_stride * UNIT + at, inside) + pull
        place = omega + run * omega_stride * UNIT + at
        tl.store(place, tl.load(place, inside) + slope * (new - old), inside)
        tl.store(before + run * before_stride * UNIT + at, new, inside)

    @triton.jit
    def _count(scales, count, lr, log_b1, log_b2):
        # 1 - b^t loses most of its digits in 32 bits while t is small.
        t = tl.load(count) + 1
        tl.store(count, t)
        t = t.to(tl.float64)
        tl.store(scales, (tl.load(lr) / (1 - tl.exp(t * log_b1))).to(tl.float32))
        tl.store(scales + 1, (1 / tl.sqrt(1 - tl.exp(t * log_b2))).to(tl.float32))

    @triton.jit
    def _adam(value, m, v, g, scales, size, b1, b2, eps, UNIT: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        scale_m, scale_v = tl.load(scales), tl.load(scales + 1)
        up = tl.load(g + at, inside, other=0.0)
        new_m = b1 * tl.load(m + at, inside, other=0.0) + (1 - b1) * up
        new_v = b2 * tl.load(v + at, inside, other=0.0) + (1 - b2) * up * up
        moved = tl.load(value + at, inside) + scale_m * new_m / (tl.sqrt(new_v) * scale_v + eps)
        tl.store(m + at, new_m, inside)
        tl.store(v + at, new_v, inside)
        tl.store(value + at, moved, inside)


def take_quadratic(theta: Tensor, centre: Tensor, precision: Tensor, g: Tensor) -> Tensor:
    """1/2 sum_d precision (theta - centre)^2 [R]; precision (theta - centre) is subtracted from g.

    All [R, D]; each run's values are contiguous.
    """
    runs, size = theta.shape
    blocks = blocks_of(size)
    part = torch.empty(runs, blocks, device=theta.device)
    if size:
        tensors = (g, theta, centre, precision)
        unit, (units, *strides) = in_units(size, *(values.stride(0) for values in tensors))
        _take_quadratic[(runs * blocks,)](part, *tensors, units, blocks, *strides, UNIT=unit, BLOCK=BLOCK)
    return part.sum(1)


def add_path(omega: Tensor, before: Tensor, theta: Tensor, g: Tensor, centre: Tensor, precision: Tensor) -> None:
    """In place: omega += (g + precision (before - centre)) (theta - before), and then before = theta.

    All [R, D]; each run's values are contiguous.
    """
    runs, size = omega.shape
    blocks = blocks_of(size)
    if size:
        tensors = (omega, before, theta, g, centre, precision)
        unit, (units, *strides) = in_units(size, *(values.stride(0) for values in tensors))
        _add_path[(runs * blocks,)](*tensors, units, blocks, *strides, UNIT=unit, BLOCK=BLOCK)


def adam_scales(count: Tensor, lr: Tensor, b1: float, b2: float) -> Tensor:
    """Increments the step count in place and returns lr / (1 - b1^t) and 1 / sqrt(1 - b2^t)."""
    scales = torch.empty(2, device=lr.device)
    _count[(1,)](scales, count, lr, log(b1), log(b2))
    return scales


def adam(value: Tensor, m: Tensor, v: Tensor, g: Tensor, scales: Tensor, b1: float, b2: float, eps: float) -> None:
    """A step of Adam for maximisation, in place: value, and the running means m of g and v of g^2."""
    unit, (units,) = in_units(value.numel())
    _adam[(blocks_of(value.numel()),)](value, m, v, g, scales, units, b1, b2, eps, UNIT=unit, BLOCK=BLOCK)
