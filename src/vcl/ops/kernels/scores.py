"""Per-example kernels at the end of a chain: softmax, Bernoulli pixels, and the latent variables of a VAE.

A program processes one example of one draw of one run. WIDTH is its number of values, rounded up to a power of 2.
Scores and gradients are computed together, so that outputs are read once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import stride_of_draws, triton

if triton is not None:
    tl: Any = import_module("triton.language")

    @triton.jit
    def _softmax(
        value, g_f, f, y, mask, scale, draws, rows, MASKED: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr
    ):
        # log softmax(f)_y, and its gradient.
        row = tl.program_id(0).to(tl.int64)
        example = row // (draws * rows) * rows + row % rows
        o = tl.arange(0, WIDTH)
        logits = tl.load(f + row * UNITS + o, o < UNITS, other=-float("inf"))
        logits -= tl.max(logits, 0)
        e = tl.exp(logits)
        total = tl.sum(e, 0)
        hot = o == tl.load(y + example)
        found = tl.sum(tl.where(hot, logits, 0.0), 0) - tl.log(total)
        g = scale * (tl.where(hot, 1.0, 0.0) - e / total)
        if MASKED:
            counts = tl.load(mask + example)
            found, g = found * counts, g * counts
        tl.store(value + row, found)
        tl.store(g_f + row * UNITS + o, g, o < UNITS)

    @triton.jit
    def _bernoulli(value, g_f, f, x, scale, draws, batch, UNITS: tl.constexpr, WIDTH: tl.constexpr):
        # sum_d x_d f_d - log(1 + e^f_d), and its gradient x - sigmoid(f).
        row = tl.program_id(0).to(tl.int64)
        image = row // (draws * batch) * batch + row % batch
        at = tl.arange(0, WIDTH)
        inside = at < UNITS
        logit = tl.load(f + row * UNITS + at, inside, other=0.0)
        pixel = tl.load(x + image * UNITS + at, inside, other=0.0)
        # log(1 + e^f) = max(f, 0) + log(1 + e^-|f|)
        small = tl.exp(-tl.abs(logit))
        # By a series where 1 + e would round to 1.
        above = tl.where(small < 1e-4, small * (1 - 0.5 * small), tl.log(1 + small))
        score = pixel * logit - tl.where(logit < 0, 0.0, logit) - above
        tl.store(value + row, tl.sum(tl.where(inside, score, 0.0), 0))
        p = tl.where(logit < 0, small, 1.0) / (1 + small)
        tl.store(g_f + row * UNITS + at, scale * (pixel - p), inside)

    @triton.jit
    def _encode(z, kl, codes, noise, latent, draws, batch, noise_stride, WIDTH: tl.constexpr, DRAWS: tl.constexpr):
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
            eps = tl.load(noise + (run * draws + draw) * noise_stride + example * latent + at[None, :], both)
            place = z + ((run * draws + draw) * batch + example) * latent + at[None, :]
            tl.store(place, mean[None, :] + sd[None, :] * eps, both)

    @triton.jit
    def _encode_gradient(
        g_codes, g_z, codes, noise, weight, latent, draws, batch, noise_stride, WIDTH: tl.constexpr, DRAWS: tl.constexpr
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
            eps = tl.load(noise + (run * draws + draw) * noise_stride + example * latent + at[None, :], both, other=0.0)
            plain += up
            along += up * eps
        tl.store(g_codes + row * 2 * latent + at, tl.sum(plain, 0) + weight * mean, inside)
        g_log_sd = tl.sum(along, 0) * sd + weight * (sd * sd - 1)
        tl.store(g_codes + row * 2 * latent + latent + at, g_log_sd, inside)


def softmax(g: Tensor, f: Tensor, y: Tensor, mask: Tensor | None, scale: float, draws: int) -> Tensor:
    """log softmax(f)_y [N, B], for f [N, B, C] and labels [R, B]; writes its gradient times ``scale`` to g."""
    count, rows, units = f.shape
    value = torch.empty(count, rows, device=f.device)
    _softmax[(count * rows,)](
        value, g, f, y, value if mask is None else mask, scale, draws, rows,
        MASKED=mask is not None, UNITS=units, WIDTH=triton.next_power_of_2(units), num_warps=1 if units <= 64 else 4,
    )  # fmt: skip
    return value


def bernoulli(g: Tensor, f: Tensor, x: Tensor, scale: float, draws: int) -> Tensor:
    """sum_d x_d f_d - log(1 + e^f_d) [N, B] for f [N, B, P] and x [R, B, P]; writes its gradient times ``scale``."""
    count, rows, units = f.shape
    value = torch.empty(count, rows, device=f.device)
    _bernoulli[(count * rows,)](value, g, f, x, scale, draws, rows, UNITS=units, WIDTH=triton.next_power_of_2(units))
    return value


def encode(codes: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """z = mu + sd noise [R, S, B, latent], and the KL of N(mu, sd^2) to N(0, I) [R, B].

    codes [R, B, 2 latent], mu and then log sd; noise [R, S, B, latent], whose draws have one stride.
    """
    runs, draws, batch, latent = noise.shape
    z, kl = torch.empty(noise.shape, device=codes.device), torch.empty(runs, batch, device=codes.device)
    _encode[(runs * batch,)](z, kl, codes, noise, latent, draws, batch, stride_of_draws(noise), **_latents(noise))
    return z, kl


def encode_gradient(g_z: Tensor, weight: float, codes: Tensor, noise: Tensor) -> Tensor:
    """The gradient in codes: sum_s g_z - weight mu, then sum_s g_z noise sd - weight (sd^2 - 1)."""
    runs, draws, batch, latent = noise.shape
    g_codes = torch.empty_like(codes)
    _encode_gradient[(runs * batch,)](
        g_codes, g_z, codes, noise, -weight, latent, draws, batch, stride_of_draws(noise), **_latents(noise)
    )
    return g_codes


def _latents(noise: Tensor) -> dict[str, int]:
    return {"WIDTH": triton.next_power_of_2(noise.shape[3]), "DRAWS": min(16, triton.next_power_of_2(noise.shape[1]))}
