"""What is known of a perceptron, and what both estimators are made of."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout

SMALL = 2**20
"""Up to so many parameters some things are kept that could be found anew; never by the number of runs, whose bits
must not depend on it."""

PIECE = 2**18
"""Values that are held for a moment only. More of them are taken in pieces, so that memory goes to what lasts."""

LINE = 16
"""Each run's gradient starts at a multiple of this many values: products round by how their memory is aligned."""


class Perceptron(NamedTuple):
    """The names of weights and biases from the first layer to the last; None where a layer has no bias."""

    weights: tuple[str, ...]
    biases: tuple[str | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return self.weights + tuple(name for name in self.biases if name is not None)


class Layer(NamedTuple):
    """A layer's weight [..., out, in] and bias [..., out], as views of a flat vector."""

    W: Tensor
    b: Tensor | None


def layers_in(net: Perceptron, layout: Layout, flat: Tensor) -> list[Layer]:
    """The layers in a flat vector [..., D]."""
    parts = layout.split(flat)
    return [Layer(parts[w], None if b is None else parts[b]) for w, b in zip(*net, strict=True)]


def two_like(mean: Tensor) -> Tensor:
    """Memory [2, R, D] for two like ``mean`` [R, D], every run aligned alike."""
    runs, size = mean.shape
    return mean.new_empty(2, runs, -(-size // LINE) * LINE)[..., :size]


@final
class Softmax:
    """sum_n,s log p(y^(n)) and its gradient 1[c = y] - p(c), for S draws, C classes and B examples."""

    def __init__(self, like: Tensor, draws: int, classes: int, examples: int) -> None:
        self.shape = (draws, 1, examples)
        self.log_p, self.ones = like.new_empty(draws, classes, examples), like.new_empty(1, 1, 1).expand(self.shape)
        self.one = self.ones[0, 0, 0]

    def __call__(self, logits: Tensor, y: Tensor, share: float, value: Tensor) -> Tensor:
        """``share`` times the gradient (lent) for logits [S, C, B] and labels y [B]; the sum goes into ``value``."""
        log_p, label = self.log_p, y.expand(self.shape)
        torch.log_softmax(logits, 1, out=log_p)
        torch.sum(log_p.gather(1, label), (0, 1, 2), out=value)
        self.one.fill_(share)
        return log_p.exp_().mul_(-share).scatter_add_(1, label, self.ones)


def through_relu(g: Tensor, h: Tensor) -> Tensor:
    """g where h = max(0, a) is above 0 and 0 elsewhere, in place."""
    return torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g)  # type: ignore[no-any-return]
