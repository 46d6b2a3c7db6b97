"""A narrow perceptron by local reparameterisation: what stands between its matrix products, forward and back.

    a = m + std * noise,  m = h W^T + b,  std^2 = h^2 V^T + v,  where V and v are the variances of W and b

m and std of the first layer [R, B, UNITS] serve every draw.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcl.ops.kernels.base import triton

if triton is not None:
    from vcl.ops.kernels.perceptron import less_kl, softmax

    tl: Any = import_module("triton.language")

    @triton.jit
    def moments(
        m, std, x, mean, var, x_run, size, bias_at, rows, row_tiles, tiles, width, tiny,
        UNITS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        run = (tl.program_id(0) // (row_tiles * tiles)).to(tl.int64)
        row = (tl.program_id(0) // tiles % row_tiles) * ROWS + tl.arange(0, ROWS)
        o = (tl.program_id(0) % tiles) * OUT + tl.arange(0, OUT)
        total = tl.zeros((ROWS, OUT), tl.float32)
        spread = tl.zeros((ROWS, OUT), tl.float32)
        for first in range(0, width, STEP):
            k = first + tl.arange(0, STEP)
            seen = tl.load(
                x + run * x_run + row[:, None] * width + k[None, :],
                (row < rows)[:, None] & (k < width)[None, :],
                other=0.0,
            )
            place = run * size + o[None, :] * width + k[:, None]
            known = (o < UNITS)[None, :] & (k < width)[:, None]
            w = tl.load(mean + place, known, other=0.0)
            v = tl.load(var + place, known, other=0.0)
            total += tl.dot(seen, w, input_precision=PRECISION)
            spread += tl.dot(seen * seen, v, input_precision=PRECISION)
        total += tl.load(mean + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
        spread += tl.load(var + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
        to = (run * rows + row[:, None]) * UNITS + o[None, :]
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        tl.store(m + to, total, inside)
        tl.store(std + to, tl.sqrt(spread + tiny), inside)

    @triton.jit
    def spread(
        h, square, std, m, s, mean, var, noise, m_run, m_draw, size, bias_at, noise_at, noise_apart,
        draws, rows, tiles, tiny, FIRST: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, OUT: tl.constexpr,
    ):  # fmt: skip
        # h = max(m + std * noise, 0) and h^2. The first layer's m and s are finished, and s is its std; the others'
        # come without their biases, and std is written.
        draw = (tl.program_id(0) // tiles).to(tl.int64)
        run = draw // draws
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        o = tl.arange(0, OUT)
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        place = row[:, None] * UNITS + o[None, :]
        at = (run * m_run + (draw % draws) * m_draw) * UNITS + place
        total = tl.load(m + at, inside, other=0.0)
        sigma = tl.load(s + at, inside, other=0.0)
        if not FIRST:
            total += tl.load(mean + run * size + bias_at + o, o < UNITS, other=0.0)[None, :]
            sigma = tl.sqrt(sigma + tl.load(var + run * size + bias_at + o, o < UNITS, other=0.0)[None, :] + tiny)
            tl.store(std + draw * rows * UNITS + place, sigma, inside)
        eps = tl.load(noise + draw * noise_apart + noise_at + place, inside, other=0.0)
        found = tl.maximum(total + sigma * eps, 0.0)
        tl.store(h + draw * rows * UNITS + place, found, inside)
        tl.store(square + draw * rows * UNITS + place, found * found, inside)

    @triton.jit
    def head_local(
        log_lik, g_tail, v_tail, m, s, mean, var, noise, y, size, tail_at, noise_in, noise_out, noise_apart,
        draws, rows, tiles, scale, tiny,
        UNITS: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
        PRECISION: tl.constexpr,
    ):  # fmt: skip
        # From the last hidden layer's m and s (without their biases) to log p, and back; the gradients in m and s are
        # written over them.
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
        eps = tl.load(noise + draw * noise_apart + noise_in + place, inside, other=0.0)
        h = tl.load(m + at, inside, other=0.0) + tl.load(mean + bias, i < UNITS, other=0.0)[None, :]
        h = tl.maximum(h + sigma * eps, 0.0)
        w = tl.load(mean + weight, known, other=0.0)
        v = tl.load(var + weight, known, other=0.0)
        logits = tl.dot(h, tl.trans(w), input_precision=PRECISION)
        logits += tl.load(mean + last, o < CLASSES, other=0.0)[None, :]
        std = tl.dot(h * h, tl.trans(v), input_precision=PRECISION)
        std = tl.sqrt(std + tl.load(var + last, o < CLASSES, other=0.0)[None, :] + tiny)
        eps_out = tl.load(
            noise + draw * noise_apart + noise_out + row[:, None] * CLASSES + o[None, :],
            (row < rows)[:, None] & (o < CLASSES)[None, :],
            other=0.0,
        )
        label = tl.load(y + run * rows + row, row < rows, other=0)
        value, g = softmax(logits + std * eps_out, label, row < rows, o < CLASSES, OUT)
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

    @triton.jit
    def back_local(
        g_m, g_s, g_bias, v_bias, g_h, g_square, h, std, noise, noise_at, noise_apart, draws, rows, tiles,
        FIRST: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, OUT: tl.constexpr,
    ):  # fmt: skip
        # The gradients in m and s from those in h and h^2: over all draws where they share m and s (FIRST), else of
        # each, written over those they came from.
        run = (tl.program_id(0) // tiles).to(tl.int64)
        row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
        o = tl.arange(0, OUT)
        inside = (row < rows)[:, None] & (o < UNITS)[None, :]
        place = row[:, None] * UNITS + o[None, :]
        plain = tl.zeros((ROWS, OUT), tl.float32)
        side = tl.zeros((ROWS, OUT), tl.float32)
        for number in range(draws):
            draw = run * draws + number
            at = draw * rows * UNITS + place
            found = tl.load(h + at, inside, other=0.0)
            back = tl.load(g_h + at, inside, other=0.0) + 2 * found * tl.load(g_square + at, inside, other=0.0)
            back = tl.where(found > 0, back, 0.0)
            along = 0.5 * back * tl.load(noise + draw * noise_apart + noise_at + place, inside, other=0.0)
            if not FIRST:
                along = along / tl.load(std + at, inside, other=1.0)
                tl.store(g_m + at, back, inside)
                tl.store(g_s + at, along, inside)
            plain += back
            side += along
        if FIRST:
            side = side / tl.load(std + run * rows * UNITS + place, inside, other=1.0)
            tl.store(g_m + run * rows * UNITS + place, plain, inside)
            tl.store(g_s + run * rows * UNITS + place, side, inside)
        there = tl.program_id(0).to(tl.int64) * UNITS + o
        tl.store(g_bias + there, tl.sum(plain, 0), o < UNITS)
        tl.store(v_bias + there, tl.sum(side, 0), o < UNITS)

    @triton.jit
    def add(
        g_mean, g_log_var, kl, g, v, var, mean, log_var, p_mean, p_log_var, size, first, part, p_mean_apart,
        p_var_apart, blocks, kl_apart, kl_first, parts, BLOCK: tl.constexpr,
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
        less_kl(
            g_mean, g_log_var, kl, mean, log_var, p_mean, p_log_var, plain, along, run, first + at, inside,
            size, p_mean_apart, p_var_apart, run * kl_apart + kl_first + tl.program_id(0) % blocks,
        )  # fmt: skip
