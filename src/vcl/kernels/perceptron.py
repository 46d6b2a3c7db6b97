"""A narrow perceptron: all that stands between two of its matrix products, forward and back.

A program holds all units of a layer for some rows. ``a`` is what comes into the units of a layer, h = max(a, 0) what
comes out, and a row is an example under one draw. :mod:`vcl.perceptron.fused` calls them in their order.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcl.kernels.base import triton

if triton is not None:
    from vcl.kernels.inputs import four_normals

    tl: Any = import_module("triton.language")

    @triton.jit
    def _softmax(logits, label, row_inside, class_inside, OUT: tl.constexpr):
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
    def value(value, log_lik, kl, log_lik_parts, kl_parts, scale, BLOCK: tl.constexpr):
        # scale * sum log_lik - sum kl of a run.
        run = tl.program_id(0).to(tl.int64)
        total = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, log_lik_parts, BLOCK):
            at = first + tl.arange(0, BLOCK)
            total += scale * tl.load(log_lik + run * log_lik_parts + at, at < log_lik_parts, other=0.0)
        for first in range(0, kl_parts, BLOCK):
            at = first + tl.arange(0, BLOCK)
            total -= tl.load(kl + run * kl_parts + at, at < kl_parts, other=0.0)
        tl.store(value + run, tl.sum(total, 0))

    # The estimator "weights": theta is drawn in two pieces, the first layer's weight [R, S, ...] and the rest
    # [R, S, Q]. Gradients come in pieces of theta [R, S, T, part], to be summed over draws and over T tiles of rows.
    # The last hidden layer's bias, the head's weight and its bias stand next to each other: they are the ``tail``.

    # Noise comes from a tape [R, S, D], or (SEEDED) is made where it is used, the same each time: of the run's seed,
    # the step, the place in theta and the draw, four draws at once.

    @triton.jit
    def _noise(noise, step, run, at, inside, draw, draws, apart, SEEDED: tl.constexpr):
        # Of four draws from ``draw`` on; what is beyond the last one is not used.
        if SEEDED:
            one, two, three, four = four_normals(tl.load(noise + run), tl.load(step), at, draw // 4)
        else:
            left, row = at * 0 + (draws - draw), noise + (run * draws + draw) * apart + at
            one = tl.load(row, inside, other=0.0)
            two = tl.load(row + apart, inside & (left > 1), other=0.0)
            three = tl.load(row + 2 * apart, inside & (left > 2), other=0.0)
            four = tl.load(row + 3 * apart, inside & (left > 3), other=0.0)
        return one, two, three, four

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
            one, two, three, four = _noise(noise, step, run, at, inside, draw, draws, noise_apart, SEEDED)
            left, row = at * 0 + (draws - draw), run * draws + draw
            _keep(first, rest, mu + sigma * one, row, at, left > 0, size, first_size, rest_apart)
            _keep(first, rest, mu + sigma * two, row + 1, at, left > 1, size, first_size, rest_apart)
            _keep(first, rest, mu + sigma * three, row + 2, at, left > 2, size, first_size, rest_apart)
            _keep(first, rest, mu + sigma * four, row + 3, at, left > 3, size, first_size, rest_apart)

    @triton.jit
    def _less_kl(g_mean, g_log_var, kl, mean, log_var, p_mean, p_log_var, plain, along, run, at, inside, size,
                 p_mean_apart, p_var_apart, kl_at):  # fmt: skip
        # What a program has found of a gradient, written less the gradient of the KL, and its share of the KL.
        old = tl.load(p_log_var + run * p_var_apart + at, inside, other=0.0)
        log_ratio = tl.load(log_var + run * size + at, inside, other=0.0) - old
        shift = tl.load(mean + run * size + at, inside, other=0.0)
        shift -= tl.load(p_mean + run * p_mean_apart + at, inside, other=0.0)
        excess = tl.exp(log_ratio) - 1
        pull = shift * tl.exp(-old)
        tl.store(g_mean + run * size + at, plain - pull, inside)
        tl.store(g_log_var + run * size + at, along - 0.5 * excess, inside)
        tl.store(kl + kl_at, 0.5 * tl.sum(excess - log_ratio + shift * pull, 0))

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
            one, two, three, four = _noise(noise, step, run, first + at, inside, draw, draws, noise_apart, SEEDED)
            left = at * 0 + (draws - draw)
            for tile in range(tiles):
                up = g + ((run * draws + draw) * tiles + tile) * part + at
                a = tl.load(up, inside, other=0.0)
                b = tl.load(up + tiles * part, inside & (left > 1), other=0.0)
                c = tl.load(up + 2 * tiles * part, inside & (left > 2), other=0.0)
                d = tl.load(up + 3 * tiles * part, inside & (left > 3), other=0.0)
                plain += (a + b) + (c + d)
                along += (a * one + b * two) + (c * three + d * four)
        sigma = tl.exp(0.5 * tl.load(log_var + run * size + first + at, inside, other=0.0))
        _less_kl(
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
        value, g = _softmax(logits, label, row < rows, o < CLASSES, OUT)
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

    # The estimator "local": a = m + std * noise with m = h W^T + b, std^2 = h^2 V^T + v, V and v the variances. m and
    # std of the first layer [R, B, UNITS] serve every draw.

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
        value, g = _softmax(logits + std * eps_out, label, row < rows, o < CLASSES, OUT)
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
        _less_kl(
            g_mean, g_log_var, kl, mean, log_var, p_mean, p_log_var, plain, along, run, first + at, inside,
            size, p_mean_apart, p_var_apart, run * kl_apart + kl_first + tl.program_id(0) % blocks,
        )  # fmt: skip
