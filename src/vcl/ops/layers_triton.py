"""The layers of a chain, up and down, for all runs at once on a GPU: matrix products with one kernel between two.

The GPU form of :mod:`vcl.ops.layers_torch`; tests compare the two. If all draws have the same inputs, one product per
run computes the units of all draws side by side ("wide"), and kernels reorder them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from vcl.ops.kernels import base, layers, scores
from vcl.ops.kernels import readout as readouts
from vcl.ops.kernels.layers import Order
from vcl.ops.layers import TINY, Linear, Sizes
from vcl.ops.layers_torch import Differentiated
from vcl.ops.rows import as_input


@final
class Given:
    """A linear layer at given weights [R S, out, in], or [R, out, in] if draws share them."""

    NOISY = False
    """It takes no noise."""

    def __init__(self, of: Linear, sizes: Sizes, like: Tensor, above: Any = None) -> None:
        self.of, (runs, draws, examples) = of, sizes
        # If draws share their weights, one product covers the rows of all draws.
        self.draws = 1 if of.shared_weight else draws
        self.rows = examples if of.shared_input or not of.shared_weight else draws * examples
        self.wide = of.shared_input and not of.shared_weight and draws > 1
        count = runs * self.draws
        self.shape = (count, self.rows, of.out)
        out_shape = (runs * (1 if of.shared_input and of.shared_weight else draws), examples, of.out)
        self.h_out = like.new_empty(out_shape)
        self.a = like.new_empty(runs, examples, draws * of.out) if self.wide else self.h_out.view(self.shape)
        narrow = Order(self.draws * self.rows, self.rows, 1)
        self.order = Order(examples * draws, 1, draws) if self.wide else narrow
        inputs = runs * (1 if of.shared_input else draws)
        self.g_h = like.new_empty(inputs if of.needs_input else 0, examples, of.width)
        self.g_a = like.new_empty(self.a.shape) if self.wide else None
        self.bare = False
        """Whether the readout kernel computes this layer's bias and activation, up and down."""
        self.h = self.W = self.g_h

    def up(self, h: Tensor, weights: Any) -> Tensor:
        """h W^T + b, or the positive part of it."""
        of = self.of
        self.W = weights.take(of.block.weight)
        self.h = h.view(-1, self.rows, of.width)
        if self.wide:
            side_by_side = self.W.reshape(len(self.h), -1, of.width)
            torch.bmm(self.h, side_by_side.mT, out=self.a)
        else:
            torch.bmm(self.h, self.W.mT, out=self.a)
        if self.bare:
            return self.a
        bias = None if of.block.bias is None else weights.take(of.block.bias)
        if bias is not None or of.relu or self.wide:
            layers.activate(self.h_out.view(self.shape), self.a, bias, of.relu, self.order, self.draws)
        return self.h_out

    def down(self, g: Tensor, weights: Any) -> Tensor | None:
        """g W, where g is 0 if the positive part is."""
        of, g_bias = self.of, None
        if not self.bare:
            g, moved = g.reshape(self.shape), self.wide or of.relu
            h, to = self.h_out.view(self.shape), self.g_a if self.g_a is not None else g
            if moved or of.block.bias is not None:
                g_bias = layers.activate_gradient(to, g, h, of.relu, self.order, self.draws, moved)
            g = to
        weights.push(of.block, self.h, g, g_bias, tail=self.bare)
        if not of.needs_input:
            return None
        torch.bmm(g, self.W, out=self.g_h.view(-1, self.rows, of.width))
        return self.g_h


class Squares(NamedTuple):
    """Gradients in h and in h^2, which the layer below combines."""

    g: Tensor
    g_square: Tensor


@final
class Local:
    """A linear layer that draws its units; means and variances are pairs, with one product for both."""

    NOISY = True
    """It takes noise for every unit and example."""

    def __init__(self, of: Linear, sizes: Sizes, like: Tensor, above: Any = None) -> None:
        self.of, self.sizes, (runs, draws, examples) = of, sizes, sizes
        self.shared = of.shared_input
        rows = examples if self.shared else draws * examples
        self.inputs = like.new_empty(2, runs, rows, of.width)
        self.moments = like.new_empty(2, runs, rows, of.out)  # m and s, or the deviation; and then their gradients
        self.std = self.moments[1] if self.shared else like.new_empty(runs, rows, of.out)
        self.square = isinstance(above, Local)
        # The output is written to the next layer's input, next to its square.
        self.out = above.inputs if isinstance(above, Local) else like.new_empty(2, runs, draws * examples, of.out)
        self.g_moments = like.new_empty(2, runs, rows, of.out) if self.shared else self.moments
        self.g_inputs = like.new_empty(2, runs, rows if of.needs_input else 0, of.width)
        self.hands_squares = False
        """Whether the layer below takes the gradients in h and h^2 separately."""
        if isinstance(above, Local):
            above.hands_squares = True
        self.bare = False
        self.noise = self.weight = self.std

    def up(self, h: Tensor, weights: Any) -> Tensor:
        """m + d eps, or the positive part of it."""
        of, examples = self.of, self.sizes.examples
        weight_at, bias_at = weights.at(of.block.weight), None if of.block.bias is None else weights.at(of.block.bias)
        mean, var = weights.mean, weights.var
        self.noise = weights.tape
        if h.data_ptr() != self.inputs.data_ptr():
            with weights.branch.beside(h, self.inputs):
                self.inputs[0].copy_(h.view(self.inputs[0].shape))
                torch.mul(h.view(self.inputs[0].shape), h.view(self.inputs[0].shape), out=self.inputs[1])
            if not self.shared:
                weights.branch.join()
        m, s = self.moments
        if self.shared:
            x = h.view(self.inputs[0].shape)
            layers.moments(m, s, x, mean, var, weight_at, bias_at, TINY)
        if not self.shared or of.needs_input:
            self.weight = weights.pair(of.block.weight)
        if not self.shared:
            _products(self.inputs, self.weight.mT, self.moments)
        weights.branch.join()
        if self.bare:
            return self.moments
        layers.spread(
            self.out.view(2, -1, of.out), self.std, m, s, mean, var, self.noise, of.noise_at, bias_at, of.relu,
            self.square, self.shared, examples, TINY,
        )  # fmt: skip
        return self.out[0].view(-1, examples, of.out)

    def down(self, g: Tensor | Squares, weights: Any) -> Tensor | Squares | None:
        """g M + 2 h (k V), where g is 0 if the positive part is."""
        of, g_bias = self.of, None
        if not self.bare:
            first, second = g if isinstance(g, Squares) else (g, None)
            g_bias = layers.spread_gradient(
                self.g_moments, first, second, self.out[0], self.std, self.noise, of.noise_at, of.relu, self.shared,
                self.sizes.examples,
            )  # fmt: skip
        weights.push_pair(of.block, self.inputs, self.g_moments, g_bias, tail=self.bare)
        if not of.needs_input:
            return None
        first, second = _products(self.g_moments, self.weight, self.g_inputs)
        if self.hands_squares:
            return Squares(first, second)
        g_h: Tensor = first.addcmul_(self.inputs[0], second, value=2).view(-1, self.sizes.examples, of.width)
        return g_h


@final
class Inputs:
    """Inputs in the form that the first layer reads."""

    def __init__(self, first: Any, like: Tensor) -> None:
        self.like = like

    def __call__(self, x: Tensor) -> Tensor:
        """x [R, B, ...] as [R, B, width], contiguous for each run; runs may share them."""
        rows = as_input(x).to(self.like.dtype).flatten(2)
        return rows if rows[0].is_contiguous() else rows.contiguous()


RULES: dict[str, Any] = {"given": Given, "local": Local}
"""How a linear layer is computed, by the name of its rule."""


@final
class Softmax:
    """log softmax(f)_y and its gradient, in one kernel."""

    def __init__(self, sizes: Sizes, classes: int, like: Tensor) -> None:
        self.draws, self.g = sizes.draws, like.new_empty(sizes.group * sizes.draws, sizes.examples, classes)

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """For output [R S, B, C] and labels [R, B]."""
        counts = None if mask is None else mask.to(output.dtype)
        return scores.softmax(self.g, output, target.contiguous(), counts, share, self.draws), self.g


@final
class Bernoulli:
    """sum_d x_d f_d - log(1 + e^f_d) and its gradient, in one kernel."""

    def __init__(self, sizes: Sizes, classes: int, like: Tensor) -> None:
        self.draws, self.g = sizes.draws, like.new_empty(sizes.group * sizes.draws, sizes.examples, classes)

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """For output [R S, B, P] and pixels [R, B, P]."""
        return scores.bernoulli(self.g, output, target.contiguous(), share, self.draws), self.g


SCORES: dict[str, Any] = {"softmax": Softmax, "bernoulli": Bernoulli}
"""Scores with an explicit gradient, by name."""


@final
class Encoding:
    """z = mu + sd eps for the latent variables of each example, and KL(N(mu, sd^2) || N(0, I))."""

    def __init__(self, sizes: Sizes) -> None:
        self.kept: tuple[Tensor, Tensor] | None = None

    def up(self, codes: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """z [R S, B, latent] and the KL over examples [R]: codes [R, B, mu and log sd], noise [R, S, B, latent]."""
        noise = noise if base.evenly_strided(noise) else noise.contiguous()
        self.kept = codes, noise
        z, divergence = scores.encode(codes, noise)
        return z.flatten(0, 1), divergence.sum(1)

    def down(self, g_z: Tensor, weight: float) -> Tensor:
        """The gradient in the codes, from the gradient in z, minus ``weight`` times the KL's."""
        assert self.kept is not None
        return scores.encode_gradient(g_z, weight, *self.kept)


def readout(made: list[Any], score: str, sizes: Sizes) -> DrawnReadout | LocalReadout | None:
    """The last hidden layer, the head and a softmax as one kernel, if they are narrow enough."""
    if score != "softmax" or len(made) < 2:
        return None
    last, head = made[-2:]
    if not isinstance(last, Given | Local) or not isinstance(head, Given | Local) or type(last) is not type(head):
        return None
    narrow = head.of.width <= readouts.WIDEST and head.of.out <= readouts.MOST_CLASSES
    if not narrow or not last.of.relu or last.of.shared_weight or head.of.shared_weight:
        return None
    if isinstance(last, Given):
        return DrawnReadout(last, head.of, sizes)
    return None if last.shared else LocalReadout(last, head.of, sizes)


@final
class DrawnReadout:
    """The readout with drawn weights."""

    def __init__(self, last: Given, head: Linear, sizes: Sizes) -> None:
        self.last, self.head, self.sizes = last, head, sizes
        last.bare = True

    def __call__(self, h: Tensor, y: Tensor, mask: Tensor | None, share: float, weights: Any) -> tuple[Tensor, Tensor]:
        """log p of each draw in parts [R S, T], and the gradient in the last hidden layer's ``a``."""
        last, head = self.last, self.head
        bias, W, b = (weights.take(name) for name in (last.of.block.bias, head.block.weight, head.block.bias))
        value, g_tail = readouts.drawn(
            h, bias, W, b, y.contiguous(), last.order, last.draws, self.sizes.examples, share
        )
        weights.push_tail(last.of.block, head.block, g_tail)
        return value, h


@final
class LocalReadout:
    """The readout with drawn units."""

    def __init__(self, last: Local, head: Linear, sizes: Sizes) -> None:
        self.last, self.head, self.sizes = last, head, sizes
        last.bare = True

    def __call__(self, h: Tensor, y: Tensor, mask: Tensor | None, share: float, weights: Any) -> tuple[Tensor, Tensor]:
        """log p of each draw in parts [R S, T], and the gradients in m and s of the last hidden layer."""
        last, head = self.last, self.head
        at = weights.at(last.of.block.bias)
        value, g_tail = readouts.local(
            h, weights.mean, weights.var, weights.tape, last.of.noise_at, head.noise_at, y.contiguous(), at, head.out,
            self.sizes.examples, share, TINY,
        )  # fmt: skip
        weights.push_tail(last.of.block, head.block, g_tail)
        return value, h


def _products(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a b for pairs [2, R, ...]."""
    torch.bmm(a.flatten(0, 1), b.flatten(0, 1), out=out.flatten(0, 1))
    return out


__all__ = ["RULES", "SCORES", "Differentiated", "Encoding", "Given", "Inputs", "Local", "readout"]
