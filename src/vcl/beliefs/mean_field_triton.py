"""Weights and gradients of a mean-field fit on a GPU: all runs at once, one kernel for all draws, one per gradient.

The GPU form of :mod:`vcl.beliefs.mean_field_torch`. What is climbed is in :mod:`vcl.beliefs.climbed_triton`.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from vcl.beliefs.climbed_triton import Climbed, Pieces
from vcl.beliefs.mean_field_fit import MeanFieldFit, Parameters
from vcl.beliefs.mean_field_torch import Gradients
from vcl.ops import kernels
from vcl.ops.cuda_streams import Branch
from vcl.ops.kernels import draws as kernel
from vcl.ops.kernels.base import blocks_of
from vcl.ops.layer_weights import Block
from vcl.ops.layer_weights import tail as tail_of
from vcl.ops.noise import Key

PROCESSORS = 128
"""About the number of 128 x 128 products that a GPU computes at once."""


FEW = 8
"""Parts of a gradient that one program sums serially; more parts are first summed in parallel."""


@final
class DrawnTriton:
    """S draws of the weights of all runs."""

    RULE = "given"
    """How its layers are computed."""

    SEEDED = True
    """Noise is regenerated from a key wherever it is used: stored, it would take as much memory as all draws."""

    @staticmethod
    def noise_of(fit: MeanFieldFit, examples: int, layers: list[tuple[int, ...]]) -> int:
        """Standard normals of a draw: one for every parameter that is drawn."""
        return fit.noise

    def __init__(self, fit: MeanFieldFit, draws: int, parameters: Parameters, group: int = 0) -> None:
        self.base = Climbed(fit, draws, parameters, kernel.GATHER)
        self.fit, self.draws, self.mean, self.log = fit, draws, self.base.mean, self.base.log
        self.to = self.base.to
        self.theta = Pieces(fit.spread, len(self.mean) * draws, self.mean)
        self.given: tuple[Tensor, ...] = ()
        self.groups = [slice(0, len(self.mean))]
        self.noise_stride = 0

    def open(self, runs: slice, noise: Tensor | Key) -> None:
        """Draw theta, with noise [R, S, D] or its key."""
        self.base.open()
        if isinstance(noise, Key):
            self.given, self.noise_stride = tuple(noise), 0
        else:
            noise = noise if kernels.evenly_strided(noise) else noise.contiguous()
            self.given, self.noise_stride = (noise,), kernels.stride_of_draws(noise)
        theta = self.theta
        kernel.draw(
            theta.memory, self.mean, self.log, self.given, self.noise_stride, theta.lines, self.draws, self.fit.scale
        )

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """mu + sigma eps [R S, ...]; a point [R, ...]."""
        if name in self.theta.views:
            return self.theta.views[name]
        assert self.base.points is not None
        return self.base.points.take(name)

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None, tail: bool = False) -> None:
        """Sums over draws of g^T h, and of that times the noise, minus the KL gradient."""
        if block.weight not in self.theta.views:
            assert self.base.points is not None
            self.base.points.push(block, h, g, g_bias, tail)
            return
        with self.base.branch.beside(h, g, *(() if g_bias is None else (g_bias,))):
            self._gather((block.weight,), torch.bmm(g.mT, h), 1)
            if block.bias is not None and not tail:
                parts = g.sum(1, keepdim=True) if g_bias is None else g_bias
                self._gather((block.bias,), parts, parts.shape[1])

    def push_tail(self, last: Block, head: Block, g: Tensor) -> None:
        """The gradients of the last bias, the head's weight and its bias, [R S, T, tail]."""
        with self.base.branch.beside(g):
            self._gather(tail_of(last, head), g, g.shape[1])

    def add(self, name: str, g: Tensor) -> None:
        """Gradients of one tensor [R, S, ...], or of a point."""
        if name in self.theta.views:
            self._gather((name,), g.contiguous(), 1)
        else:
            assert self.base.points is not None
            self.base.points.to[name].copy_(g)

    def _gather(self, names: tuple[str, ...], g: Tensor, tiles: int) -> None:
        first, held, at = self.base.place(names)
        if tiles > FEW:
            g, tiles = g.view(len(self.mean) * self.draws, tiles, -1).sum(1), 1
        kernel.gather(
            g, (self.to.mean, self.to.log, self.base.shares), (self.mean, self.log), self.base.p, self.given,
            self.noise_stride, first, held, at, self.draws, tiles, self.fit.scale,
        )  # fmt: skip

    def close(self, runs: slice) -> None:
        """Wait for the kernels on the side stream."""
        self.base.close()


@final
class LocalTriton:
    """Means and variances of the weights of all runs, for layers that draw their units."""

    RULE = "local"
    """How its layers are computed."""

    SEEDED = False
    """Noise comes as a tape."""

    @staticmethod
    def noise_of(fit: MeanFieldFit, examples: int, layers: list[tuple[int, ...]]) -> int:
        """Standard normals of a draw: one for every unit of the layers (out, in) and example."""
        return examples * sum(shape[0] for shape in layers)

    def __init__(self, fit: MeanFieldFit, draws: int, parameters: Parameters, group: int = 0) -> None:
        self.base = Climbed(fit, draws, parameters, kernel.ADD)
        self.fit, self.draws, self.mean, self.log = fit, draws, self.base.mean, self.base.log
        self.to = self.base.to
        self.var = torch.empty_like(self.mean)
        self.pairs: dict[str, Tensor] = {}
        self.groups = [slice(0, len(self.mean))]
        self.tape = self.mean

    @property
    def branch(self) -> Branch:
        """The side stream."""
        return self.base.branch

    def open(self, runs: slice, noise: Tensor) -> None:
        """Be ready for all runs, with noise [R, S, K]."""
        self.base.open()
        self.tape = noise if kernels.evenly_strided(noise) else noise.contiguous()
        torch.exp(self.fit.log_var(self.log), out=self.var)
        with self.branch.beside(self.var):
            for name, pair in self.pairs.items():
                self._fill(name, pair)

    def at(self, name: str) -> int:
        """Where a parameter begins in mean and var."""
        return self.base.spans[name][0]

    def pair(self, name: str) -> Tensor:
        """Mean and variance [2, R, ...] of a parameter, contiguous."""
        if name not in self.pairs:
            shape = dict(zip(*self.fit.spread, strict=True))[name]
            self.pairs[name] = self.mean.new_empty(2, len(self.mean), *shape)
            self._fill(name, self.pairs[name])
        return self.pairs[name]

    def _fill(self, name: str, pair: Tensor) -> None:
        first, size = self.base.spans[name]
        for copy, values in zip(pair, (self.mean, self.var), strict=True):
            copy.copy_(values[:, first : first + size].view_as(copy))

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """A point [R, ...]."""
        assert self.base.points is not None
        return self.base.points.take(name)

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None, tail: bool = False) -> None:
        """A point's."""
        assert self.base.points is not None
        self.base.points.push(block, h, g, g_bias, tail)

    def push_pair(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None, tail: bool = False) -> None:
        """g^T h for the mean and V (k^T h^2) for the log variance, minus the KL gradient; h, g [2, R, rows, ...]."""
        runs, rows = h.shape[1:3]
        # A long sum into a small matrix would leave the GPU idle, so the draws are summed in parallel.
        tiles = 2 * runs * blocks_of(g.shape[3], 128) * blocks_of(h.shape[3], 128)
        parts = self.draws if tiles < PROCESSORS and rows % self.draws == 0 else 1
        with self.branch.beside(h, g, *(() if g_bias is None else (g_bias,))):
            left, right = (part.view(2 * runs * parts, rows // parts, -1) for part in (g, h))
            self._add((block.weight,), torch.bmm(left.mT, right).view(2, -1), parts)
            if block.bias is not None and not tail:
                sums = g.sum(2, keepdim=True) if g_bias is None else g_bias
                self._add((block.bias,), sums, sums.shape[2])

    def push_tail(self, last: Block, head: Block, g: Tensor) -> None:
        """The gradients of the last bias, the head's weight and its bias, [2, R, S, T, tail]."""
        with self.branch.beside(g):
            self._add(tail_of(last, head), g, g.shape[2] * g.shape[3])

    def _add(self, names: tuple[str, ...], g: Tensor, parts: int) -> None:
        first, held, at = self.base.place(names)
        if parts > FEW * self.draws:
            g, parts = g.view(2, len(self.mean), parts, -1).sum(2), 1
        kernel.add(
            g, (self.to.mean, self.to.log, self.base.shares), self.var, (self.mean, self.log), self.base.p, first,
            held, at, parts, self.fit.scale,
        )  # fmt: skip

    def close(self, runs: slice) -> None:
        """Wait for the kernels on the side stream."""
        self.base.close()


@final
class MomentsTriton:
    """Converts gradients in means and variances to the optimised parameters, and subtracts the KL gradient."""

    SEEDED = False

    def __init__(self, fit: MeanFieldFit, parameters: Parameters) -> None:
        self.base, self.fit, self.mean = Climbed(fit, 1, parameters, kernel.ADD), fit, parameters[0]
        held = tuple(name for name in fit.spread.names if name in self.base.held)
        self.runs_of_names = [names for names in _adjacent(fit.spread.names, held) if names]

    def __call__(self, var: Tensor, g_mean: Tensor, g_var: Tensor) -> Gradients:
        """All [R, D], over the drawn parameters."""
        base = self.base
        base.open()
        for names in self.runs_of_names:
            first, held, at = base.place(names)
            part = slice(first, first + sum(base.spans[name][1] for name in names))
            g = torch.stack([g_mean[:, part], g_var[:, part]])
            to = (base.to.mean, base.to.log, base.shares)
            kernel.add(g, to, var, (base.mean, base.log), base.p, first, held, at, 1, self.fit.scale)
        base.close()
        return base.to


def _adjacent(names: tuple[str, ...], held: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Groups of adjacent names that are all held or all not held."""
    found: list[tuple[str, ...]] = []
    for name in names:
        if found and (found[-1][-1] in held) == (name in held):
            found[-1] = (*found[-1], name)
        else:
            found.append((name,))
    return found
