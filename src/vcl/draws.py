"""theta = mu + sigma * noise for many runs and draws at once, with its gradient written out."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from vcl import kernels
from vcl.layout import Layout


def draw_params(layout: Layout, mean: Tensor, var: Tensor, noise: Tensor) -> dict[str, Tensor]:
    """Every tensor of ``layout`` drawn: mean, var [R, D]; noise [R, S, D] -> each [R, S, ...]."""
    drawn = _Draw.apply(mean, var, noise, layout.sizes)  # type: ignore[no-untyped-call]
    return {
        name: values.view(*noise.shape[:2], *shape)
        for name, shape, values in zip(layout.names, layout.shapes, drawn, strict=True)
    }


class _Draw(torch.autograd.Function):
    """Each tensor is a piece of memory of its own, so that all draws of a layer can stand in one matrix product."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, noise: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.save_for_backward(var, noise)
        ctx.places = list(zip(accumulate(sizes, initial=0), sizes, strict=False))
        if kernels.usable(mean):
            mean, var, noise = mean.contiguous(), var.contiguous(), _even(noise)
            return tuple(kernels.draw(mean, var, noise, first, size) for first, size in ctx.places)
        std = var.sqrt()
        mus, sigmas, pieces = (torch.split(part, list(sizes), -1) for part in (mean, std, noise))
        return tuple(
            torch.addcmul(mu.unsqueeze(1), sigma.unsqueeze(1), piece)
            for mu, sigma, piece in zip(mus, sigmas, pieces, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        var, noise = ctx.saved_tensors
        g_mean, g_var = torch.empty_like(var), torch.empty_like(var)
        if kernels.usable(var):
            for (first, _), g in zip(ctx.places, gradients, strict=True):
                kernels.draw_gradient(g.contiguous(), var.contiguous(), _even(noise), first, g_mean, g_var)
            return g_mean, g_var, None, None
        for (first, size), g in zip(ctx.places, gradients, strict=True):
            piece = slice(first, first + size)
            torch.sum(g, 1, out=g_mean[:, piece])
            torch.sum(g * noise[..., piece], 1, out=g_var[:, piece])
        return g_mean, g_var.div_(var.sqrt().mul_(2)), None, None


def _even(noise: Tensor) -> Tensor:
    """[R, S, D] whose rows lie equally far apart, as in a slice of a longer tape; a copy only if they do not."""
    return noise if kernels.evenly_apart(noise) else noise.contiguous()
