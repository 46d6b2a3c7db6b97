"""Kernels for CUDA devices, in Triton: what torch would do in many passes over the parameters, in one.

Nothing here is needed: each kernel has a plain form in torch next to where it is used, which the tests compare it with.
The work is the same, element by element; only sums are taken in another order.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from math import log
from typing import Any

import torch
from torch import Tensor

triton: Any = import_module("triton") if find_spec("triton") else None

BLOCK = 1024


def usable(values: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether these kernels can work on ``values``."""
    return triton is not None and values.is_cuda and values.dtype == dtype


if triton is not None:
    tl: Any = import_module("triton.language")

    # In all of them a program takes BLOCK coordinates of one run (or of one draw of one run). Addresses are 64 bits
    # wide from the run on, because R x S x D may be more than 32 can count. Where there is a UNIT, sizes and distances
    # come in units of so many values (4 if all of them allow it): the compiler then knows that four neighbours stand
    # on 16 bytes of their own and moves them at once.

    @triton.jit
    def _draw(
        theta, mean, var, noise, table, blocks, runs, draws, width, noise_apart,
        UNIT: tl.constexpr, BLOCK: tl.constexpr, DRAWS: tl.constexpr,
    ):  # fmt: skip
        # The table says where a block begins, and where its tensor begins and how long it is.
        run, row = (tl.program_id(0) // blocks).to(tl.int64), table + tl.program_id(0) % blocks * 3
        first, size = tl.load(row + 1) * UNIT, tl.load(row + 2) * UNIT
        at = tl.load(row) * UNIT + tl.arange(0, BLOCK)
        inside = at < first + size
        mu = tl.load(mean + run * width * UNIT + at, inside)
        sigma = tl.sqrt(tl.load(var + run * width * UNIT + at, inside))
        for begin in range(0, draws, DRAWS):
            draw = begin + tl.arange(0, DRAWS)[:, None]
            both = (draw < draws) & inside[None, :]
            eps = tl.load(noise + (run * draws + draw) * noise_apart * UNIT + at[None, :], both)
            place = theta + runs * draws * first + (run * draws + draw) * size + (at - first)[None, :]
            tl.store(place, mu[None, :] + sigma[None, :] * eps, both)

    @triton.jit
    def _draw_gradient(
        g_mean, g_var, g, var, noise, table, blocks, runs, draws, width, noise_apart,
        UNIT: tl.constexpr, BLOCK: tl.constexpr, DRAWS: tl.constexpr,
    ):  # fmt: skip
        run, row = (tl.program_id(0) // blocks).to(tl.int64), table + tl.program_id(0) % blocks * 3
        first, size = tl.load(row + 1) * UNIT, tl.load(row + 2) * UNIT
        at = tl.load(row) * UNIT + tl.arange(0, BLOCK)
        inside = at < first + size
        plain = tl.zeros((DRAWS, BLOCK), tl.float32)
        along = tl.zeros((DRAWS, BLOCK), tl.float32)
        for begin in range(0, draws, DRAWS):
            draw = begin + tl.arange(0, DRAWS)[:, None]
            both = (draw < draws) & inside[None, :]
            place = g + runs * draws * first + (run * draws + draw) * size + (at - first)[None, :]
            up = tl.load(place, both, other=0.0)
            eps = tl.load(noise + (run * draws + draw) * noise_apart * UNIT + at[None, :], both, other=0.0)
            plain += up
            along += up * eps
        sigma = tl.sqrt(tl.load(var + run * width * UNIT + at, inside, other=1.0))
        tl.store(g_mean + run * width * UNIT + at, tl.sum(plain, 0), inside)
        tl.store(g_var + run * width * UNIT + at, 0.5 * tl.sum(along, 0) / sigma, inside)

    @triton.jit
    def _take_kl(
        part, g_mean, g_log_var, mean, log_var, p_mean, p_log_var,
        size, blocks, g_mean_apart, g_var_apart, q_mean_apart, q_var_apart, p_mean_apart, p_var_apart,
        UNIT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size * UNIT
        old = tl.load(p_log_var + run * p_var_apart * UNIT + at, inside, other=0.0)
        log_ratio = tl.load(log_var + run * q_var_apart * UNIT + at, inside, other=0.0) - old
        shift = tl.load(mean + run * q_mean_apart * UNIT + at, inside, other=0.0)
        shift -= tl.load(p_mean + run * p_mean_apart * UNIT + at, inside, other=0.0)
        excess = tl.exp(log_ratio) - 1
        pull = shift * tl.exp(-old)
        first, second = g_mean + run * g_mean_apart * UNIT + at, g_log_var + run * g_var_apart * UNIT + at
        tl.store(first, tl.load(first, inside) - pull, inside)
        tl.store(second, tl.load(second, inside) - 0.5 * excess, inside)
        tl.store(part + tl.program_id(0), 0.5 * tl.sum(excess - log_ratio + shift * pull, 0))

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

    @triton.jit
    def _local(
        a, std, m, s, b, v, noise, size, out, blocks, seen, draws, apart,
        TINY: tl.constexpr, BIASED: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # ``seen`` rows a run were multiplied: one for all draws, or one for each.
        row = (tl.program_id(0) // blocks).to(tl.int64)
        run = row // seen
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        mean = tl.load(m + row * size + at, inside)
        var = tl.load(s + row * size + at, inside)
        if BIASED:
            mean += tl.load(b + run * out + at % out, inside)
            var += tl.load(v + run * out + at % out, inside)
        sigma = tl.sqrt(var + TINY)
        tl.store(std + row * size + at, sigma, inside)
        for extra in range(draws // seen):
            draw = run * draws + row % seen + extra
            eps = tl.load(noise + draw * apart + at, inside)
            tl.store(a + draw * size + at, mean + sigma * eps, inside)

    @triton.jit
    def _local_gradient(g_mean, g_var, g, noise, std, size, blocks, seen, draws, apart, BLOCK: tl.constexpr):
        row = (tl.program_id(0) // blocks).to(tl.int64)
        run = row // seen
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        plain = tl.zeros((BLOCK,), tl.float32)
        along = tl.zeros((BLOCK,), tl.float32)
        for extra in range(draws // seen):
            draw = run * draws + row % seen + extra
            up = tl.load(g + draw * size + at, inside)
            plain += up
            along += up * tl.load(noise + draw * apart + at, inside)
        sigma = tl.load(std + row * size + at, inside, other=1.0)
        tl.store(g_mean + row * size + at, plain, inside)
        tl.store(g_var + row * size + at, 0.5 * along / sigma, inside)

    @triton.jit
    def _normal(noise, seeds, step, size, quarter, blocks, BLOCK: tl.constexpr):
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        place = at.to(tl.uint32)
        counted = tl.load(step).to(tl.uint32) + place * 0
        a, b, c, d = tl.philox(tl.load(seeds + run), place, counted, place * 0, place * 0)
        one, two = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(a), tl.uint_to_uniform_float(b))
        three, four = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(c), tl.uint_to_uniform_float(d))
        first = noise + run * size
        tl.store(first + at, one, at < quarter)
        tl.store(first + quarter + at, two, (at < quarter) & (quarter + at < size))
        tl.store(first + 2 * quarter + at, three, (at < quarter) & (2 * quarter + at < size))
        tl.store(first + 3 * quarter + at, four, (at < quarter) & (3 * quarter + at < size))

    @triton.jit
    def _pixels(x, values, index, width, blocks, batch, runs_apart, BLOCK: tl.constexpr):
        row = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        example = (row // batch) * runs_apart + tl.load(index + row) * width
        tl.store(x + row * width + at, tl.load(values + example + at, at < width).to(tl.float32) / 255, at < width)


def draw(mean: Tensor, var: Tensor, noise: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """mu + sigma * noise, tensor after tensor: mean, var [R, D]; noise [R, S, D] -> R S D values.

    Of each tensor, which are ``sizes`` of the D coordinates, all runs and draws stand together, [R, S, size]. The rows
    of noise lie equally far apart.
    """
    theta = torch.empty(noise.numel(), device=mean.device)
    grid, numbers, options = _drawn(noise, sizes)
    _draw[grid](theta, mean, var, noise, *numbers, **options)
    return theta


def draw_gradient(g: Tensor, var: Tensor, noise: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """sum_s g and sum_s g * noise / (2 sigma), both [R, D], for g as :func:`draw` gives theta."""
    g_mean, g_var = torch.empty_like(var), torch.empty_like(var)
    grid, numbers, options = _drawn(noise, sizes)
    _draw_gradient[grid](g_mean, g_var, g, var, noise, *numbers, **options)
    return g_mean, g_var


def _drawn(noise: Tensor, sizes: tuple[int, ...]) -> tuple[tuple[int], tuple[Any, ...], dict[str, int]]:
    """What both are called with: the grid, numbers, and constants."""
    runs, draws, width = noise.shape
    unit, (units, apart, *_) = in_units(width, apart_of(noise), *sizes)
    table = _table(sizes, unit, noise.device)
    options = {"UNIT": unit, "BLOCK": BLOCK, "DRAWS": 1 if draws == 1 else 2}
    return (runs * len(table),), (table, len(table), runs, draws, units, apart), options


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


def local(
    m: Tensor, s: Tensor, b: Tensor | None, v: Tensor | None, noise: Tensor, tiny: float
) -> tuple[Tensor, Tensor]:
    """a = m + b + std * noise and std = sqrt(s + v + tiny).

    m, s [R, S or 1, B, out]; b, v [R, out] or None; noise [R, S, B, out], whose draws lie equally far apart.
    """
    (runs, seen, examples, out), draws = m.shape, noise.shape[1]
    size = examples * out
    a, std = torch.empty(noise.shape, device=m.device), torch.empty_like(m)
    blocks = blocks_of(size)
    _local[(runs * seen * blocks,)](
        a, std, m, s, m if b is None else b.contiguous(), s if v is None else v.contiguous(), noise,
        size, out, blocks, seen, draws, apart_of(noise), TINY=tiny, BIASED=b is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return a, std


def local_gradient(g: Tensor, noise: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of m and of s from that of a: sums of g and of g * noise / (2 std) over draws that share them."""
    runs, seen, examples, out = std.shape
    size = examples * out
    g_mean, g_var = torch.empty_like(std), torch.empty_like(std)
    blocks = blocks_of(size)
    _local_gradient[(runs * seen * blocks,)](
        g_mean, g_var, g.contiguous(), noise, std, size, blocks, seen, noise.shape[1], apart_of(noise), BLOCK=BLOCK
    )
    return g_mean, g_var


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


def normal(seeds: Tensor, step: Tensor, size: int) -> Tensor:
    """Standard normals [R, size] that follow from (seed of the run; step, place): seeds [R] and step [] are int64."""
    noise = torch.empty(len(seeds), size, device=seeds.device)
    quarter = -(-size // 4)
    blocks = blocks_of(quarter)
    if size:
        _normal[(len(seeds) * blocks,)](noise, seeds, step, size, quarter, blocks, BLOCK=BLOCK)
    return noise


def pixels(values: Tensor, index: Tensor) -> Tensor:
    """values[r, index[r]] / 255 for uint8 values [R, N, ...], which runs may share, and index [R, B]."""
    x = torch.empty(*index.shape, *values.shape[2:], device=values.device)
    width = x[0, 0].numel()
    blocks = blocks_of(width)
    _pixels[(index.numel() * blocks,)](
        x, values, index.contiguous(), width, blocks, index.shape[1], values.stride(0), BLOCK=BLOCK
    )
    return x


def evenly_apart(noise: Tensor) -> bool:
    """Whether the draws of all runs, noise [R, S, ...], lie equally far apart in memory, each in one piece."""
    runs, draws = noise.shape[:2]
    whole = noise.stride()[2:] == torch.empty(noise.shape[2:], device="meta").stride()
    return whole and (1 in (runs, draws) or noise.stride(0) == draws * noise.stride(1))


def apart_of(noise: Tensor) -> int:
    """How far."""
    return noise.stride(0) if noise.shape[1] == 1 else noise.stride(1)


def in_units(*numbers: int) -> tuple[int, list[int]]:
    """(4, a quarter of each) if all can be divided by 4, and else (1, they as they are)."""
    unit = 1 if any(number % 4 for number in numbers) else 4
    return unit, [number // unit for number in numbers]


def blocks_of(size: int, block: int = BLOCK) -> int:
    """How many blocks cover ``size``."""
    return -(-size // block)
