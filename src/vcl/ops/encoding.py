"""The latent variables of an example as a draw from its encoding, q(z | x) = N(z; mu, diag sd^2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcl.ops import kernels


def draw_latent(codes: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """z = mu + sd noise [..., N, latent] and KL(q(z | x) || N(0, I)) [..., N] of each example.

    ``codes`` [..., N, 2 latent] are mu and then log sd; noise [..., N, latent] may have more axes before.
    """
    stacked = codes.dim() == noise.dim() == 4 and codes.shape[1] == 1
    if stacked and kernels.usable(codes) and kernels.evenly_apart(noise):
        z, divergence = _Draw.apply(codes, noise)  # type: ignore[no-untyped-call]
        return z, divergence
    mean, log_sd = codes.chunk(2, dim=-1)
    # KL = 1/2 sum_i mu_i^2 + sd_i^2 - 1 - log sd_i^2
    divergence = 0.5 * (mean.square() + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(-1)
    return mean + log_sd.exp() * noise, divergence


class _Draw(torch.autograd.Function):
    """The same on a GPU, in one kernel each way: codes [R, 1, B, 2 latent] and noise [R, S, B, latent].

    g_mu = sum_s g_z + g_KL mu,   g_log_sd = sum_s g_z noise sd + g_KL (sd^2 - 1)
    """

    @staticmethod
    def forward(ctx: Any, codes: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        codes = codes.contiguous()
        ctx.save_for_backward(codes, noise)
        return kernels.encode(codes, noise)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return kernels.encode_gradient(*gradients, *ctx.saved_tensors), None
