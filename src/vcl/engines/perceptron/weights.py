"""A perceptron with weights drawn once a batch, up and down: theta = mu + sigma eps."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import input_into
from vcl.engines.perceptron import parts
from vcl.engines.perceptron.parts import Layer, Perceptron, Softmax, layers_in, through_relu, two_like


class _Columns(NamedTuple):
    """A layer's memory when weights are drawn, the same for every run; columns are examples."""

    W: Tensor
    """[S, out, in]."""
    b: Tensor | None
    """[S, out]."""
    column: Tensor | None
    """The same [S, out, 1], or [S out, 1] in the first layer."""
    a: Tensor
    """[S, out, B]; the next layer's h."""
    g_weight: Tensor | None
    """dF/dW [S, out, in]; None for one draw, whose gradient goes where it belongs at once."""
    g_h: Tensor
    """[S, in, B]."""


class _Drawing(NamedTuple):
    """A layer of one run when weights are drawn: its moments, and where the gradients go."""

    mu: Layer
    sd: Layer
    to_mean: Layer
    to_log_var: Layer


@final
class Drawn:
    """Weights drawn once a batch. With examples as columns no product of any draw needs a copy."""

    def __init__(self, net: Perceptron, layout: Layout, draws: int, examples: int, mean: Tensor) -> None:
        self.net, self.layout, self.draws = net, layout, draws
        self.g_mean, self.g_log_var = two_like(mean)
        self.sd = mean.new_empty(mean.shape[1])
        self.var = mean.new_empty(1, mean.shape[1]) if mean.shape[1] <= parts.SMALL else None
        first = layers_in(net, layout, mean[0])
        self.x = mean.new_empty(examples, first[0].W.shape[1])
        self.columns = [_columns(mean, at == 0, draws, examples, *layer) for at, layer in enumerate(first)]
        self.runs = [
            [_Drawing(*of) for of in zip(
                *(layers_in(net, layout, part) for part in (mean[run], self.sd, self.g_mean[run], self.g_log_var[run])),
                strict=True)]
            for run in range(len(mean))
        ]  # fmt: skip
        self.softmax = Softmax(mean, draws, len(first[-1].W), examples)

    def __call__(
        self, run: int, moments: tuple[Tensor, Tensor], x: Tensor, y: Tensor, tape: Tensor, share: float, value: Tensor
    ) -> None:
        """One run: x [B, ...], y [B], noise [S, D]."""
        x = input_into(x, self.x)
        torch.mul(moments[1], 0.5, out=self.sd).exp_()
        if self.var is not None:
            torch.mul(self.sd, self.sd, out=self.var[0])
        layers, noises = self.runs[run], layers_in(self.net, self.layout, tape)
        h, inputs = x.T, [x.T]
        for layer, of, eps in zip(layers, self.columns, noises, strict=True):
            torch.addcmul(layer.mu.W, layer.sd.W, eps.W, out=of.W)
            if of.b is not None and layer.mu.b is not None and layer.sd.b is not None and eps.b is not None:
                torch.addcmul(layer.mu.b, layer.sd.b, eps.b, out=of.b)
            if of is self.columns[0]:  # all draws see the same examples: their units stand side by side in one product
                W, a = of.W.flatten(0, 1), of.a.flatten(0, 1)
                torch.mm(W, h, out=a) if of.column is None else torch.addmm(of.column, W, h, out=a)
            else:
                torch.bmm(of.W, h, out=of.a) if of.column is None else torch.baddbmm(of.column, of.W, h, out=of.a)
            if of is not self.columns[-1]:
                h = of.a.relu_()
                inputs.append(h)
        g = self.softmax(self.columns[-1].a, y, share, value)
        for layer, of, eps, h in zip(layers[::-1], self.columns[::-1], noises[::-1], inputs[::-1], strict=True):
            to, to_log_var = layer.to_mean, layer.to_log_var
            g_weight = to.W[None] if of.g_weight is None else of.g_weight
            if of is self.columns[0]:
                torch.mm(g.flatten(0, 1), x, out=g_weight.flatten(0, 1))
            else:
                torch.bmm(g, h.mT, out=g_weight)
            over_draws(g_weight, eps.W, to.W, to_log_var.W)
            if to.b is not None and to_log_var.b is not None and eps.b is not None:
                over_draws(g.sum(2), eps.b, to.b, to_log_var.b)
            if of is not self.columns[0]:
                g = through_relu(torch.bmm(of.W.mT, g, out=of.g_h), h)
        self.g_log_var[run].mul_(self.sd).mul_(0.5)


def _columns(like: Tensor, first: bool, draws: int, examples: int, W: Tensor, b: Tensor | None) -> _Columns:
    """Memory for a layer of this shape."""
    out, width = W.shape
    bias = None if b is None else like.new_empty(draws, out)
    return _Columns(
        W=like.new_empty(draws, out, width),
        b=bias,
        column=None if bias is None else bias.view(-1, 1) if first else bias.unsqueeze(2),
        a=like.new_empty(draws, out, examples),
        g_weight=None if draws == 1 else like.new_empty(draws, out, width),
        g_h=like.new_empty(0 if first else draws, width, examples),
    )


def over_draws(g: Tensor, eps: Tensor, to: Tensor, to_noise: Tensor) -> None:
    """sum_s g and sum_s eps g for g [S, ...], which is written over; one draw's may be in its place already."""
    if len(g) > 1 or g.data_ptr() != to.data_ptr():
        torch.sum(g, 0, out=to)
    if len(g) > 1:
        torch.sum(g.mul_(eps), 0, out=to_noise)
    else:
        torch.mul(g[0], eps[0], out=to_noise)
