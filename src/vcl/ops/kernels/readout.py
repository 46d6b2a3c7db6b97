"""The end of a narrow network in one kernel: from the preactivation of its last hidden layer to log softmax, and back.

A program holds all units of the last hidden layer and all classes for some rows. The bias of the last hidden layer, the
head's weight and its bias are the *tail*; they are adjacent in theta and in its gradient.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import blocks_of, stride_of_draws, triton
from vcl.ops.kernels.layers import Order, input_precision, width_of

if triton is not None:
    tl: Any = import_module("triton.language")

    @triton.jit
    def _score(logits, label, row_inside, class_inside, OUT: tl.constexpr):
        # log softmax(logits)_y of each row, and its gradient in the logits.
        logits = tl.where(class_inside[None, :], logits, -float("inf"))
        logits -= tl.max(logits, 1)[:, None]
        e = tl.exp(logits)
        total = tl.sum(e, 1)
        hot = tl.arange(0, OUT)[None, :] == label[:, None]
        log_lik = tl.sum(tl.where(hot, logits, 0.0), 1) - tl.log(total)
        g = tl.where(hot, 1.0, 0.0) - e / total[:, None]
        return tl.where(row_inside, log_lik, 0.0), tl.where(row_inside[:, None], g, 0.0)

    @triton.jit
    def _drawn(
        log_lik, g_tail, a, b_in, w_out, b_out, y, a_run, a_draw, a_row, b_in_stride, w_stride, b_out_stride, draws,
        rows, tiles, scale,
        UNITS: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
        PRECISION: tl.constexpr,
    ):  # fmt: skip
        # From the last hidden layer's a (without its bias) to log p, and back; the gradient overwrites a.
        draw = (tl.program_id(0) // tiles).to(tl.int64)
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        i, o = tl.arange(0, IN), tl.arange(0, OUT)
        known = (o < CLASSES)[:, None] & (i < UNITS)[None, :]
        inside = (row < rows)[:, None] & (i < UNITS)[None, :]
        bias, last = b_in + draw * b_in_stride + i, b_out + draw * b_out_stride + o
        w = tl.load(w_out + draw * w_stride + o[:, None] * UNITS + i[None, :], known, other=0.0)
        at = a + ((draw // draws) * a_run + (draw % draws) * a_draw + row[:, None] * a_row) * UNITS + i[None, :]
        h = tl.maximum(tl.load(at, inside, other=0.0) + tl.load(bias, i < UNITS, other=0.0)[None, :], 0.0)
        logits = tl.dot(h, tl.trans(w), input_precision=PRECISION) + tl.load(last, o < CLASSES, other=0.0)[None, :]
        label = tl.load(y + (draw // draws) * rows + row, row < rows, other=0)
        value, g = _score(logits, label, row < rows, o < CLASSES, OUT)
        g *= scale
        back = tl.where(h > 0, tl.dot(g, w, input_precision=PRECISION), 0.0)
        tl.store(at, back, inside)
        tl.store(log_lik + tl.program_id(0), tl.sum(value, 0))
        there = g_tail + tl.program_id(0).to(tl.int64) * (UNITS + CLASSES * UNITS + CLASSES)
        tl.store(there + i, tl.sum(back, 0), i < UNITS)
        g_w = tl.dot(tl.trans(g), h, input_precision=PRECISION)
        tl.store(there + UNITS + o[:, None] * UNITS + i[None, :], g_w, known)
        tl.store(there + UNITS + CLASSES * UNITS + o, tl.sum(g, 0), o < CLASSES)

    @triton.jit
    def _local(
        log_lik, g_tail, v_tail, m, s, mean, var, noise, y, size, tail_at, noise_in, noise_out, noise_stride,
        draws, rows, tiles, scale, tiny,
        UNITS: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
        PRECISION: tl.constexpr,
    ):  # fmt: skip
        # From the last hidden layer's m and s (without their biases) to log p, and back; their gradients overwrite
        # them.
        draw = (tl.program_id(0) // tiles).to(tl.int64)
        run = draw // draws
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        i, o = tl.arange(0, IN), tl.arange(0, OUT)
        known = (o < CLASSES)[:, None] & (i < UNITS)[None, :]
        inside = (row < rows)[:, None] & (i < UNITS)[None, :]
        place = row[:, None] * UNITS + i[None, :]
        bias = run * size + tail_at + i
        weight = run * size + tail_at + UNITS + o[:, None] * UNITS + i[None, :]
        last = run * size + tail_at + UNITS + CLASSES * UNITS + o
        at = draw * rows * UNITS + place
        sigma = tl.load(s + at, inside, other=0.0) + tl.load(var + bias, i < UNITS, other=0.0)[None, :]
        sigma = tl.sqrt(sigma + tiny)
        eps = tl.load(noise + draw * noise_stride + noise_in + place, inside, other=0.0)
        h = tl.load(m + at, inside, other=0.0) + tl.load(mean + bias, i < UNITS, other=0.0)[None, :]
        h = tl.maximum(h + sigma * eps, 0.0)
        w = tl.load(mean + weight, known, other=0.0)
        v = tl.load(var + weight, known, other=0.0)
        logits = tl.dot(h, tl.trans(w), input_precision=PRECISION)
        logits += tl.load(mean + last, o < CLASSES, other=0.0)[None, :]
        std = tl.dot(h * h, tl.trans(v), input_precision=PRECISION)
        std = tl.sqrt(std + tl.load(var + last, o < CLASSES, other=0.0)[None, :] + tiny)
        eps_out = tl.load(
            noise + draw * noise_stride + noise_out + row[:, None] * CLASSES + o[None, :],
            (row < rows)[:, None] & (o < CLASSES)[None, :],
            other=0.0,
        )
        label = tl.load(y + run * rows + row, row < rows, other=0)
        value, g = _score(logits + std * eps_out, label, row < rows, o < CLASSES, OUT)
        g *= scale
        along = 0.5 * g * eps_out / std
        back = tl.dot(g, w, input_precision=PRECISION) + 2 * h * tl.dot(along, v, input_precision=PRECISION)
        back = tl.where(h > 0, back, 0.0)
        side = 0.5 * back * eps / sigma
        tl.store(m + at, back, inside)
        tl.store(s + at, side, inside)
        tl.store(log_lik + tl.program_id(0), tl.sum(value, 0))
        there = tl.program_id(0).to(tl.int64) * (UNITS + CLASSES * UNITS + CLASSES)
        tl.store(g_tail + there + i, tl.sum(back, 0), i < UNITS)
        tl.store(v_tail + there + i, tl.sum(side, 0), i < UNITS)
        to = there + UNITS + o[:, None] * UNITS + i[None, :]
        tl.store(g_tail + to, tl.dot(tl.trans(g), h, input_precision=PRECISION), known)
        tl.store(v_tail + to, tl.dot(tl.trans(along), h * h, input_precision=PRECISION), known)
        to = there + UNITS + CLASSES * UNITS + o
        tl.store(g_tail + to, tl.sum(g, 0), o < CLASSES)
        tl.store(v_tail + to, tl.sum(along, 0), o < CLASSES)


WIDEST, MOST_CLASSES = 128, 64
"""The most units of the last hidden layer, and the most classes."""


def _rows(units: int, most: int) -> int:
    """Rows per program: half as many for twice the units."""
    return max(16, most * 128 // max(128, width_of(units)))


def drawn(
    a: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor, y: Tensor, order: Order, draws: int, rows: int, scale: float
) -> tuple[Tensor, Tensor]:
    """log p in parts [N, T], and the tail's gradient [N, T, tail] times ``scale``; the gradient in a overwrites a.

    a holds N = R S times [B, units] in any order; b_in [N, units], w_out [N, classes, units], b_out [N, classes].
    """
    count, classes, units = w_out.shape
    some = _rows(units, 64)
    tiles = blocks_of(rows, some)
    log_lik = torch.empty(count, tiles, device=a.device)
    g_tail = torch.empty(count, tiles, units + classes * units + classes, device=a.device)
    _drawn[(count * tiles,)](
        log_lik, g_tail, a, b_in, w_out, b_out, y, *order, b_in.stride(0), w_out.stride(0), b_out.stride(0), draws,
        rows, tiles, scale, UNITS=units, CLASSES=classes, ROWS=some, IN=width_of(units), OUT=width_of(classes),
        PRECISION=input_precision(), num_warps=4 if units <= 128 else 8,
    )  # fmt: skip
    return log_lik, g_tail


def local(
    pair: Tensor, mean: Tensor, var: Tensor, noise: Tensor, noise_in: int, noise_out: int, y: Tensor, tail_at: int,
    classes: int, rows: int, scale: float, tiny: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same by local reparameterisation: pair [2, R, S B, units] are m and s, and then their gradients.

    The tail starts at ``tail_at`` in mean, var [R, D]; its gradient is a pair [2, R, S, T, tail].
    """
    (runs, draws), units = noise.shape[:2], pair.shape[-1]
    some = _rows(units, 32)
    tiles = blocks_of(rows, some)
    log_lik = torch.empty(runs * draws, tiles, device=pair.device)
    g_tail = torch.empty(2, runs, draws, tiles, units + classes * units + classes, device=pair.device)
    _local[(runs * draws * tiles,)](
        log_lik, *g_tail, *pair, mean, var, noise, y, mean.shape[1], tail_at, noise_in, noise_out,
        stride_of_draws(noise), draws, rows, tiles, scale, tiny, UNITS=units, CLASSES=classes, ROWS=some,
        IN=width_of(units), OUT=width_of(classes), PRECISION=input_precision(), num_warps=4 if units <= 128 else 8,
    )  # fmt: skip
    return log_lik, g_tail
