"""Kernels between the matrix products of a chain, forward and back, for all runs and draws at once.

A program processes ROWS x COLS of the rows and units of one run and draw. ``a`` is the preactivation of a layer and h
its output, max(a, 0) with RELU. By local reparameterisation

    a = m + std * noise,  m = h W^T + b,  std^2 = h^2 V^T + v,  where V and v are the variances of W and b

and if all draws share a layer's inputs, they share its m and std [R, B, units].
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcl.ops.kernels.base import blocks_of, stride_of_draws, triton

if triton is not None:
    tl: Any = import_module("triton.language")

    @triton.jit
    def _tile(tiles, col_tiles, ROWS: tl.constexpr, COLS: tl.constexpr):
        # Which run and draw, which rows and which units.
        draw = (tl.program_id(0) // (tiles * col_tiles)).to(tl.int64)
        row = (tl.program_id(0) // col_tiles % tiles) * ROWS + tl.arange(0, ROWS)
        col = (tl.program_id(0) % col_tiles) * COLS + tl.arange(0, COLS)
        return draw, row, col

    @triton.jit
    def _activate(
        h, a, b, a_run, a_draw, a_row, b_stride, draws, rows, tiles, col_tiles,
        BIASED: tl.constexpr, RELU: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        # h = max(a + b, 0), from any order of runs, draws and rows to [R, S, B, UNITS].
        draw, row, col = _tile(tiles, col_tiles, ROWS, COLS)
        inside = (row < rows)[:, None] & (col < UNITS)[None, :]
        at = a + ((draw // draws) * a_run + (draw % draws) * a_draw + row[:, None] * a_row) * UNITS + col[None, :]
        value = tl.load(at, inside, other=0.0)
        if BIASED:
            value += tl.load(b + draw * b_stride + col, col < UNITS, other=0.0)[None, :]
        if RELU:
            value = tl.where(value < 0, 0.0, value)  # NaN stays
        tl.store(h + (draw * rows + row[:, None]) * UNITS + col[None, :], value, inside)

    @triton.jit
    def _activate_gradient(
        g_a, g_bias, g, h, a_run, a_draw, a_row, draws, rows, tiles, col_tiles,
        RELU: tl.constexpr, MOVED: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        # The gradient in a from that in h, to any order of runs, draws and rows, and the bias's over these rows.
        draw, row, col = _tile(tiles, col_tiles, ROWS, COLS)
        inside = (row < rows)[:, None] & (col < UNITS)[None, :]
        place = (draw * rows + row[:, None]) * UNITS + col[None, :]
        up = tl.load(g + place, inside, other=0.0)
        if RELU:
            up = tl.where(tl.load(h + place, inside, other=0.0) <= 0, 0.0, up)
        if MOVED:
            to = ((draw // draws) * a_run + (draw % draws) * a_draw + row[:, None] * a_row) * UNITS + col[None, :]
            tl.store(g_a + to, up, inside)
        there = (draw * tiles + tl.program_id(0) // col_tiles % tiles) * UNITS + col
        tl.store(g_bias + there, tl.sum(up, 0), col < UNITS)

    @triton.jit
    def _moments(
        m, std, x, mean, var, x_run, size, weight_at, bias_at, rows, tiles, col_tiles, width, tiny,
        BIASED: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, COLS: tl.constexpr,
        PRECISION: tl.constexpr,
    ):  # fmt: skip
        # m and std [R, B, UNITS] of a layer with shared inputs: x is read once for both.
        run, row, o = _tile(tiles, col_tiles, ROWS, COLS)
        total = tl.zeros((ROWS, COLS), tl.float32)
        spread = tl.zeros((ROWS, COLS), tl.float32)
        for first in range(0, width, STEP):
            k = first + tl.arange(0, STEP)
            seen = tl.load(
                x + run * x_run + row[:, None] * width + k[None, :],
                (row < rows)[:, None] & (k < width)[None, :],
                other=0.0,
            )
            place = run * size + weight_at + o[None, :] * width + k[:, None]
            known = (o < UNITS)[None, :] & (k < width)[:, None]
            w = tl.load(mean + place, known, other=0.0)
            v = tl.load(var + place, known, other=0.0)
            total += tl.dot(seen, w, input_precision=PRECISION)
            spread += tl.dot(seen * seen, v, input_precision=PRECISION)
        if BIASED:
            total += tl.load(mean + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
            spread += tl.load(var + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
        to = (run * rows + row[:, None]) * UNITS + o[None, :]
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        tl.store(m + to, total, inside)
        tl.store(std + to, tl.sqrt(spread + tiny), inside)

    @triton.jit
    def _spread(
        h, square, std, m, s, mean, var, noise, m_run, m_draw, size, bias_at, noise_at, noise_stride,
        draws, rows, tiles, col_tiles, tiny,
        SHARED: tl.constexpr, BIASED: tl.constexpr, RELU: tl.constexpr, SQUARE: tl.constexpr, UNITS: tl.constexpr,
        ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        # a = m + std * noise, or its positive part, and its square. SHARED m and s include their biases, and s is the
        # std; otherwise both lack their biases, and std is written.
        draw, row, o = _tile(tiles, col_tiles, ROWS, COLS)
        run = draw // draws
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        place = row[:, None] * UNITS + o[None, :]
        at = (run * m_run + (draw % draws) * m_draw) * UNITS + place
        total = tl.load(m + at, inside, other=0.0)
        sigma = tl.load(s + at, inside, other=0.0)
        if not SHARED:
            if BIASED:
                total += tl.load(mean + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
                sigma += tl.load(var + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
            sigma = tl.sqrt(sigma + tiny)
            tl.store(std + draw * rows * UNITS + place, sigma, inside)
        eps = tl.load(noise + draw * noise_stride + noise_at + place, inside, other=0.0)
        found = total + sigma * eps
        if RELU:
            found = tl.where(found < 0, 0.0, found)
        tl.store(h + draw * rows * UNITS + place, found, inside)
        if SQUARE:
            tl.store(square + draw * rows * UNITS + place, found * found, inside)

    @triton.jit
    def _spread_gradient(
        g_m, g_s, g_bias, v_bias, g_h, g_square, h, std, noise, noise_at, noise_stride, draws, rows, tiles, col_tiles,
        SHARED: tl.constexpr, RELU: tl.constexpr, SQUARE: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr,
        COLS: tl.constexpr,
    ):  # fmt: skip
        # The gradients in m and s from those in h and h^2: summed over draws that share m and s (SHARED), else per
        # draw, overwriting their sources. A program processes all draws of a run.
        run, row, o = _tile(tiles, col_tiles, ROWS, COLS)
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        place = row[:, None] * UNITS + o[None, :]
        plain = tl.zeros((ROWS, COLS), tl.float32)
        side = tl.zeros((ROWS, COLS), tl.float32)
        for number in range(draws):
            draw = run * draws + number
            at = draw * rows * UNITS + place
            back = tl.load(g_h + at, inside, other=0.0)
            found = tl.load(h + at, inside, other=0.0)
            if SQUARE:
                back += 2 * found * tl.load(g_square + at, inside, other=0.0)
            if RELU:
                back = tl.where(found <= 0, 0.0, back)
            along = 0.5 * back * tl.load(noise + draw * noise_stride + noise_at + place, inside, other=0.0)
            if not SHARED:
                along = along / tl.load(std + at, inside, other=1.0)
                tl.store(g_m + at, back, inside)
                tl.store(g_s + at, along, inside)
            plain += back
            side += along
        if SHARED:
            side = side / tl.load(std + run * rows * UNITS + place, inside, other=1.0)
            tl.store(g_m + run * rows * UNITS + place, plain, inside)
            tl.store(g_s + run * rows * UNITS + place, side, inside)
        there = (run * tiles + tl.program_id(0) // col_tiles % tiles) * UNITS + o
        tl.store(g_bias + there, tl.sum(plain, 0), o < UNITS)
        tl.store(v_bias + there, tl.sum(side, 0), o < UNITS)


class Order(NamedTuple):
    """Strides between runs, draws and rows of a layer's ``a``, in rows of units."""

    run: int
    draw: int
    row: int


ROWS = {"activate": 32, "activate_gradient": 64, "spread": 16, "spread_gradient": 8}
"""Rows per program for up to 128 units. Tuned on an H200 for 784-100-100-10."""


class Cut(NamedTuple):
    """The division of a layer's rows and units into programs."""

    tiles: int
    col_tiles: int
    options: dict[str, int]


def cut(kernel: str, rows: int, units: int) -> Cut:
    """At most 128 units per program; fewer units allow more rows."""
    cols = min(128, width_of(units))
    some = min(ROWS[kernel] * (128 // cols), max(16, triton.next_power_of_2(rows)))
    return Cut(blocks_of(rows, some), blocks_of(units, cols), {"UNITS": units, "ROWS": some, "COLS": cols})


def width_of(units: int) -> int:
    """The next power of 2, at least 16, as a matrix product needs."""
    return max(16, 1 << (units - 1).bit_length())


def input_precision() -> str:
    """The precision of torch's matrix products."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def activate(h: Tensor, a: Tensor, b: Tensor | None, relu: bool, order: Order, draws: int) -> None:
    """h = a + b [N, B, units], or its positive part; a has any ``order``, and b [N, units] may be None."""
    count, rows, units = h.shape
    tiles, col_tiles, options = cut("activate", rows, units)
    _activate[(count * tiles * col_tiles,)](
        h, a, h if b is None else b, *order, 0 if b is None else b.stride(0), draws, rows, tiles, col_tiles,
        BIASED=b is not None, RELU=relu, num_warps=8, **options,
    )  # fmt: skip


def activate_gradient(g_a: Tensor, g: Tensor, h: Tensor, relu: bool, order: Order, draws: int, moved: bool) -> Tensor:
    """Writes the gradient in a, in its order, from g in h [N, B, units]; returns the bias's, in parts [N, T, units].

    Without ``moved`` g_a is not written, because it is g itself.
    """
    count, rows, units = h.shape
    tiles, col_tiles, options = cut("activate_gradient", rows, units)
    g_bias = torch.empty(count, tiles, units, device=g.device)
    _activate_gradient[(count * tiles * col_tiles,)](
        g_a, g_bias, g, h, *order, draws, rows, tiles, col_tiles,
        RELU=relu, MOVED=moved, num_warps=4, **options,
    )  # fmt: skip
    return g_bias


MOMENTS = {"ROWS": 64, "STEP": 32, "COLS": 32, "num_warps": 4}


def moments(
    m: Tensor, std: Tensor, x: Tensor, mean: Tensor, var: Tensor, weight_at: int, bias_at: int | None, tiny: float
) -> None:
    """m = x W^T + b and std = sqrt(x^2 V^T + v + tiny) [R, B, units]: x [R, B, in]; mean, var [R, D] hold the layer."""
    runs, rows, units = m.shape
    tiles, col_tiles = blocks_of(rows, MOMENTS["ROWS"]), blocks_of(units, MOMENTS["COLS"])
    _moments[(runs * tiles * col_tiles,)](
        m, std, x, mean, var, x.stride(0), mean.shape[1], weight_at, bias_at or 0, rows, tiles, col_tiles, x.shape[2],
        tiny, BIASED=bias_at is not None, UNITS=units, PRECISION=input_precision(), **MOMENTS,
    )  # fmt: skip


def spread(
    out: Tensor, std: Tensor, m: Tensor, s: Tensor, mean: Tensor, var: Tensor, noise: Tensor, noise_at: int,
    bias_at: int | None, relu: bool, square: bool, shared: bool, rows: int, tiny: float,
) -> None:  # fmt: skip
    """Writes a = m + std * noise, or its positive part, to out[0] and its square to out[1]: out [2, R S B, units].

    Noise [R, S, K] is read from ``noise_at`` on. If draws share m and s [R, B, units], s is already the deviation.
    """
    (runs, draws), units = noise.shape[:2], out.shape[-1]
    tiles, col_tiles, options = cut("spread", rows, units)
    strides = (rows, 0) if shared else (draws * rows, rows)
    _spread[(runs * draws * tiles * col_tiles,)](
        *out, std, m, s, mean, var, noise, *strides, mean.shape[1], bias_at or 0, noise_at, stride_of_draws(noise),
        draws, rows, tiles, col_tiles, tiny, SHARED=shared, BIASED=bias_at is not None, RELU=relu, SQUARE=square,
        num_warps=8, **options,
    )  # fmt: skip


def spread_gradient(
    to: Tensor, g: Tensor, g_square: Tensor | None, h: Tensor, std: Tensor, noise: Tensor, noise_at: int, relu: bool,
    shared: bool, rows: int,
) -> Tensor:  # fmt: skip
    """Writes the gradients in m and s to ``to`` [2, ...], from those in h, h^2; returns the bias's [2, R, T, units]."""
    (runs, draws), units = noise.shape[:2], h.shape[-1]
    tiles, col_tiles, options = cut("spread_gradient", rows, units)
    g_bias = torch.empty(2, runs, tiles, units, device=g.device)
    _spread_gradient[(runs * tiles * col_tiles,)](
        *to, *g_bias, g, g if g_square is None else g_square, h, std, noise, noise_at, stride_of_draws(noise), draws,
        rows, tiles, col_tiles, SHARED=shared, RELU=relu, SQUARE=g_square is not None, num_warps=8, **options,
    )  # fmt: skip
    return g_bias
