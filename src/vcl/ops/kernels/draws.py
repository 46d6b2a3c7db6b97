"""Kernels of a mean-field fit: draws of theta, and gradients from draws or layers back to q.

One pass sums a gradient over draws (and over partial sums of programs), converts it to means and logs, and subtracts
the KL gradient. ``log`` is the optimised parameter: log sigma^2 = SCALE log. The compiler moves four values at once if
they are aligned to 16 bytes, so the stride between a tensor's draws is a multiple of 4 values.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import blocks_of, triton

if triton is not None:
    from vcl.ops.kernels.inputs import four_draws
    from vcl.ops.kernels.parameters import kl_of

    tl: Any = import_module("triton.language")

    @triton.jit
    def _piece(table, blocks):
        # The start of a block in the flat vector and in its tensor, the tensor's size, and its memory.
        row = table + tl.program_id(0) % blocks * 5
        start, local, size = tl.load(row), tl.load(row + 1), tl.load(row + 2)
        offset, stride = tl.multiple_of(tl.load(row + 3), 16), tl.multiple_of(tl.load(row + 4), 4)
        return start, tl.multiple_of(local, 16), size, offset, stride

    @triton.jit
    def _draw(
        theta, mean, log, noise, step, table, blocks, draws, runs, width, noise_stride,
        SCALE: tl.constexpr, SEEDED: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        start, local, size, offset, stride = _piece(table, blocks)
        at = tl.arange(0, BLOCK)
        inside, room = local + at < size, local + at < stride
        mu = tl.load(mean + run * width + start + at, inside, other=0.0)
        sigma = tl.exp(0.5 * SCALE * tl.load(log + run * width + start + at, inside, other=0.0))
        for draw in range(0, draws, 4):
            one, two, three, four = four_draws(
                noise, step, run, start + at, inside, draw, draws, noise_stride, SEEDED
            )  # fmt: skip
            left = at * 0 + (draws - draw)
            place = theta + offset + (run * draws + draw) * stride + local + at
            tl.store(place, mu + sigma * one, room)
            tl.store(place + stride, mu + sigma * two, room & (left > 1))
            tl.store(place + 2 * stride, mu + sigma * three, room & (left > 2))
            tl.store(place + 3 * stride, mu + sigma * four, room & (left > 3))

    @triton.jit
    def _copy(theta, mean, table, blocks, width, BLOCK: tl.constexpr):
        run = (tl.program_id(0) // blocks).to(tl.int64)
        start, local, size, offset, stride = _piece(table, blocks)
        at = tl.arange(0, BLOCK)
        value = tl.load(mean + run * width + start + at, local + at < size, other=0.0)
        tl.store(theta + offset + run * stride + local + at, value, local + at < stride)

    @triton.jit
    def add_four(plain, along, up, stride, draw, draws, at, inside, one, two, three, four):
        # Adds the gradients of four draws, ``stride`` values apart: plain, and times their noise.
        left = at * 0 + (draws - draw)
        a = tl.load(up, inside, other=0.0)
        b = tl.load(up + stride, inside & (left > 1), other=0.0)
        c = tl.load(up + 2 * stride, inside & (left > 2), other=0.0)
        d = tl.load(up + 3 * stride, inside & (left > 3), other=0.0)
        return plain + ((a + b) + (c + d)), along + ((a * one + b * two) + (c * three + d * four))

    @triton.jit
    def _less_kl(
        g_mean, g_log, kl, mean, log, p_mean, p_log_var, plain, along, run, at, held, inside, size, p_mean_stride,
        p_var_stride, kl_at, SCALE: tl.constexpr, HELD: tl.constexpr,
    ):  # fmt: skip
        # Writes a program's gradient in means and log variances, minus the KL gradient, and its partial sum of the KL.
        # ``held`` are the positions of the coordinates in p.
        if HELD:
            mine, pull, excess = kl_of(
                tl.load(mean + run * size + at, inside, other=0.0),
                SCALE * tl.load(log + run * size + at, inside, other=0.0),
                tl.load(p_mean + run * p_mean_stride + held, inside, other=0.0),
                tl.load(p_log_var + run * p_var_stride + held, inside, other=0.0),
            )
            plain, along = plain - pull, along - excess
            tl.store(kl + kl_at, tl.sum(tl.where(inside, mine, 0.0), 0))
        tl.store(g_mean + run * size + at, plain, inside)
        tl.store(g_log + run * size + at, SCALE * along, inside)

    @triton.jit
    def _gather(
        g_mean, g_log, kl, g, mean, log, p_mean, p_log_var, noise, step, size, first, held, part, p_mean_stride,
        p_var_stride, noise_stride, blocks, kl_stride, kl_first, draws, tiles,
        SCALE: tl.constexpr, HELD: tl.constexpr, SEEDED: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # From gradients in theta [R, S, T, part]: sum_s g and sum_s g * noise * sigma / 2, from ``first`` on.
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < part
        plain = tl.zeros((BLOCK,), tl.float32)
        along = tl.zeros((BLOCK,), tl.float32)
        for draw in range(0, draws, 4):
            one, two, three, four = four_draws(noise, step, run, first + at, inside, draw, draws, noise_stride, SEEDED)
            for tile in range(tiles):
                up = g + ((run * draws + draw) * tiles + tile) * part + at
                plain, along = add_four(
                    plain, along, up, tiles * part, draw, draws, at, inside, one, two, three, four
                )  # fmt: skip
        sigma = tl.exp(0.5 * SCALE * tl.load(log + run * size + first + at, inside, other=0.0))
        _less_kl(
            g_mean, g_log, kl, mean, log, p_mean, p_log_var, plain, 0.5 * along * sigma, run, first + at, held + at,
            inside, size, p_mean_stride, p_var_stride, run * kl_stride + kl_first + tl.program_id(0) % blocks,
            SCALE, HELD,
        )  # fmt: skip

    @triton.jit
    def _add(
        g_mean, g_log, kl, g, v, var, mean, log, p_mean, p_log_var, size, first, held, part, p_mean_stride,
        p_var_stride, blocks, kl_stride, kl_first, parts,
        SCALE: tl.constexpr, HELD: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # From gradients in means and variances [R, parts, part]: their sums, from ``first`` on; d log v = v dv.
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < part
        plain = tl.zeros((BLOCK,), tl.float32)
        along = tl.zeros((BLOCK,), tl.float32)
        for number in range(parts):
            place = (run * parts + number) * part + at
            plain += tl.load(g + place, inside, other=0.0)
            along += tl.load(v + place, inside, other=0.0)
        along *= tl.load(var + run * size + first + at, inside, other=0.0)
        _less_kl(
            g_mean, g_log, kl, mean, log, p_mean, p_log_var, plain, along, run, first + at, held + at, inside,
            size, p_mean_stride, p_var_stride, run * kl_stride + kl_first + tl.program_id(0) % blocks, SCALE, HELD,
        )  # fmt: skip


GATHER, ADD, DRAW = 256, 128, 512
"""Coordinates per program. Tuned on an H200."""


def aligned(size: int, unit: int = 4) -> int:
    """The next multiple of ``unit`` values."""
    return -(-size // unit) * unit


@cache
def table(spans: tuple[tuple[int, int], ...], rows: int, device: torch.device) -> tuple[Tensor, tuple[int, ...], int]:
    """The memory layout of tensors (start, size) of a flat vector, each [rows, a multiple of 4 values].

    Returns the table of their blocks [blocks, 5], the start of each tensor, and the total size. The table is kept
    permanently, because captured graphs read it.
    """
    lines, offsets, end = [], [], 0
    for start, size in spans:
        offsets.append(end)
        lines += [(start + local, local, size, end, aligned(size)) for local in range(0, size, DRAW)]
        end += aligned(rows * aligned(size), 16)
    return torch.tensor(lines, dtype=torch.int64, device=device), tuple(offsets), end


def draw(
    theta: Tensor, mean: Tensor, log: Tensor, noise: tuple[Tensor, ...], noise_stride: int, lines: Tensor, draws: int,
    scale: int,
) -> None:  # fmt: skip
    """theta = mu + sigma eps, written in the layout of :func:`table`; mean, log [R, D].

    The noise is a tape [R, S, D] with stride ``noise_stride`` between draws, or generated from seeds [R] and a step [].
    """
    runs, width = mean.shape
    _draw[(runs * len(lines),)](
        theta, mean, log, noise[0], noise[-1], lines, len(lines), draws, runs, width, noise_stride,
        SCALE=scale, SEEDED=len(noise) == 2, BLOCK=DRAW, num_warps=4,
    )  # fmt: skip


def copy(theta: Tensor, mean: Tensor, lines: Tensor) -> None:
    """Parameters [R, D], written in the layout of :func:`table`, for one draw."""
    _copy[(len(mean) * len(lines),)](theta, mean, lines, len(lines), mean.shape[1], BLOCK=DRAW, num_warps=4)


def gather(
    g: Tensor, to: tuple[Tensor, Tensor, Tensor], q: tuple[Tensor, Tensor], p: tuple[Tensor, Tensor],
    noise: tuple[Tensor, ...], noise_stride: int, first: int, held: int | None, kl_first: int, draws: int, tiles: int,
    scale: int,
) -> None:  # fmt: skip
    """From gradients in theta [R, S, T, part] to those in means and logs from ``first`` on, minus the KL gradient.

    ``to`` are g_mean, g_log [R, D] and the partial sums of the KL [R, K], written from ``kl_first`` on. ``held`` is the
    start of the part in p, if it has a KL.
    """
    runs, size = q[0].shape
    part = g.numel() // (runs * draws * tiles)
    blocks = blocks_of(part, GATHER)
    _gather[(runs * blocks,)](
        *to, g, *q, *p, noise[0], noise[-1], size, first, held or 0, part, p[0].stride(0), p[1].stride(0), noise_stride,
        blocks, to[2].shape[1], kl_first, draws, tiles,
        SCALE=scale, HELD=held is not None, SEEDED=len(noise) == 2, BLOCK=GATHER, num_warps=8,
    )  # fmt: skip


def add(
    g: Tensor, to: tuple[Tensor, Tensor, Tensor], var: Tensor, q: tuple[Tensor, Tensor], p: tuple[Tensor, Tensor],
    first: int, held: int | None, kl_first: int, parts: int, scale: int,
) -> None:  # fmt: skip
    """Like :func:`gather`, from gradients in means and variances [2, R, parts, part]."""
    runs, size = q[0].shape
    part = g.numel() // (2 * runs * parts)
    blocks = blocks_of(part, ADD)
    _add[(runs * blocks,)](
        *to, *g, var, *q, *p, size, first, held or 0, part, p[0].stride(0), p[1].stride(0), blocks, to[2].shape[1],
        kl_first, parts, SCALE=scale, HELD=held is not None, BLOCK=ADD, num_warps=4,
    )  # fmt: skip
