"""What stands between the matrix products of a network."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import BLOCK, apart_of, blocks_of, in_units, triton

if triton is not None:
    tl: Any = import_module("triton.language")

    # A program takes BLOCK values, or ROWS x COLS of a matrix [rows, out]; widths come in units, as in parameters.py.

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
    def _activate(
        a, b, rows, out, row_blocks, col_blocks, b_apart,
        UNIT: tl.constexpr, BIASED: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0)
        group = (program // (row_blocks * col_blocks)).to(tl.int64)
        row = (program // col_blocks) % row_blocks * ROWS + tl.arange(0, ROWS)
        col = program % col_blocks * COLS + tl.arange(0, COLS)
        inside = (row < rows)[:, None] & (col < out * UNIT)[None, :]
        place = a + (group * rows + row)[:, None] * (out * UNIT) + col[None, :]
        value = tl.load(place, inside, other=0.0)
        if BIASED:
            value += tl.load(b + group * b_apart * UNIT + col, col < out * UNIT, other=0.0)[None, :]
        if RELU:
            value = tl.where(value < 0, 0.0, value)  # NaN stays
        tl.store(place, value, inside)

    @triton.jit
    def _activate_gradient(
        masked, g_b, g, a, rows, out, col_blocks, b_apart,
        UNIT: tl.constexpr, BIASED: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        # One program goes down all rows of its columns, so that no sum is left over.
        group = (tl.program_id(0) // col_blocks).to(tl.int64)
        col = tl.program_id(0) % col_blocks * COLS + tl.arange(0, COLS)
        total = tl.zeros((ROWS, COLS), tl.float32)
        for first in range(0, rows, ROWS):
            row = first + tl.arange(0, ROWS)
            inside = (row < rows)[:, None] & (col < out * UNIT)[None, :]
            at = (group * rows + row)[:, None] * (out * UNIT) + col[None, :]
            up = tl.load(g + at, inside, other=0.0)
            if RELU:
                up = tl.where(tl.load(a + at, inside, other=0.0) <= 0, 0.0, up)
                tl.store(masked + at, up, inside)
            total += up
        if BIASED:
            tl.store(g_b + group * b_apart * UNIT + col, tl.sum(total, 0), col < out * UNIT)

    # From here on a program takes one example (of one draw of one run): WIDTH is its number of values, rounded up.

    @triton.jit
    def _image(f, x, size, draws, batch, UNIT: tl.constexpr, WIDTH: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        image = row // (draws * batch) * batch + row % batch
        at = tl.arange(0, WIDTH)
        inside = at < size * UNIT
        logit = tl.load(f + row * size * UNIT + at, inside, other=0.0)
        return row, inside, logit, tl.load(x + image * size * UNIT + at, inside, other=0.0)

    @triton.jit
    def _bernoulli(value, f, x, size, draws, batch, UNIT: tl.constexpr, WIDTH: tl.constexpr):
        row, inside, logit, pixel = _image(f, x, size, draws, batch, UNIT, WIDTH)
        # log(1 + e^f) = max(f, 0) + log(1 + e^-|f|)
        small = tl.exp(-tl.abs(logit))
        # By a series where 1 + e would round to 1, so that nothing is lost.
        above = tl.where(small < 1e-4, small * (1 - 0.5 * small), tl.log(1 + small))
        score = pixel * logit - tl.where(logit < 0, 0.0, logit) - above
        tl.store(value + row, tl.sum(tl.where(inside, score, 0.0), 0))

    @triton.jit
    def _bernoulli_gradient(g_f, g, f, x, size, draws, batch, UNIT: tl.constexpr, WIDTH: tl.constexpr):
        row, inside, logit, pixel = _image(f, x, size, draws, batch, UNIT, WIDTH)
        at = tl.arange(0, WIDTH)
        # sigmoid(f), by an exponential that cannot overflow
        small = tl.exp(-tl.abs(logit))
        p = tl.where(logit < 0, small, 1.0) / (1 + small)
        tl.store(g_f + row * size * UNIT + at, tl.load(g + row) * (pixel - p), inside)

    @triton.jit
    def _encode(z, kl, codes, noise, latent, draws, batch, apart, WIDTH: tl.constexpr, DRAWS: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        run, example = row // batch, row % batch
        at = tl.arange(0, WIDTH)
        inside = at < latent
        mean = tl.load(codes + row * 2 * latent + at, inside, other=0.0)
        log_sd = tl.load(codes + row * 2 * latent + latent + at, inside, other=0.0)
        sd = tl.exp(log_sd)
        tl.store(kl + row, 0.5 * tl.sum(mean * mean + sd * sd - 1 - 2 * log_sd, 0))
        for first in range(0, draws, DRAWS):
            draw = first + tl.arange(0, DRAWS)[:, None]
            both = (draw < draws) & inside[None, :]
            eps = tl.load(noise + (run * draws + draw) * apart + example * latent + at[None, :], both)
            place = z + ((run * draws + draw) * batch + example) * latent + at[None, :]
            tl.store(place, mean[None, :] + sd[None, :] * eps, both)

    @triton.jit
    def _encode_gradient(
        g_codes, g_z, g_kl, codes, noise, latent, draws, batch, apart, WIDTH: tl.constexpr, DRAWS: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        run, example = row // batch, row % batch
        at = tl.arange(0, WIDTH)
        inside = at < latent
        mean = tl.load(codes + row * 2 * latent + at, inside, other=0.0)
        sd = tl.exp(tl.load(codes + row * 2 * latent + latent + at, inside, other=0.0))
        plain = tl.zeros((DRAWS, WIDTH), tl.float32)
        along = tl.zeros((DRAWS, WIDTH), tl.float32)
        for first in range(0, draws, DRAWS):
            draw = first + tl.arange(0, DRAWS)[:, None]
            both = (draw < draws) & inside[None, :]
            up = tl.load(g_z + ((run * draws + draw) * batch + example) * latent + at[None, :], both, other=0.0)
            eps = tl.load(noise + (run * draws + draw) * apart + example * latent + at[None, :], both, other=0.0)
            plain += up
            along += up * eps
        weight = tl.load(g_kl + row)
        tl.store(g_codes + row * 2 * latent + at, tl.sum(plain, 0) + weight * mean, inside)
        g_log_sd = tl.sum(along, 0) * sd + weight * (sd * sd - 1)
        tl.store(g_codes + row * 2 * latent + latent + at, g_log_sd, inside)


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


def activate(a: Tensor, b: Tensor | None, relu: bool) -> None:
    """a + b, or the positive part of it, in place: a [G, N, out]; b [G, out], each row in one piece, or None."""
    (groups, rows, out), tile = a.shape, (16, 128)
    if b is not None or relu:
        unit, (units, apart) = in_units(out, 0 if b is None else b.stride(0))
        row_blocks, col_blocks = blocks_of(rows, tile[0]), blocks_of(out, tile[1])
        _activate[(groups * row_blocks * col_blocks,)](
            a, a if b is None else b, rows, units, row_blocks, col_blocks, apart,
            UNIT=unit, BIASED=b is not None, RELU=relu, ROWS=tile[0], COLS=tile[1],
        )  # fmt: skip


def activate_gradient(g: Tensor, a: Tensor | None, g_b: Tensor | None) -> Tensor:
    """g, but 0 where a is (if it is given): all [G, N, out]; and its sum over N into g_b [G, out], if that is given."""
    groups, rows, out = g.shape
    if a is None and g_b is None:
        return g
    g = g.contiguous()
    masked = g if a is None else torch.empty_like(g)
    unit, (units, apart) = in_units(out, 0 if g_b is None else g_b.stride(0))
    few = rows <= 64
    col_blocks = blocks_of(out, 32)
    _activate_gradient[(groups * col_blocks,)](
        masked, g if g_b is None else g_b, g, g if a is None else a, rows, units, col_blocks, apart,
        UNIT=unit, BIASED=g_b is not None, RELU=a is not None, ROWS=64 if few else 128, COLS=32,
        num_warps=4 if few else 8,
    )  # fmt: skip
    return masked


def bernoulli(f: Tensor, x: Tensor) -> Tensor:
    """sum_d x_d f_d - log(1 + e^f_d) [R, S, B] for f [R, S, B, P] and x [R, 1, B, P], both in one piece."""
    value = torch.empty(f.shape[:3], device=f.device)
    _bernoulli[(value.numel(),)](value, f, x, *_images(f), **_widths(f))
    return value


def bernoulli_gradient(g: Tensor, f: Tensor, x: Tensor) -> Tensor:
    """g (x - sigmoid(f)), for g [R, S, B]."""
    g_f = torch.empty_like(f)
    _bernoulli_gradient[(g.numel(),)](g_f, g.contiguous(), f, x, *_images(f), **_widths(f))
    return g_f


def _images(f: Tensor) -> tuple[int, int, int]:
    return in_units(f.shape[3])[1][0], f.shape[1], f.shape[2]


def _widths(f: Tensor) -> dict[str, int]:
    return {"UNIT": in_units(f.shape[3])[0], "WIDTH": triton.next_power_of_2(f.shape[3])}


def encode(codes: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """z = mu + sd noise [R, S, B, latent], and the KL of N(mu, sd^2) to N(0, I) [R, 1, B].

    codes [R, 1, B, 2 latent], mu and then log sd, in one piece; noise [R, S, B, latent], whose draws lie equally far
    apart.
    """
    runs, draws, batch, latent = noise.shape
    z, kl = torch.empty(noise.shape, device=codes.device), torch.empty(runs, 1, batch, device=codes.device)
    _encode[(runs * batch,)](z, kl, codes, noise, latent, draws, batch, apart_of(noise), **_tile(noise))
    return z, kl


def encode_gradient(g_z: Tensor, g_kl: Tensor, codes: Tensor, noise: Tensor) -> Tensor:
    """The gradient of codes: sum_s g_z + g_kl mu, and then sum_s g_z noise sd + g_kl (sd^2 - 1)."""
    runs, draws, batch, latent = noise.shape
    g_codes = torch.empty_like(codes)
    _encode_gradient[(runs * batch,)](
        g_codes, g_z.contiguous(), g_kl.contiguous(), codes, noise, latent, draws, batch, apart_of(noise),
        **_tile(noise),
    )  # fmt: skip
    return g_codes


def _tile(noise: Tensor) -> dict[str, int]:
    return {"WIDTH": triton.next_power_of_2(noise.shape[3]), "DRAWS": min(16, triton.next_power_of_2(noise.shape[1]))}
