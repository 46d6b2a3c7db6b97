"""A narrow perceptron whose weights are drawn, on a CUDA device: its bound and gradient, product by product."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vcl.engines.perceptron.fused_parts import (
    CUT,
    Moments,
    Sizes,
    aligned,
    input_precision,
    pieces_of,
    value_of,
    width_of,
)
from vcl.ops.cuda_streams import Branch
from vcl.ops.kernels import perceptron_weights
from vcl.ops.kernels.base import apart_of, blocks_of
from vcl.ops.noise import Key

Take = Callable[[Tensor, int, int], None]
"""Takes gradients in theta [R, S, T, part], to be summed over T tiles of rows, and where in theta the part begins."""


def by_weights(
    sizes: Sizes, q: Moments, p: Moments, x: Tensor, y: Tensor, given: Tensor | Key, draws: int, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By S draws of theta: x [R, B, inputs]; y [R, B]; noise [R, S, D], or its key; an example counts ``weight``."""
    mean, log_var = q
    runs, size, shared = len(mean), mean.shape[1], sizes.biases[0]
    seeded = isinstance(given, Key)
    noise = given if isinstance(given, Key) else (given, given)
    apart = 0 if isinstance(given, Key) else apart_of(given)
    g_mean, g_log_var = torch.empty_like(mean), torch.empty_like(mean)
    kl, done = torch.empty(runs, pieces_of(sizes, CUT["gather"]["BLOCK"]), device=x.device), 0

    def gather(g: Tensor, first: int, tiles: int) -> None:
        nonlocal done
        part = g.numel() // (runs * draws * tiles)
        blocks = blocks_of(part, CUT["gather"]["BLOCK"])
        perceptron_weights.gather[(runs * blocks,)](
            g_mean, g_log_var, kl, g, *q, *p, *noise, size, first, part, p[0].stride(0), p[1].stride(0), apart, blocks,
            kl.shape[1], done, draws, tiles, SEEDED=seeded, **CUT["gather"],
        )  # fmt: skip
        done += blocks

    first, rest = two_pieces(sizes, runs, draws, x.device)
    blocks = blocks_of(size, CUT["draw"]["BLOCK"])
    perceptron_weights.draw[(runs * blocks,)](
        first, rest, mean, log_var, *noise, size, shared, rest.shape[-1], apart, blocks, draws,
        SEEDED=seeded, **CUT["draw"],
    )  # fmt: skip
    log_lik = up_and_down(sizes, first, rest, x, y, weight / draws, gather)
    return value_of(log_lik, kl, weight / draws), g_mean, g_log_var


def two_pieces(sizes: Sizes, runs: int, draws: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Memory for theta: the first layer's weight [R, S, units x inputs], and the rest [R, S, Q]."""
    shared = sizes.biases[0]
    lengths = shared, aligned(sizes.weights[-1] - shared)
    first, rest = (torch.empty(runs, draws, length, device=device) for length in lengths)
    return first, rest


def up_and_down(sizes: Sizes, first: Tensor, rest: Tensor, x: Tensor, y: Tensor, scale: float, take: Take) -> Tensor:
    """log p of tiles of rows [R, S, T] at theta in two pieces; all gradients of ``scale`` times it go to ``take``."""
    (runs, rows, width), draws, units = x.shape, first.shape[1], sizes.units[1]
    shared, rest_apart, branch = sizes.biases[0], rest.shape[-1], Branch(x.device)

    def new(*shape: int) -> Tensor:
        return torch.empty(runs, draws, *shape, device=x.device)

    # One product a run: the units of all its draws stand side by side.
    a = torch.bmm(x, first.view(runs, draws * units, width).mT)
    # How far runs, draws and rows of a are apart, counted in rows of units: as the product left them, or in order.
    wide, narrow = (rows * draws, 1, draws), (draws * rows, rows, 1)
    order = wide
    hidden = list(zip(range(1, len(sizes.layers) - 1), sizes.layers[1:-1], strict=True))
    weights: dict[int, Tensor] = {}
    h: dict[int, Tensor] = {}
    tiles = blocks_of(rows, CUT["rectify"]["ROWS"])
    for layer, (before, after) in hidden:
        h[layer] = new(rows, before)
        perceptron_weights.rectify[(runs * draws * tiles,)](
            h[layer], a, rest, *order, rest_apart, sizes.biases[layer - 1] - shared, draws, rows, tiles,
            UNITS=before, OUT=width_of(before), **CUT["rectify"],
        )  # fmt: skip
        at = sizes.weights[layer] - shared
        weights[layer] = rest[..., at : at + before * after].view(runs * draws, after, before)
        a = torch.bmm(h[layer].flatten(0, 1), weights[layer].mT)
        order = narrow

    before, classes = sizes.layers[-1]
    tiles = blocks_of(rows, CUT["head"]["ROWS"])
    log_lik, g_tail = new(tiles), new(tiles, before + classes * before + classes)
    tail = sizes.biases[-2]
    perceptron_weights.head[(runs * draws * tiles,)](
        log_lik, g_tail, a, rest, y, *order, rest_apart, tail - shared, draws, rows, tiles, scale,
        UNITS=before, CLASSES=classes, IN=width_of(before), OUT=width_of(classes), PRECISION=input_precision(),
        **CUT["head"],
    )  # fmt: skip
    with branch.beside(g_tail):
        take(g_tail, tail, tiles)
    tiles = blocks_of(rows, CUT["mask"]["ROWS"])
    for layer, (before, after) in reversed(hidden):
        g = a.view(runs * draws, rows, after)
        g_weight = new(after, before)
        with branch.beside(g, g_weight):
            torch.bmm(g.mT, h[layer].flatten(0, 1), out=g_weight.flatten(0, 1))
            take(g_weight, sizes.weights[layer], 1)
        g_h = torch.bmm(g, weights[layer])
        a, g_bias = new(rows, before), new(tiles, before)
        order = wide if layer == 1 else narrow
        perceptron_weights.mask[(runs * draws * tiles,)](
            a, g_bias, g_h, h[layer], *order, draws, rows, tiles, UNITS=before, OUT=width_of(before), **CUT["mask"]
        )
        with branch.beside(g_bias):
            take(g_bias, sizes.biases[layer - 1], tiles)
    take(torch.bmm(a.view(runs, rows, draws * units).mT, x), 0, 1)
    branch.join()
    return log_lik
