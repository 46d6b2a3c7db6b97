"""A narrow perceptron by local reparameterisation, on a CUDA device: its bound and gradient, product by product."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from vcl.engines.perceptron.fused_parts import CUT, Moments, Sizes, input_precision, pieces_of, value_of, width_of
from vcl.engines.rows import TINY
from vcl.ops.cuda_streams import Branch
from vcl.ops.kernels import perceptron_local
from vcl.ops.kernels.base import apart_of, blocks_of


def by_local(
    sizes: Sizes, q: Moments, p: Moments, x: Tensor, y: Tensor, noise: Tensor, draws: int, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By local reparameterisation: noise [R, S, B x units of every layer]."""
    mean, log_var = q
    (runs, rows, width), size = x.shape, mean.shape[1]
    units, precision, apart = sizes.units[1], input_precision(), apart_of(noise)
    g_mean, g_log_var, var = torch.empty_like(mean), torch.empty_like(mean), log_var.exp()
    tape = list(accumulate((rows * after for after in sizes.units[1:]), initial=0))

    def new(*shape: int) -> Tensor:
        return torch.empty(runs, *shape, device=x.device)

    kl, done = torch.empty(runs, pieces_of(sizes, CUT["add"]["BLOCK"]), device=x.device), 0
    branch = Branch(x.device)

    def add(g: Tensor, first: int, parts: int) -> None:
        nonlocal done
        part = g.numel() // (2 * runs * parts)
        blocks = blocks_of(part, CUT["add"]["BLOCK"])
        perceptron_local.add[(runs * blocks,)](
            g_mean, g_log_var, kl, *g, var, *q, *p, size, first, part, p[0].stride(0), p[1].stride(0), blocks,
            kl.shape[1], done, parts, **CUT["add"],
        )  # fmt: skip
        done += blocks

    # What is done to means and to variances stands in pairs [2, R, ...]: one product does both.
    def pair(*shape: int) -> Tensor:
        return torch.empty(2, runs, *shape, device=x.device)

    def products(a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).view(2, runs, a.shape[-2], b.shape[-1])

    hidden = list(zip(range(1, len(sizes.layers) - 1), sizes.layers[1:-1], strict=True))
    (m, s), first = pair(rows, units), pair(rows, width)
    copies = {layer: pair(after, before) for layer, (before, after) in hidden}
    with branch.beside(x, first, var, *copies.values()):
        for layer, W in copies.items():
            for copy, values in zip(W, (mean, var), strict=True):
                copy.copy_(values[:, sizes.weights[layer] : sizes.biases[layer]].view_as(copy))
        first[0].copy_(x)
        torch.mul(x, x, out=first[1])
    row_tiles, tiles = blocks_of(rows, CUT["moments"]["ROWS"]), blocks_of(units, CUT["moments"]["OUT"])
    perceptron_local.moments[(runs * row_tiles * tiles,)](
        m, s, x, mean, var, x.stride(0), size, sizes.biases[0], rows, row_tiles, tiles, width, TINY,
        UNITS=units, PRECISION=precision, **CUT["moments"],
    )  # fmt: skip
    branch.join()
    h: dict[int, tuple[Tensor, Tensor]] = {}
    tiles = blocks_of(rows, CUT["spread"]["ROWS"])
    for layer, (before, _) in hidden:
        found = pair(draws * rows, before)
        std = s if layer == 1 else new(draws * rows, before)
        strides = (rows, 0) if layer == 1 else (draws * rows, rows)
        perceptron_local.spread[(runs * draws * tiles,)](
            *found, std, m, s, mean, var, noise, *strides, size, sizes.biases[layer - 1], tape[layer - 1],
            apart, draws, rows, tiles, TINY, FIRST=layer == 1, UNITS=before, OUT=width_of(before), **CUT["spread"],
        )  # fmt: skip
        h[layer] = found, std
        m, s = moments = products(found, copies[layer].mT)

    before, classes = sizes.layers[-1]
    tiles = blocks_of(rows, CUT["head_local"]["ROWS"])
    log_lik, g_tail = new(draws, tiles), pair(draws, tiles, before + classes * before + classes)
    perceptron_local.head_local[(runs * draws * tiles,)](
        log_lik, *g_tail, m, s, mean, var, noise, y, size, sizes.biases[-2], tape[-3], tape[-2], apart,
        draws, rows, tiles, weight / draws, TINY, UNITS=before, CLASSES=classes,
        IN=width_of(before), OUT=width_of(classes), PRECISION=precision, **CUT["head_local"],
    )  # fmt: skip
    with branch.beside(g_tail):
        add(g_tail, sizes.biases[-2], draws * tiles)
    tiles = blocks_of(rows, CUT["back_local"]["ROWS"])
    for layer, (before, after) in reversed(hidden):
        found, std = h[layer]
        g, seen = moments.view(-1, rows, after), found.view(-1, rows, before)
        g_weight = pair(draws, after, before)
        with branch.beside(moments, g_weight):
            torch.bmm(g.mT, seen, out=g_weight.view(-1, after, before))
            add(g_weight, sizes.weights[layer], draws)
        g_h = products(moments, copies[layer])
        moments = pair(rows, before) if layer == 1 else g_h
        g_bias = pair(tiles, before)
        perceptron_local.back_local[(runs * tiles,)](
            *moments, *g_bias, *g_h, found[0], std, noise, tape[layer - 1], apart, draws, rows, tiles,
            FIRST=layer == 1, UNITS=before, OUT=width_of(before), **CUT["back_local"],
        )  # fmt: skip
        with branch.beside(g_bias):
            add(g_bias, sizes.biases[layer - 1], tiles)
    add(products(moments.mT, first), 0, 1)
    branch.join()
    return value_of(log_lik, kl, weight / draws), g_mean, g_log_var
