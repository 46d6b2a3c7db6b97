"""The lower bound of a narrow perceptron and its gradient on a CUDA device, with little between its matrix products.

    L(q) = sum_n E_q log p(y^(n) | theta, x^(n)) - KL(q || p)  and its gradient in the mean and the log variance of q

by either estimator, and the log-likelihood of a point, for perceptrons with at most :data:`WIDEST` units in every layer
but the inputs. The products are torch's; all that stands between two of them (biases, noise, ReLU, the softmax and its
gradient, sums over draws, the KL) is one kernel (see :mod:`vcl.ops.kernels.perceptron`), and small ones run beside the
products. :mod:`vcl.engines.perceptron.fit` does the same on the CPU; the tests compare both with what torch
differentiates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import Data, as_input, weight_of_each
from vcl.engines.forward import Estimator
from vcl.engines.perceptron.fused_local import by_local
from vcl.engines.perceptron.fused_parts import Moments, Sizes
from vcl.engines.perceptron.fused_point import by_point
from vcl.engines.perceptron.fused_weights import by_weights
from vcl.engines.perceptron.parts import Perceptron
from vcl.ops import kernels
from vcl.ops.noise import Key

WIDEST = 128
"""Units of a layer, at most."""


def suits(net: Perceptron, layout: Layout, mean: Tensor, batch: Data) -> bool:
    """Whether the gradients below can be had for this: narrow layers with biases in the layout's order, on CUDA."""
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
    x, y, weight = _examples(batch, total)
    sizes = _sizes(net, layout)
    if isinstance(noise, Key):
        return by_weights(sizes, q, p, x, y, noise, draws, weight)
    tape, way = noise.view(len(noise), draws, -1), by_weights if estimator == "weights" else by_local
    return way(sizes, q, p, x, y, tape, draws, weight)


def point_gradient(net: Perceptron, layout: Layout, theta: Tensor, batch: Data, total: int) -> tuple[Tensor, Tensor]:
    """L(theta) = sum_n log p(y^(n) | theta, x^(n)) of each run [R], and its gradient [R, D]. See :func:`suits`."""
    x, y, weight = _examples(batch, total)
    return by_point(_sizes(net, layout), theta, x, y, weight)


def _examples(batch: Data, total: int) -> tuple[Tensor, Tensor, float]:
    """Inputs [R, B, pixels] and labels [R, B], each run's in one piece, and how much an example counts."""
    x = as_input(batch.x).flatten(2)
    return x if x[0].is_contiguous() else x.contiguous(), batch.y.contiguous(), weight_of_each(batch.size, total)


def _sizes(net: Perceptron, layout: Layout) -> Sizes:
    shapes = dict(zip(*layout, strict=True))
    return Sizes((shapes[net.weights[0]][1], *(shapes[name][0] for name in net.weights)))
