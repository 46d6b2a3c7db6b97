"""One pass over the parameters: draws of theta, the KL, penalties, Adam."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import accumulate
from math import log
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import BLOCK, apart_of, blocks_of, in_units, triton

Noise = tuple[Tensor, ...]
"""A tape alone, or seeds and a step."""

if triton is not None:
    from vcl.ops.kernels.inputs import four_draws

    tl: Any = import_module("triton.language")

    # In all of them a program takes BLOCK coordinates of one run (or of one draw of one run). Addresses are 64 bits
    # wide from the run on, because R x S x D may be more than 32 can count. Where there is a UNIT, sizes and distances
    # come in units of so many values (4 if all of them allow it): the compiler then knows that four neighbours stand
    # on 16 bytes of their own and moves them at once.

    @triton.jit
    def add_four(plain, along, up, apart, draw, draws, at, inside, one, two, three, four):
        # To both sums the gradients of four draws, which stand ``apart``, alone and times their noise.
        left = at * 0 + (draws - draw)
        a = tl.load(up, inside, other=0.0)
        b = tl.load(up + apart, inside & (left > 1), other=0.0)
        c = tl.load(up + 2 * apart, inside & (left > 2), other=0.0)
        d = tl.load(up + 3 * apart, inside & (left > 3), other=0.0)
        return plain + ((a + b) + (c + d)), along + ((a * one + b * two) + (c * three + d * four))

    @triton.jit
    def kl_of(mean, log_var, p_mean, p_log_var):
        # The KL of each coordinate, and its gradient in the mean and in the log variance.
        log_ratio, shift = log_var - p_log_var, mean - p_mean
        excess, pull = tl.exp(log_ratio) - 1, shift * tl.exp(-p_log_var)
        return 0.5 * (excess - log_ratio + shift * pull), pull, 0.5 * excess

    @triton.jit
    def _block(table, blocks, UNIT: tl.constexpr, BLOCK: tl.constexpr):
        # The table says where a block begins, and where its tensor begins and how long it is.
        run, row = (tl.program_id(0) // blocks).to(tl.int64), table + tl.program_id(0) % blocks * 3
        first, size = tl.load(row + 1) * UNIT, tl.load(row + 2) * UNIT
        at = tl.load(row) * UNIT + tl.arange(0, BLOCK)
        return run, first, size, at, at < first + size

    @triton.jit
    def _draw(
        theta, mean, var, noise, step, table, blocks, runs, draws, width, noise_apart,
        SEEDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run, first, size, at, inside = _block(table, blocks, UNIT, BLOCK)
        mu = tl.load(mean + run * width * UNIT + at, inside)
        sigma = tl.sqrt(tl.load(var + run * width * UNIT + at, inside))
        for draw in range(0, draws, 4):
            one, two, three, four = four_draws(
                noise, step, run, at, inside, draw, draws, noise_apart * UNIT, SEEDED
            )  # fmt: skip
            left = at * 0 + (draws - draw)
            place = theta + runs * draws * first + (run * draws + draw) * size + (at - first)
            tl.store(place, mu + sigma * one, inside)
            tl.store(place + size, mu + sigma * two, inside & (left > 1))
            tl.store(place + 2 * size, mu + sigma * three, inside & (left > 2))
            tl.store(place + 3 * size, mu + sigma * four, inside & (left > 3))

    @triton.jit
    def _draw_gradient(
        g_mean, g_var, g, var, noise, step, table, blocks, runs, draws, width, noise_apart,
        SEEDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run, first, size, at, inside = _block(table, blocks, UNIT, BLOCK)
        plain = tl.zeros((BLOCK,), tl.float32)
        along = tl.zeros((BLOCK,), tl.float32)
        for draw in range(0, draws, 4):
            one, two, three, four = four_draws(
                noise, step, run, at, inside, draw, draws, noise_apart * UNIT, SEEDED
            )  # fmt: skip
            up = g + runs * draws * first + (run * draws + draw) * size + (at - first)
            plain, along = add_four(plain, along, up, size, draw, draws, at, inside, one, two, three, four)
        sigma = tl.sqrt(tl.load(var + run * width * UNIT + at, inside, other=1.0))
        tl.store(g_mean + run * width * UNIT + at, plain, inside)
        tl.store(g_var + run * width * UNIT + at, 0.5 * along / sigma, inside)

    @triton.jit
    def _take_kl(
        part, g_mean, g_log_var, mean, log_var, p_mean, p_log_var,
        size, blocks, g_mean_apart, g_var_apart, q_mean_apart, q_var_apart, p_mean_apart, p_var_apart,
        UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        kl, pull, excess = kl_of(
            tl.load(mean + run * q_mean_apart * UNIT + at, inside, other=0.0),
            tl.load(log_var + run * q_var_apart * UNIT + at, inside, other=0.0),
            tl.load(p_mean + run * p_mean_apart * UNIT + at, inside, other=0.0),
            tl.load(p_log_var + run * p_var_apart * UNIT + at, inside, other=0.0),
        )
        first, second = g_mean + run * g_mean_apart * UNIT + at, g_log_var + run * g_var_apart * UNIT + at
        tl.store(first, tl.load(first, inside) - pull, inside)
        tl.store(second, tl.load(second, inside) - excess, inside)
        tl.store(part + tl.program_id(0), tl.sum(kl, 0))

    @triton.jit
    def _take_quadratic(
        part, g, theta, centre, precision, size, blocks, g_apart, theta_apart, centre_apart, precision_apart,
        UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        shift = tl.load(theta + run * theta_apart * UNIT + at, inside, other=0.0)
        shift -= tl.load(centre + run * centre_apart * UNIT + at, inside, other=0.0)
        pull = shift * tl.load(precision + run * precision_apart * UNIT + at, inside, other=0.0)
        place = g + run * g_apart * UNIT + at
        tl.store(place, tl.load(place, inside) - pull, inside)
        tl.store(part + tl.program_id(0), 0.5 * tl.sum(shift * pull, 0))

    @triton.jit
    def _add_path(
        omega, before, theta, g, centre, precision,
        size, blocks, omega_apart, before_apart, theta_apart, g_apart, centre_apart, precision_apart,
        UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        old = tl.load(before + run * before_apart * UNIT + at, inside)
        new = tl.load(theta + run * theta_apart * UNIT + at, inside)
        pull = old - tl.load(centre + run * centre_apart * UNIT + at, inside)
        pull *= tl.load(precision + run * precision_apart * UNIT + at, inside)
        slope = tl.load(g + run * g_apart * UNIT + at, inside) + pull
        place = omega + run * omega_apart * UNIT + at
        tl.store(place, tl.load(place, inside) + slope * (new - old), inside)
        tl.store(before + run * before_apart * UNIT + at, new, inside)

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


def draw(mean: Tensor, var: Tensor, noise: Noise, draws: int, sizes: tuple[int, ...]) -> Tensor:
    """mu + sigma * noise, tensor after tensor: mean, var [R, D] -> R S D values.

    Of each tensor, which are ``sizes`` of the D coordinates, all runs and draws stand together, [R, S, size]. The noise
    is a tape [R, S, D], whose rows lie equally far apart, or follows from seeds [R] and a step [].
    """
    theta = torch.empty(draws * mean.numel(), device=mean.device)
    grid, numbers, options = _drawn(mean, noise, draws, sizes)
    _draw[grid](theta, mean, var, *numbers, **options)
    return theta


def draw_gradient(g: Tensor, var: Tensor, noise: Noise, draws: int, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """sum_s g and sum_s g * noise / (2 sigma), both [R, D], for g as :func:`draw` gives theta."""
    g_mean, g_var = torch.empty_like(var), torch.empty_like(var)
    grid, numbers, options = _drawn(var, noise, draws, sizes)
    _draw_gradient[grid](g_mean, g_var, g, var, *numbers, **options)
    return g_mean, g_var


def _drawn(
    like: Tensor, noise: Noise, draws: int, sizes: tuple[int, ...]
) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
    """What both are called with: the grid, tensors and numbers, and constants."""
    runs, width = like.shape
    seeded = len(noise) == 2
    unit, (units, apart, *_) = in_units(width, 0 if seeded else apart_of(noise[0]), *sizes)
    table = _table(sizes, unit, like.device)
    options = {"SEEDED": seeded, "UNIT": unit, "BLOCK": BLOCK}
    return (runs * len(table),), (noise[0], noise[-1], table, len(table), runs, draws, units, apart), options


@cache
def _table(sizes: tuple[int, ...], unit: int, device: torch.device) -> Tensor:
    """Where each block of the coordinates begins, where its tensor begins, and its size, in units: [blocks, 3].

    Kept for good, because captured graphs go on reading it.
    """
    firsts = accumulate(sizes, initial=0)
    rows = [
        (start // unit, first // unit, size // unit)
        for first, size in zip(firsts, sizes, strict=False)
        for start in range(first, first + size, BLOCK)
    ]
    return torch.tensor(rows, dtype=torch.int64, device=device)


def take_kl(
    mean: Tensor, log_var: Tensor, p_mean: Tensor, p_log_var: Tensor, g_mean: Tensor, g_log_var: Tensor
) -> Tensor:
    """KL(q || p) [R]; from g_mean and g_log_var (m_q - m_p) / s_p^2 and (s_q^2 / s_p^2 - 1) / 2 are subtracted.

    All [R, D]; each run's values lie in one piece.
    """
    runs, size = mean.shape
    blocks = blocks_of(size)
    part = torch.empty(runs, blocks, device=mean.device)
    if size:
        tensors = (g_mean, g_log_var, mean, log_var, p_mean, p_log_var)
        unit, (units, *apart) = in_units(size, *(values.stride(0) for values in tensors))
        _take_kl[(runs * blocks,)](part, *tensors, units, blocks, *apart, UNIT=unit, BLOCK=BLOCK)
    return part.sum(1)


def take_quadratic(theta: Tensor, centre: Tensor, precision: Tensor, g: Tensor) -> Tensor:
    """1/2 sum_d precision (theta - centre)^2 [R]; precision (theta - centre) is subtracted from g.

    All [R, D]; each run's values lie in one piece.
    """
    runs, size = theta.shape
    blocks = blocks_of(size)
    part = torch.empty(runs, blocks, device=theta.device)
    if size:
        tensors = (g, theta, centre, precision)
        unit, (units, *apart) = in_units(size, *(values.stride(0) for values in tensors))
        _take_quadratic[(runs * blocks,)](part, *tensors, units, blocks, *apart, UNIT=unit, BLOCK=BLOCK)
    return part.sum(1)


def add_path(omega: Tensor, before: Tensor, theta: Tensor, g: Tensor, centre: Tensor, precision: Tensor) -> None:
    """In place: omega += (g + precision (before - centre)) (theta - before), and then before = theta.

    All [R, D]; each run's values lie in one piece.
    """
    runs, size = omega.shape
    blocks = blocks_of(size)
    if size:
        tensors = (omega, before, theta, g, centre, precision)
        unit, (units, *apart) = in_units(size, *(values.stride(0) for values in tensors))
        _add_path[(runs * blocks,)](*tensors, units, blocks, *apart, UNIT=unit, BLOCK=BLOCK)


def adam_scales(count: Tensor, lr: Tensor, b1: float, b2: float) -> Tensor:
    """Counts one step, in place, and gives lr / (1 - b1^t) and 1 / sqrt(1 - b2^t)."""
    scales = torch.empty(2, device=lr.device)
    _count[(1,)](scales, count, lr, log(b1), log(b2))
    return scales


def adam(value: Tensor, m: Tensor, v: Tensor, g: Tensor, scales: Tensor, b1: float, b2: float, eps: float) -> None:
    """A step of Adam uphill, in place: value, and the running means m of g and v of g^2."""
    unit, (units,) = in_units(value.numel())
    _adam[(blocks_of(value.numel()),)](value, m, v, g, scales, units, b1, b2, eps, UNIT=unit, BLOCK=BLOCK)
