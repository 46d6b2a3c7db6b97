"""The lower bound of a narrow perceptron and its gradient on a CUDA device, with little between its matrix products.

    L(q) = sum_n E_q log p(y^(n) | theta, x^(n)) - KL(q || p)  and its gradient in the mean and the log variance of q

by either estimator, for perceptrons with at most :data:`WIDEST` units in every layer but the inputs. The products are
torch's; all that stands between two of them (biases, noise, ReLU, the softmax and its gradient, sums over draws, the
KL) is one kernel (see :mod:`vcl.kernels.perceptron`). :mod:`vcl.perceptron.fit` does the same on the CPU; the tests
compare both with what torch differentiates.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from vcl import kernels
from vcl.cuda_streams import Branch
from vcl.data import Data, as_input, weight_of_each
from vcl.forward import Estimator
from vcl.kernels import perceptron, perceptron_local, perceptron_weights
from vcl.kernels.base import apart_of, blocks_of
from vcl.layout import Layout
from vcl.noise import Key
from vcl.perceptron.parts import Perceptron
from vcl.rows import TINY

WIDEST = 128
"""Units of a layer, at most."""

CUT: dict[str, dict[str, int]] = {
    "draw": {"BLOCK": 512, "num_warps": 4},
    "gather": {"BLOCK": 256, "num_warps": 8},
    "rectify": {"ROWS": 32, "num_warps": 8},
    "head": {"ROWS": 64, "num_warps": 4},
    "mask": {"ROWS": 64, "num_warps": 4},
    "moments": {"ROWS": 64, "STEP": 32, "OUT": 32, "num_warps": 4},
    "spread": {"ROWS": 16, "num_warps": 8},
    "head_local": {"ROWS": 32, "num_warps": 4},
    "back_local": {"ROWS": 8, "num_warps": 8},
    "add": {"BLOCK": 128, "num_warps": 4},
}
"""How each kernel's work is cut. Timed on an H200 for 784-100-100-10."""

Moments = tuple[Tensor, Tensor]
"""Mean and log variance [R, D] of a Gaussian."""


class Sizes(NamedTuple):
    """Units from the inputs to the classes, as (784, 100, 100, 10). In theta stand W and b of each layer, in order."""

    units: tuple[int, ...]

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each layer."""
        return list(pairwise(self.units))

    @property
    def weights(self) -> list[int]:
        """Where each layer's weight begins in theta, and then D."""
        return list(accumulate(((before + 1) * after for before, after in self.layers), initial=0))

    @property
    def biases(self) -> list[int]:
        """Where each layer's bias begins."""
        return [at + before * after for at, (before, after) in zip(self.weights, self.layers, strict=False)]


def suits(net: Perceptron, layout: Layout, mean: Tensor, batch: Data) -> bool:
    """Whether :func:`bound_gradient` can take this: narrow layers with biases in the layout's order, on CUDA."""
    narrow = len(net.weights) > 2 and all(units <= WIDEST for units in _sizes(net, layout).units[1:])
    in_order = layout.names == tuple(name for pair in zip(*net, strict=True) for name in pair)
    known = batch.x.dtype in (torch.uint8, torch.float32) and batch.y.dtype == torch.int64
    return narrow and in_order and known and kernels.usable(mean)


def bound_gradient(
    net: Perceptron,
    layout: Layout,
    estimator: Estimator,
    draws: int,
    q: Moments,
    p: Moments,
    batch: Data,
    total: int,
    noise: Tensor | Key,
) -> tuple[Tensor, Tensor, Tensor]:
    """L(q) = sum_n E_q log p(y^(n) | theta, x^(n)) - KL(q || p) of each run [R], and its gradient in q, twice [R, D].

    See :func:`suits`. The noise [R, K] is used as the general way uses it. Drawn weights can have their noise made
    where it is used, of a key: that of all draws is as large as all of them, and is then never written or read.
    """
    x, y, weight = as_input(batch.x).flatten(2), batch.y.contiguous(), weight_of_each(batch.size, total)
    x = x if x[0].is_contiguous() else x.contiguous()
    sizes = _sizes(net, layout)
    if isinstance(noise, Key):
        return _by_weights(sizes, q, p, x, y, noise, draws, weight)
    tape, way = noise.view(len(noise), draws, -1), _by_weights if estimator == "weights" else _by_local
    return way(sizes, q, p, x, y, tape, draws, weight)


def _sizes(net: Perceptron, layout: Layout) -> Sizes:
    shapes = dict(zip(*layout, strict=True))
    return Sizes((shapes[net.weights[0]][1], *(shapes[name][0] for name in net.weights)))


def _by_weights(
    sizes: Sizes, q: Moments, p: Moments, x: Tensor, y: Tensor, given: Tensor | Key, draws: int, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By S draws of theta: x [R, B, inputs]; y [R, B]; noise [R, S, D], or its key; an example counts ``weight``."""
    mean, log_var = q
    (runs, rows, width), size, units = x.shape, mean.shape[1], sizes.units[1]
    seeded = isinstance(given, Key)
    noise = given if isinstance(given, Key) else (given, given)
    apart = 0 if isinstance(given, Key) else apart_of(given)
    g_mean, g_log_var = torch.empty_like(mean), torch.empty_like(mean)

    def new(*shape: int) -> Tensor:
        return torch.empty(runs, draws, *shape, device=x.device)

    kl, done = torch.empty(runs, _blocks(sizes, CUT["gather"]["BLOCK"]), device=x.device), 0
    branch = Branch(x.device)

    def gather(g: Tensor, first: int, tiles: int) -> None:
        nonlocal done
        part = g.numel() // (runs * draws * tiles)
        blocks = blocks_of(part, CUT["gather"]["BLOCK"])
        perceptron_weights.gather[(runs * blocks,)](
            g_mean, g_log_var, kl, g, *q, *p, *noise, size, first, part, p[0].stride(0), p[1].stride(0), apart, blocks,
            kl.shape[1], done, draws, tiles, SEEDED=seeded, **CUT["gather"],
        )  # fmt: skip
        done += blocks

    shared = sizes.biases[0]
    rest_apart = _aligned(size - shared)
    first, rest = new(shared), new(rest_apart)
    blocks = blocks_of(size, CUT["draw"]["BLOCK"])
    perceptron_weights.draw[(runs * blocks,)](
        first, rest, mean, log_var, *noise, size, shared, rest_apart, apart, blocks, draws,
        SEEDED=seeded, **CUT["draw"],
    )  # fmt: skip

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
            UNITS=before, OUT=_wide(before), **CUT["rectify"],
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
        log_lik, g_tail, a, rest, y, *order, rest_apart, tail - shared, draws, rows, tiles, weight / draws,
        UNITS=before, CLASSES=classes, IN=_wide(before), OUT=_wide(classes), PRECISION=_precision(), **CUT["head"],
    )  # fmt: skip
    with branch.beside(g_tail):
        gather(g_tail, tail, tiles)
    tiles = blocks_of(rows, CUT["mask"]["ROWS"])
    for layer, (before, after) in reversed(hidden):
        g = a.view(runs * draws, rows, after)
        g_weight = new(after, before)
        with branch.beside(g, g_weight):
            torch.bmm(g.mT, h[layer].flatten(0, 1), out=g_weight.flatten(0, 1))
            gather(g_weight, sizes.weights[layer], 1)
        g_h = torch.bmm(g, weights[layer])
        a, g_bias = new(rows, before), new(tiles, before)
        order = wide if layer == 1 else narrow
        perceptron_weights.mask[(runs * draws * tiles,)](
            a, g_bias, g_h, h[layer], *order, draws, rows, tiles, UNITS=before, OUT=_wide(before), **CUT["mask"]
        )
        with branch.beside(g_bias):
            gather(g_bias, sizes.biases[layer - 1], tiles)
    gather(torch.bmm(a.view(runs, rows, draws * units).mT, x), 0, 1)
    branch.join()
    return _value(log_lik, kl, weight / draws), g_mean, g_log_var


def _by_local(
    sizes: Sizes, q: Moments, p: Moments, x: Tensor, y: Tensor, noise: Tensor, draws: int, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By local reparameterisation: noise [R, S, B x units of every layer]."""
    mean, log_var = q
    (runs, rows, width), size = x.shape, mean.shape[1]
    units, precision, apart = sizes.units[1], _precision(), apart_of(noise)
    g_mean, g_log_var, var = torch.empty_like(mean), torch.empty_like(mean), log_var.exp()
    tape = list(accumulate((rows * after for after in sizes.units[1:]), initial=0))

    def new(*shape: int) -> Tensor:
        return torch.empty(runs, *shape, device=x.device)

    kl, done = torch.empty(runs, _blocks(sizes, CUT["add"]["BLOCK"]), device=x.device), 0
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
            apart, draws, rows, tiles, TINY, FIRST=layer == 1, UNITS=before, OUT=_wide(before), **CUT["spread"],
        )  # fmt: skip
        h[layer] = found, std
        m, s = moments = products(found, copies[layer].mT)

    before, classes = sizes.layers[-1]
    tiles = blocks_of(rows, CUT["head_local"]["ROWS"])
    log_lik, g_tail = new(draws, tiles), pair(draws, tiles, before + classes * before + classes)
    perceptron_local.head_local[(runs * draws * tiles,)](
        log_lik, *g_tail, m, s, mean, var, noise, y, size, sizes.biases[-2], tape[-3], tape[-2], apart,
        draws, rows, tiles, weight / draws, TINY, UNITS=before, CLASSES=classes,
        IN=_wide(before), OUT=_wide(classes), PRECISION=precision, **CUT["head_local"],
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
            FIRST=layer == 1, UNITS=before, OUT=_wide(before), **CUT["back_local"],
        )  # fmt: skip
        with branch.beside(g_bias):
            add(g_bias, sizes.biases[layer - 1], tiles)
    add(products(moments.mT, first), 0, 1)
    branch.join()
    return _value(log_lik, kl, weight / draws), g_mean, g_log_var


def _value(log_lik: Tensor, kl: Tensor, scale: float) -> Tensor:
    """L(q) of each run [R], from the parts of both its terms."""
    value = torch.empty(len(kl), device=kl.device)
    perceptron.value[(len(kl),)](value, log_lik, kl, log_lik[0].numel(), kl.shape[1], scale, BLOCK=1024)
    return value


def _wide(units: int) -> int:
    """The power of 2 that holds so many units; a matrix product wants at least 16."""
    return max(16, 1 << (units - 1).bit_length())


def _blocks(sizes: Sizes, block: int) -> int:
    """How many programs a run's gradient takes: it comes in pieces, each layer's weight and bias, and the tail."""
    ends = sorted({*sizes.weights[:-1], *sizes.biases[:-1], sizes.weights[-1]} - {sizes.weights[-2]})
    return sum(blocks_of(after - before, block) for before, after in pairwise(ends))


def _aligned(size: int) -> int:
    """The next multiple of 16 values: where matrix products like their factors to begin, and kernels what they read."""
    return blocks_of(size, 16) * 16


def _precision() -> str:
    """As the library's products have it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
