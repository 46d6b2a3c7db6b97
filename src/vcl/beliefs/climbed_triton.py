"""The parameters of a fit on a GPU, all runs at once: points, and what is drawn with its gradients and its KL.

Small kernels run on a second stream beside the matrix products.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field_fit import MeanFieldFit, Parameters, spans
from vcl.beliefs.mean_field_torch import Gradients
from vcl.ops.cuda_streams import Branch
from vcl.ops.kernels import draws as kernel
from vcl.ops.kernels.base import blocks_of
from vcl.ops.layer_weights import Block
from vcl.ops.layer_weights import tail as tail_of


@final
class Pieces:
    """The tensors of a flat vector, each [rows, ...] in its own memory, aligned for matrix products."""

    def __init__(self, layout: Layout, rows: int, like: Tensor) -> None:
        self.lines, offsets, size = kernel.table(tuple(spans(layout).values()), rows, like.device)
        self.memory = like.new_empty(size)
        self.views = {}
        for name, shape, count, offset in zip(layout.names, layout.shapes, layout.sizes, offsets, strict=True):
            inner = torch.empty(shape, device="meta").stride()
            stride = (kernel.aligned(count), *inner)
            self.views[name] = self.memory.as_strided((rows, *shape), stride, offset)


@final
class PointsTriton:
    """Point parameters theta [R, D] as weights, and their gradients."""

    def __init__(self, layout: Layout, theta: Tensor, g: Tensor) -> None:
        self.theta, self.pieces, self.to = theta, Pieces(layout, len(theta), theta), layout.split(g)
        self.branch = Branch(theta.device)

    def open(self, runs: slice) -> None:
        """Prepare for a step."""
        self.branch = Branch(self.theta.device)
        kernel.copy(self.pieces.memory, self.theta, self.pieces.lines)

    def close(self, runs: slice) -> None:
        """Wait for the kernels on the side stream."""
        self.branch.join()

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """A parameter [R, ...]."""
        return self.pieces.views[name]

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None, tail: bool = False) -> None:
        """g^T h, and g summed over rows."""
        with self.branch.beside(h, g, *(() if g_bias is None else (g_bias,))):
            torch.bmm(g.mT, h, out=self.to[block.weight])
            if block.bias is not None and not tail:
                torch.sum(g if g_bias is None else g_bias, 1, out=self.to[block.bias])

    def push_tail(self, last: Block, head: Block, g: Tensor) -> None:
        """The gradients of the last bias, the head's weight and its bias, [R, T, tail]."""
        with self.branch.beside(g):
            total, at = g.sum(1), 0
            for name in tail_of(last, head):
                to = self.to[name]
                size = to[0].numel()
                to.copy_(total[:, at : at + size].view(to.shape))
                at += size


@final
class Climbed:
    """What all estimators share: the parameters, p, the gradients and the partial sums of the KL."""

    def __init__(self, fit: MeanFieldFit, draws: int, parameters: Parameters, block: int) -> None:
        self.fit, self.draws = fit, draws
        self.mean, self.log, *rest = parameters
        self.spans, self.held = spans(fit.spread), spans(fit.held)
        # Kernels need each run's values contiguous; a prior may be stored as two numbers.
        mean, log_var = (part if part.stride(-1) == 1 else part.contiguous() for part in fit.previous.moments)
        self.p = mean, log_var
        shares = sum(blocks_of(size, block) for _, size in self.held.values())
        self.shares = self.mean.new_zeros(len(self.mean), max(1, shares))
        points = torch.zeros_like(rest[0]) if rest else None
        kl = self.mean.new_zeros(len(self.mean))
        self.to = Gradients(torch.zeros_like(self.mean), torch.zeros_like(self.mean), points, kl)
        self.points = None if points is None else PointsTriton(fit.points, rest[0], points)
        self.block, self.done, self.branch = block, 0, Branch(self.mean.device)

    def open(self) -> None:
        """Prepare for all runs."""
        self.done, self.branch = 0, Branch(self.mean.device)
        if self.points is not None:
            self.points.open(slice(0, len(self.mean)))

    def close(self) -> None:
        """Wait for the kernels on the side stream, and sum the KL."""
        self.branch.join()
        if self.points is not None:
            self.points.branch.join()
        torch.sum(self.shares, 1, out=self.to.kl)

    def place(self, names: tuple[str, ...]) -> tuple[int, int | None, int]:
        """The start of adjacent tensors in theta and in p, and of their partial sums of the KL."""
        (first, _), held, at = self.spans[names[0]], self.held.get(names[0]), self.done
        if len({name in self.held for name in names}) > 1:
            raise RuntimeError(f"{names} are taken at once, but only some of them have a posterior")
        if held is not None:
            self.done += blocks_of(sum(self.spans[name][1] for name in names), self.block)
        return first, None if held is None else held[0], at
