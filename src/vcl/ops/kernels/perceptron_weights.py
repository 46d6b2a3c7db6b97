"""A narrow perceptron whose weights are drawn: what stands between its matrix products, forward and back.

Theta is drawn in two pieces, the first layer's weight [R, S, ...] and the rest [R, S, Q]. Gradients come in pieces of
theta [R, S, T, part], to be summed over draws and over T tiles of rows. The last hidden layer's bias, the head's weight
and its bias stand next to each other: they are the ``tail``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcl.ops.kernels.base import triton

if triton is not None:
    from vcl.ops.kernels.inputs import four_draws
    from vcl.ops.kernels.parameters import add_four
    from vcl.ops.kernels.perceptron import less_kl, softmax

    tl: Any = import_module("triton.language")

    @triton.jit
    def _keep(first, rest, theta, row, at, live, size, first_size, rest_apart):
        # The mask of the first piece knows nothing of ``size``, so that it allows to write four values at once.
        tl.store(first + row * first_size + at, theta, live & (at < first_size))
        tl.store(rest + row * rest_apart + at - first_size, theta, live & (at >= first_size) & (at < size))

    @triton.jit
    def draw(
        first, rest, mean, log_var, noise, step, size, first_size, rest_apart, noise_apart, blocks, draws,
        SEEDED: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        mu = tl.load(mean + run * size + at, inside)
        sigma = tl.exp(0.5 * tl.load(log_var + run * size + at, inside))
        for draw in range(0, draws, 4):
            one, two, three, four = four_draws(noise, step, run, at, inside, draw, draws, noise_apart, SEEDED)
            left, row = at * 0 + (draws - draw), run * draws + draw
            _keep(first, rest, mu + sigma * one, row, at, left > 0, size, first_size, rest_apart)
            _keep(first, rest, mu + sigma * two, row + 1, at, left > 1, size, first_size, rest_apart)
            _keep(first, rest, mu + sigma * three, row + 2, at, left > 2, size, first_size, rest_apart)
            _keep(first, rest, mu + sigma * four, row + 3, at, left > 3, size, first_size, rest_apart)

    @triton.jit
    def gather(
        g_mean, g_log_var, kl, g, mean, log_var, p_mean, p_log_var, noise, step, size, first, part, p_mean_apart,
        p_var_apart, noise_apart, blocks, kl_apart, kl_first, draws, tiles, SEEDED: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # From gradients in theta [R, S, T, part]: sum_s g and sum_s g * noise * sigma / 2, from ``first`` on.
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = at < part
        plain = tl.zeros((BLOCK,), tl.float32)
        along = tl.zeros((BLOCK,), tl.float32)
        for draw in range(0, draws, 4):
            one, two, three, four = four_draws(noise, step, run, first + at, inside, draw, draws, noise_apart, SEEDED)
            for tile in range(tiles):
                up = g + ((run * draws + draw) * tiles + tile) * part + at
                plain, along = add_four(
                    plain, along, up, tiles * part, draw, draws, at, inside, one, two, three, four
                )  # fmt: skip
        sigma = tl.exp(0.5 * tl.load(log_var + run * size + first + at, inside, other=0.0))
        less_kl(
            g_mean, g_log_var, kl, mean, log_var, p_mean, p_log_var, plain, 0.5 * along * sigma, run, first + at,
            inside, size, p_mean_apart, p_var_apart, run * kl_apart + kl_first + tl.program_id(0) % blocks,
        )  # fmt: skip

    @triton.jit
    def rectify(
        h, a, theta, a_run, a_draw, a_row, rest, bias_at, draws, rows, tiles,
        UNITS: tl.constexpr, ROWS: tl.constexpr, OUT: tl.constexpr,
    ):  # fmt: skip
        # h = max(a + b, 0), from any order of runs, draws and rows to [R, S, B, UNITS].
        draw = (tl.program_id(0) // tiles).to(tl.int64)
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        o = tl.arange(0, OUT)
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        at = a + ((draw // draws) * a_run + (draw % draws) * a_draw + row[:, None] * a_row) * UNITS + o[None, :]
        bias = tl.load(theta + draw * rest + bias_at + o, o < UNITS, other=0.0)
        to = h + (draw * rows + row[:, None]) * UNITS + o[None, :]
        tl.store(to, tl.maximum(tl.load(at, inside, other=0.0) + bias[None, :], 0.0), inside)

    @triton.jit
    def head(
        log_lik, g_tail, a, theta, y, a_run, a_draw, a_row, rest, tail_at, draws, rows, tiles, scale,
        UNITS: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
        PRECISION: tl.constexpr,
    ):  # fmt: skip
        # From the last hidden layer's a (without its bias) to log p, and back; the gradient is written over a.
        draw = (tl.program_id(0) // tiles).to(tl.int64)
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        i, o = tl.arange(0, IN), tl.arange(0, OUT)
        known = (o < CLASSES)[:, None] & (i < UNITS)[None, :]
        inside = (row < rows)[:, None] & (i < UNITS)[None, :]
        bias = theta + draw * rest + tail_at + i
        weight = theta + draw * rest + tail_at + UNITS + o[:, None] * UNITS + i[None, :]
        last = theta + draw * rest + tail_at + UNITS + CLASSES * UNITS + o
        w = tl.load(weight, known, other=0.0)
        at = a + ((draw // draws) * a_run + (draw % draws) * a_draw + row[:, None] * a_row) * UNITS + i[None, :]
        h = tl.maximum(tl.load(at, inside, other=0.0) + tl.load(bias, i < UNITS, other=0.0)[None, :], 0.0)
        logits = tl.dot(h, tl.trans(w), input_precision=PRECISION) + tl.load(last, o < CLASSES, other=0.0)[None, :]
        label = tl.load(y + (draw // draws) * rows + row, row < rows, other=0)
        value, g = softmax(logits, label, row < rows, o < CLASSES, OUT)
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
    def mask(
        g_a, g_bias, g_h, h, a_run, a_draw, a_row, draws, rows, tiles,
        UNITS: tl.constexpr, ROWS: tl.constexpr, OUT: tl.constexpr,
    ):  # fmt: skip
        # The gradient in a from that in h, to any order of runs, draws and rows, and the bias's.
        draw = (tl.program_id(0) // tiles).to(tl.int64)
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        o = tl.arange(0, OUT)
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        place = (draw * rows + row[:, None]) * UNITS + o[None, :]
        up = tl.load(g_h + place, inside, other=0.0)
        up = tl.where(tl.load(h + place, inside, other=0.0) > 0, up, 0.0)
        to = g_a + ((draw // draws) * a_run + (draw % draws) * a_draw + row[:, None] * a_row) * UNITS + o[None, :]
        tl.store(to, up, inside)
        tl.store(g_bias + tl.program_id(0).to(tl.int64) * UNITS + o, tl.sum(up, 0), o < UNITS)
