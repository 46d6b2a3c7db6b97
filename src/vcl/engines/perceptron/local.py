"""A perceptron under local reparameterisation, up and down: a = m + d eps."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import input_into
from vcl.engines.perceptron import parts
from vcl.engines.perceptron.parts import Layer, Perceptron, Softmax, layers_in, through_relu, two_like
from vcl.engines.rows import TINY


class _Pair(NamedTuple):
    """A layer's weights under local reparameterisation: means and variances in pairs, one product for both."""

    weights: Tensor
    """M and V [2, out, in]."""
    turned: Tensor
    """The same [2, in, out]."""
    biases: Tensor | None
    """b and v [2, 1, out]."""
    v: Tensor | None
    to_b: Tensor | None
    to_v: Tensor | None
    pieces: tuple[_Piece, ...]


class _Piece(NamedTuple):
    """Some rows of a layer's weights: those of V, where the gradients go, and what they are made of."""

    turned: Tensor
    """The same columns of g and k/2, turned [2, some, rows]."""
    pair: Tensor
    """Memory for g^T h and k^T h^2 / 2 [2, some, in]."""
    first: Tensor
    second: Tensor
    V: Tensor
    to_mean: Tensor
    to_log_var: Tensor


class _Rows(NamedTuple):
    """A layer's memory under local reparameterisation, the same for every run.

    Rows are draws and examples; in the first layer just examples, whose moments serve every draw. Every name after a
    pair is the same memory again.
    """

    inputs: Tensor
    """h and h^2 [2, rows, in]."""
    h: Tensor
    square: Tensor
    floor: Tensor
    """b and v + tiny [2, 1, out]."""
    moments: Tensor
    """m and d^2, and then d [2, rows, out]."""
    m: Tensor
    d: Tensor
    d_rows: Tensor
    a: Tensor
    """[S, B, out]; the next layer's h."""
    up: Tensor
    """dF/da and that times the noise [2, S, B, out]."""
    up_g: Tensor
    up_k: Tensor
    up_rows: Tensor
    """dF/da [S B, out]."""
    g: Tensor
    """g and k/2 [2, rows, out]: the same memory, unless draws share their moments."""
    k: Tensor
    over: Tensor | None
    """g [2, B, out] as a sum over draws, where they share them."""
    g_inputs: Tensor
    """g M and k V / 2 [2, rows, in]."""
    g_first: Tensor
    g_second: Tensor


@final
class Local:
    """Local reparameterisation: rows are examples, as the noise has them."""

    def __init__(self, net: Perceptron, layout: Layout, draws: int, examples: int, mean: Tensor) -> None:
        self.draws, self.examples, small = draws, examples, mean.shape[1] <= parts.SMALL
        gradients = two_like(mean)
        self.g_mean, self.g_log_var = gradients
        # In a large network the gradient's memory holds the moments until it is its turn: nothing else is as large.
        # In a small one they have memory of their own, the same for all runs, and the variances are there afterwards.
        self.flat = two_like(mean[:1]).expand(2, *mean.shape) if small else gradients
        self.var = self.flat[1, :1] if small else None
        self.tiny, self.zero = mean.new_tensor([0, TINY]).view(2, 1, 1), mean.new_zeros(())
        shapes = [(layer.W.shape[0], layer.W.shape[1]) for layer in layers_in(net, layout, mean[0])]
        self.sizes = [examples * out for out, _ in shapes]
        self.rows = self._rows(mean, shapes)
        largest, widest = max(out * width for out, width in shapes), max(width for _, width in shapes)
        pair = mean.new_empty(2 * min(largest, max(parts.PIECE, widest)))
        self.runs = [
            [_pair(at, to, of.g, pair) for at, to, of in zip(
                layers_in(net, layout, self.flat[:, run]), layers_in(net, layout, gradients[:, run]), self.rows,
                strict=True)]
            for run in range(len(mean))
        ]  # fmt: skip
        self.softmax = Softmax(mean, draws, shapes[-1][0], examples)
        # Turned, because softmax is many times faster over an axis that is not the last.
        self.logits, self.g_logits = self.rows[-1].a.mT, self.rows[-1].up_g.mT

    def _rows(self, like: Tensor, shapes: list[tuple[int, int]]) -> list[_Rows]:
        every = self.draws * self.examples
        inputs = [like.new_empty(2, every if at else self.examples, width) for at, (_, width) in enumerate(shapes)]
        above = [*(pair[0] for pair in inputs[1:]), like.new_empty(every, shapes[-1][0])]
        found = []
        for at, ((out, width), pair, a) in enumerate(zip(shapes, inputs, above, strict=True)):
            rows = pair.shape[1]
            moments, g = like.new_empty(2, rows, out), like.new_empty(2, rows, out)
            up = g if rows == every else like.new_empty(2, every, out)
            g_inputs = like.new_empty(2, rows if at else 0, width)
            each = (-1, self.examples, out)
            found.append(_Rows(
                inputs=pair, h=pair[0], square=pair[1], floor=like.new_empty(2, 1, out), moments=moments,
                m=moments[0].view(each), d=moments[1].view(each), d_rows=moments[1], a=a.view(each),
                up=up.view(2, *each), up_g=up[0].view(each), up_k=up[1].view(each), up_rows=up[0], g=g, k=g[1],
                over=None if rows == every else g.view(2, *each[1:]),
                g_inputs=g_inputs, g_first=g_inputs[0], g_second=g_inputs[1],
            ))  # fmt: skip
        return found

    def __call__(
        self, run: int, moments: tuple[Tensor, Tensor], x: Tensor, y: Tensor, tape: Tensor, share: float, value: Tensor
    ) -> None:
        """One run: x [B, ...], y [B], noise [S, K]."""
        self.flat[0, run].copy_(moments[0])
        torch.exp(moments[1], out=self.flat[1, run])
        input_into(x, self.rows[0].h)
        noises = [part.view(of.a.shape) for part, of in zip(torch.split(tape, self.sizes, 1), self.rows, strict=True)]
        for layer, of, eps in zip(self.runs[run], self.rows, noises, strict=True):
            floor = self.tiny if layer.biases is None else torch.add(layer.biases, self.tiny, out=of.floor)
            torch.mul(of.h, of.h, out=of.square)
            torch.baddbmm(floor, of.inputs, layer.turned, out=of.moments)
            torch.addcmul(of.m, of.d.sqrt_(), eps, out=of.a)
            if of is not self.rows[-1]:
                of.a.relu_()
        self.g_logits.copy_(self.softmax(self.logits, y, share, value))
        below = [None, *self.rows[:-1]]
        for layer, of, eps, to in zip(self.runs[run][::-1], self.rows[::-1], noises[::-1], below[::-1], strict=True):
            self._down(layer, of, eps, to)

    def _down(self, layer: _Pair, of: _Rows, eps: Tensor, below: _Rows | None) -> None:
        """From dF/da of a layer to the gradient of its weights, and to dF/da of the layer below."""
        torch.mul(of.up_g, eps, out=of.up_k)
        if of.over is not None:
            torch.sum(of.up, 1, out=of.over)
        torch.addcdiv(self.zero, of.k, of.d_rows, value=0.5, out=of.k)
        if layer.v is not None and layer.to_b is not None and layer.to_v is not None:
            g_b, k_v = of.g.sum(1)
            layer.to_b.copy_(g_b)
            torch.mul(layer.v, k_v, out=layer.to_v)
        if below is not None:
            torch.bmm(of.g, layer.weights, out=of.g_inputs)
            through_relu(torch.addcmul(of.g_first, of.h, of.g_second, value=2, out=below.up_rows), of.h)
        for piece in layer.pieces:
            torch.bmm(piece.turned, of.inputs, out=piece.pair)
            piece.to_mean.copy_(piece.first)
            torch.mul(piece.V, piece.second, out=piece.to_log_var)


def _pair(at: Layer, to: Layer, g: Tensor, memory: Tensor) -> _Pair:
    """The views of a layer's moments and of where its gradients go, each [2, ...]."""
    (out, width), turned = at.W.shape[1:], g.mT
    some = len(memory) // 2 // width
    pieces = []
    for rows in (slice(first, min(first + some, out)) for first in range(0, out, some)):
        pair = memory[: 2 * (rows.stop - rows.start) * width].view(2, -1, width)
        pieces.append(_Piece(turned[:, rows], pair, pair[0], pair[1], at.W[1, rows], to.W[0, rows], to.W[1, rows]))
    if at.b is None or to.b is None:
        return _Pair(at.W, at.W.mT, None, None, None, None, tuple(pieces))
    return _Pair(at.W, at.W.mT, at.b.unsqueeze(1), at.b[1], to.b[0], to.b[1], tuple(pieces))
