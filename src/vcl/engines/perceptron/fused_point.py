"""A narrow perceptron at one theta a run, on a CUDA device: its log-likelihood and gradient, product by product."""

from __future__ import annotations

import torch
from torch import Tensor

from vcl.engines.perceptron.fused_parts import Sizes
from vcl.engines.perceptron.fused_weights import two_pieces, up_and_down


def by_point(sizes: Sizes, theta: Tensor, x: Tensor, y: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """L(theta) [R] and its gradient [R, D]: theta as the only draw; x [R, B, inputs], y [R, B]."""
    runs, shared, size = len(theta), sizes.biases[0], theta.shape[1]
    g_theta = torch.empty_like(theta)

    def put(g: Tensor, at: int, tiles: int) -> None:
        g = g.view(runs, tiles, -1)
        place = g_theta[:, at : at + g.shape[-1]]
        if tiles == 1:
            place.copy_(g[:, 0])
        else:
            torch.sum(g, 1, out=place)

    # Matrix products are faster where their factors begin at round addresses, and runs of theta do not.
    first, rest = two_pieces(sizes, runs, 1, theta.device)
    first[:, 0].copy_(theta[:, :shared])
    rest[:, 0, : size - shared].copy_(theta[:, shared:])
    return weight * up_and_down(sizes, first, rest, x, y, weight, put).sum((1, 2)), g_theta
