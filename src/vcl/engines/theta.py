"""Suppliers of weights at given vectors theta; they return gradients or collect curvature."""

from __future__ import annotations

from typing import Protocol, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field_torch import LINE
from vcl.ops.layer_weights import Block


@final
class AtTheta:
    """theta [R, S, D], one run at a time, and its gradient.

    Matrix products round by memory alignment, so every run's theta is copied to the same buffer.
    """

    def __init__(self, layout: Layout, theta: Tensor) -> None:
        runs, draws, size = theta.shape
        self.theta = theta
        self.here = theta.new_empty(draws, size)
        self.at = layout.split(self.here)
        self.g = theta.new_zeros(runs, -(-draws * size // LINE) * LINE)[:, : draws * size]
        self.to = [layout.split(run.view(draws, size)) for run in self.g]
        self.groups, self.number = [slice(run, run + 1) for run in range(runs)], 0

    def open(self, runs: slice) -> None:
        """Prepare for this run."""
        self.number = runs.start
        self.here.copy_(self.theta[runs.start])

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """A parameter [S, ...]."""
        return self.at[name]

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Writes g^T h to the weight's gradient and the sum of g to the bias's."""
        to = self.to[self.number]
        torch.bmm(g.mT, h if len(h) == len(g) else h.expand(len(g), -1, -1), out=to[block.weight])
        if block.bias is not None:
            torch.sum(g, 1, out=to[block.bias])


class Collector(Protocol):
    """Collects a layer's inputs and gradients for its curvature."""

    def take(self, run: int, block: Block, h: Tensor, g: Tensor) -> None:
        """Take a layer's inputs h [rows, in] and the per-example gradients g [rows, out] of its outputs."""
        ...


@final
class Collecting:
    """theta [R, D] with per-example gradients that are collected instead of summed."""

    def __init__(self, layout: Layout, theta: Tensor, collector: Collector) -> None:
        self.theta, self.collector, self.number = theta, collector, 0
        self.here = theta.new_empty(1, theta.shape[1])
        self.groups = [slice(run, run + 1) for run in range(len(theta))]
        self.at = layout.split(self.here)

    def open(self, runs: slice) -> None:
        """Prepare for this run."""
        self.number = runs.start
        self.here.copy_(self.theta[runs])

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """A parameter [1, ...]."""
        return self.at[name]

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Passes h and g to the collector."""
        self.collector.take(self.number, block, h[0], g[0])


@final
class Diagonal:
    """sum_n ( grad log p^(n) )^2, the diagonal of the Fisher information [R, D].

    In a linear layer the gradient of one example is g h^T, so the sum of squares is (g^2)^T (h^2), without forming any
    per-example gradient.
    """

    def __init__(self, layout: Layout, like: Tensor) -> None:
        runs, size = like.shape
        self.total = like.new_zeros(runs, -(-size // LINE) * LINE)[:, :size]
        self.to = [layout.split(run) for run in self.total]

    def take(self, run: int, block: Block, h: Tensor, g: Tensor) -> None:
        """Add (g^2)^T (h^2), and the sum of g^2."""
        g, to = g.square(), self.to[run]
        to[block.weight].addmm_(g.mT, h.square())
        if block.bias is not None:
            to[block.bias].add_(g.sum(0))
