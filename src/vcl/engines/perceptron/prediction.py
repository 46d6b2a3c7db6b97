"""Prediction by a perceptron: its class probabilities summed over draws, in pieces that stay in the caches.

The first layer's units are drawn, a = m + d eps with the moments of this package, and multiplied once for all
draws; the other layers' weights are drawn, theta = mu + sigma eps. All examples share a draw's noise: each of them by
itself has the right distribution, which is all that a prediction asks. It is :func:`vcl.engines.rows.mixed_rows` with
the same noise, written out: examples are columns, so that neither products nor the softmax need a copy, and a few
draws are taken at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout, Params
from vcl.data import as_input
from vcl.engines.perceptron.parts import Perceptron
from vcl.engines.rows import TINY

IN_FLIGHT = 2048
"""Columns (draws x examples) that are taken through the layers at once."""

Draw = Callable[[str, int], Tensor]
"""From a parameter's name and a size to standard normals [R, S, size]."""


class _Drawn(NamedTuple):
    """A layer's weight [R, S, out, in] and bias [R, S, out, 1], drawn."""

    W: Tensor
    b: Tensor | None


@final
class SumOfProbabilities:
    """sum_s softmax(f_{theta_s}(x)) for draws theta_s ~ N(mean, var) that are fixed once."""

    def __init__(self, net: Perceptron, layout: Layout, mean: Tensor, var: Tensor, draw: Draw) -> None:
        means, variances = layout.split(mean), layout.split(var)
        first, bias = net.weights[0], net.biases[0]
        self.M, self.V = means[first], variances[first]
        self.b, self.v = (None if bias is None else part[bias].unsqueeze(2) for part in (means, variances))
        self.eps = draw(first, self.M.shape[1]).unsqueeze(3)
        names = zip(net.weights[1:], net.biases[1:], strict=True)
        self.layers = [
            _Drawn(
                _drawn(means, variances, draw, w), None if b is None else _drawn(means, variances, draw, b)[..., None]
            )
            for w, b in names
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """For x [R, n, ...]: [R, n, C]."""
        runs = [self._run(run, as_input(x[run]).flatten(1).T) for run in range(len(x))]
        return torch.stack(runs).mT

    def _run(self, run: int, x: Tensor) -> Tensor:
        """For one run's x [in, n]: [C, n]."""
        m = self.M[run] @ x if self.b is None else torch.addmm(self.b[run], self.M[run], x)
        d = self.V[run] @ (x * x) if self.v is None else torch.addmm(self.v[run], self.V[run], x * x)
        d.add_(TINY).sqrt_()
        draws = self.eps.shape[1]
        some = max(1, min(draws, IN_FLIGHT // max(1, x.shape[1])))
        units = [len(m), *(layer.W.shape[2] for layer in self.layers)]
        memory = [m.new_empty(some, out, x.shape[1]) for out in units]
        total = m.new_zeros(units[-1], x.shape[1])
        for first in range(0, draws, some):
            part = slice(first, min(first + some, draws))
            h = torch.addcmul(m, d, self.eps[run, part], out=memory[0][: part.stop - first])
            for layer, held in zip(self.layers, memory[1:], strict=True):
                W, a = layer.W[run, part], held[: len(h)]
                h.relu_()
                h = torch.bmm(W, h, out=a) if layer.b is None else torch.baddbmm(layer.b[run, part], W, h, out=a)
            total.add_(torch.softmax(h, 1).sum(0))
        return total


def _drawn(mean: Params, var: Params, draw: Draw, name: str) -> Tensor:
    """mu + sigma * noise for every draw [R, S, ...]."""
    mu = mean[name]
    noise = draw(name, mu[0].numel()).view(len(mu), -1, *mu.shape[1:])
    return torch.addcmul(mu.unsqueeze(1), var[name].sqrt().unsqueeze(1), noise)
