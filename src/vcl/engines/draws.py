"""theta = mu + sigma * noise for many runs and draws at once, with its gradient written out."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.engines.places import Places
from vcl.ops import kernels
from vcl.ops.noise import Key


def draw_params(layout: Layout, mean: Tensor, var: Tensor, noise: Tensor | Key, draws: int) -> dict[str, Tensor]:
    """Every tensor of ``layout`` drawn S times: mean, var [R, D]; noise [R, S, D], or its key -> each [R, S, ...].

    With a key the noise is made by the kernels where they use it, and made again for the gradient: that of all draws is
    as large as all of them.
    """
    given = tuple(noise) if isinstance(noise, Key) else (noise,)
    return dict(zip(layout.names, _Draw.apply(mean, var, layout, draws, *given), strict=True))  # type: ignore[no-untyped-call]


class _Draw(torch.autograd.Function):
    """Each tensor is a piece of memory of its own, so that all draws of a layer can stand in one matrix product.

    g_mu = sum_s g,   g_sigma^2 = sum_s g noise / (2 sigma)
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, layout: Layout, draws: int, *noise: Tensor) -> tuple[Tensor, ...]:
        ctx.sizes, ctx.draws, lead = layout.sizes, draws, torch.Size((len(mean), draws))

        def cut(memory: Tensor) -> tuple[Tensor, ...]:
            """Tensor after tensor, all runs and draws of each together."""
            parts = torch.split(memory, [lead.numel() * size for size in layout.sizes])
            return tuple(part.view(*lead, *shape) for part, shape in zip(parts, layout.shapes, strict=True))

        ctx.places = Places(lambda: mean.new_empty(draws * mean.numel()), cut)
        if kernels.usable(mean):
            mean, var = mean.contiguous(), var.contiguous()
            given = _even(noise)
            ctx.save_for_backward(var, *given)
            return cut(kernels.draw(mean, var, given, draws, layout.sizes))
        (tape,) = noise
        ctx.save_for_backward(var, tape)
        mus, sigmas, pieces = (torch.split(part, list(layout.sizes), -1) for part in (mean, var.sqrt(), tape))
        return tuple(
            torch.addcmul(mu.unsqueeze(1), sigma.unsqueeze(1), piece).view(*lead, *shape)
            for mu, sigma, piece, shape in zip(mus, sigmas, pieces, layout.shapes, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        var, *noise = ctx.saved_tensors
        if kernels.usable(var):
            found = kernels.draw_gradient(ctx.places.settle(gradients), var, tuple(noise), ctx.draws, ctx.sizes)
            return *found, None, None, *(None for _ in noise)
        (tape,) = noise
        g_mean, g_var = torch.empty_like(var), torch.empty_like(var)
        for first, size, g in zip(accumulate(ctx.sizes, initial=0), ctx.sizes, gradients, strict=False):
            piece, g = slice(first, first + size), g.flatten(2)
            torch.sum(g, 1, out=g_mean[:, piece])
            torch.sum(g * tape[..., piece], 1, out=g_var[:, piece])
        return g_mean, g_var.div_(var.sqrt().mul_(2)), None, None, None


def _even(noise: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A tape [R, S, D] whose rows lie equally far apart, as in a slice of a longer one; a copy only if they do not."""
    if len(noise) == 2 or kernels.evenly_apart(noise[0]):
        return noise
    return (noise[0].contiguous(),)
