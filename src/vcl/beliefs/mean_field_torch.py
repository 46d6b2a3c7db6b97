"""Weights and gradients of a mean-field fit in torch: one group of runs at a time, in preallocated memory.

    drawn   theta = mu + sigma eps:  dF/dmu = sum_s dF/dtheta_s,  dF/dlog sigma^2 = sigma/2 sum_s eps_s dF/dtheta_s
    local   the layer gives the gradients in mean and variance:  dF/dlog V = V dF/dV

The KL gradient is subtracted while a group's values are still in the caches.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field_fit import MeanFieldFit, Parameters
from vcl.ops.layer_weights import Block

SMALL = 2**20
"""Up to this many parameters, values are cached that could be recomputed. It does not depend on the number of runs:
stacking must not change bits."""

PIECE = 2**18
"""The most temporary values at once; larger tensors are processed in pieces, to save memory."""

LINE = 16
"""Each run's gradient starts at a multiple of this many values: matrix products round by memory alignment."""


class Gradients(NamedTuple):
    """Gradients in means and logs [R, D] and in points [R, P], and the KL of each run [R]."""

    mean: Tensor
    log: Tensor
    points: Tensor | None
    kl: Tensor

    def like_parameters(self) -> Parameters:
        """The gradients in the order of the parameters."""
        return (self.mean, self.log) if self.points is None else (self.mean, self.log, self.points)


def gradients_for(parameters: Parameters) -> Gradients:
    """Allocates the gradients."""
    mean, _, *rest = parameters
    points = two_like(rest[0])[0].zero_() if rest else None
    g_mean, g_log = two_like(mean).zero_()
    return Gradients(g_mean, g_log, points, mean.new_zeros(len(mean)))


def two_like(mean: Tensor) -> Tensor:
    """Memory [2, R, D] for two tensors like ``mean`` [R, D], with equal alignment of all runs."""
    runs, size = mean.shape
    return mean.new_empty(2, runs, -(-size // LINE) * LINE)[..., :size]


@final
class PointsTorch:
    """Point parameters [G, ...] as weights, and their gradients.

    Matrix products round by memory alignment, so every group's weights are copied to the same buffer.
    """

    def __init__(self, layout: Layout, theta: Tensor, g: Tensor, group: int) -> None:
        self.theta, self.here = theta, theta.new_empty(group, theta.shape[1])
        self.at = layout.split(self.here)
        self.to = [layout.split(g[run : run + group]) for run in range(0, len(theta), group)]

    def open(self, runs: slice) -> None:
        """Prepare for these runs."""
        self.here.copy_(self.theta[runs])

    def push(self, number: int, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None) -> None:
        """g^T h, and g summed over rows."""
        to = self.to[number]
        torch.bmm(g.mT, h, out=to[block.weight])
        if block.bias is not None:
            torch.sum(g if g_bias is None else g_bias, 1, out=to[block.bias])


@final
class DrawnTorch:
    """S draws of the weights of a group of runs."""

    RULE = "given"
    """How its layers are computed."""

    SEEDED = False
    """Noise comes as a tape."""

    @staticmethod
    def noise_of(fit: MeanFieldFit, examples: int, layers: list[tuple[int, ...]]) -> int:
        """Standard normals of a draw: one for every parameter that is drawn."""
        return fit.noise

    def __init__(self, fit: MeanFieldFit, draws: int, parameters: Parameters, group: int = 1) -> None:
        self.fit, self.draws, self.group = fit, draws, group
        self.mean, self.log, *rest = parameters
        self.to = gradients_for(parameters)
        like, layout = self.mean, fit.spread
        self.sd = like.new_empty(group, layout.size)
        self.var = like.new_empty(group, layout.size) if layout.size <= SMALL else None
        self.sds = {name: value.unsqueeze(1) for name, value in layout.split(self.sd).items()}
        shapes = dict(zip(*layout, strict=True))
        self.theta = {name: like.new_empty(group, draws, *shape) for name, shape in shapes.items()}
        self.weights = {name: value.flatten(0, 1) for name, value in self.theta.items()}
        # The gradient of a single draw needs no scratch memory.
        each = shapes.items() if draws > 1 else ()
        self.scratch = {name: like.new_empty(group, draws, *shape) for name, shape in each}
        self.places = {name: value.flatten(0, 1) for name, value in self.scratch.items()}
        runs = range(0, len(like), group)
        self.mus = [
            {name: value.unsqueeze(1) for name, value in layout.split(self.mean[run : run + group]).items()}
            for run in runs
        ]
        self.to_mean = [layout.split(self.to.mean[run : run + group]) for run in runs]
        self.to_log = [layout.split(self.to.log[run : run + group]) for run in runs]
        self.points = None
        if rest and self.to.points is not None:
            self.points = PointsTorch(fit.points, rest[0], self.to.points, group)
        self.number, self.eps = 0, self.theta
        self.groups = [slice(run, run + group) for run in runs]

    def open(self, runs: slice, noise: Tensor) -> None:
        """Be ready for these runs, with noise [R, S, D]."""
        self.number = runs.start // self.group
        torch.mul(self.log[runs], 0.5 * self.fit.scale, out=self.sd).exp_()
        if self.var is not None:
            torch.mul(self.sd, self.sd, out=self.var)
        self.eps = self.fit.spread.split(noise[runs])
        if self.points is not None:
            self.points.open(runs)

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """mu + sigma eps [G S, ...], drawn now; a point [G, ...]."""
        if name not in self.theta:
            assert self.points is not None
            return self.points.at[name]
        torch.addcmul(self.mus[self.number][name], self.sds[name], self.eps[name], out=self.theta[name])
        return self.weights[name]

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Sums over draws of g^T h, and of that times the noise."""
        if block.weight not in self.theta:
            assert self.points is not None
            self.points.push(self.number, block, h, g, g_bias)
            return
        to = self._place(block.weight)
        torch.bmm(g.mT, h if h.shape[0] == g.shape[0] else h.expand(g.shape[0], -1, -1), out=to)
        self._sum(block.weight)
        if block.bias is not None:
            torch.sum(g, 1, out=self._place(block.bias))
            self._sum(block.bias)

    def _place(self, name: str) -> Tensor:
        return self.to_mean[self.number][name] if self.draws == 1 else self.places[name]

    def _sum(self, name: str) -> None:
        """sum_s g and sum_s eps g of the scratch memory; a single draw's gradient is already in place."""
        to, to_log, eps = self.to_mean[self.number][name], self.to_log[self.number][name], self.eps[name]
        if self.draws == 1:
            torch.mul(to, eps[:, 0], out=to_log)
            return
        g = self.scratch[name]
        torch.sum(g, 1, out=to)
        torch.sum(g.mul_(eps), 1, out=to_log)

    def add(self, name: str, g: Tensor) -> None:
        """Stores sum_s g and sum_s eps g, for g [G S, ...]; a point's gradient is copied."""
        if name not in self.theta:
            assert self.points is not None
            self.points.to[self.number][name].copy_(g)
            return
        eps = self.eps[name]
        g = g.reshape(eps.shape)
        torch.sum(g, 1, out=self.to_mean[self.number][name])
        torch.sum(g * eps, 1, out=self.to_log[self.number][name])

    def close(self, runs: slice) -> None:
        """d log sigma^2 = sigma/2 sum_s eps g; then subtracts the KL gradient."""
        g_log = self.to.log[runs].mul_(self.sd).mul_(0.5)
        _less_kl(self.fit, self.mean, self.log, self.to, runs, g_log, self.var)


@final
class _PairViews:
    """Views of a layer's memory, of one run's moments and of their gradients."""

    def __init__(self, of: LocalTorch, block: Block, h: Tensor, g: Tensor) -> None:
        self.h, self.g = h, g
        at, to = of.pairs[of.number], of.gradients[of.number]
        self.bias: tuple[Tensor, Tensor, Tensor] | None = None
        if block.bias is not None:
            self.bias = at[block.bias][1, 0], to[block.bias][0, 0], to[block.bias][1, 0]
        V, (to_mean, to_log), width = at[block.weight][1, 0], to[block.weight][:, 0], h.shape[2]
        some, out, turned = len(of.memory) // 2 // width, g.shape[2], g.mT
        self.pieces = []
        for first in range(0, out, some):
            rows = slice(first, min(first + some, out))
            pair = of.memory[: 2 * (rows.stop - first) * width].view(2, -1, width)
            self.pieces.append((turned[:, rows], pair, pair[0], pair[1], V[rows], to_mean[rows], to_log[rows]))


@final
class LocalTorch:
    """Means and variances of the weights of a group of runs, for layers that draw their units."""

    RULE = "local"
    """How its layers are computed."""

    SEEDED = False
    """Noise comes as a tape."""

    @staticmethod
    def noise_of(fit: MeanFieldFit, examples: int, layers: list[tuple[int, ...]]) -> int:
        """Standard normals of a draw: one for every unit of the layers (out, in) and example."""
        return examples * sum(shape[0] for shape in layers)

    def __init__(self, fit: MeanFieldFit, draws: int, parameters: Parameters) -> None:
        self.fit, self.draws = fit, draws
        self.mean, self.log, *rest = parameters
        self.to = gradients_for(parameters)
        runs, size, layout = len(self.mean), fit.spread.size, fit.spread
        both = self._both()
        # In a large network the moments are in the gradient's memory until gradients overwrite them, to save space.
        # In a small one they have their own memory, shared by all runs, and the variances can be used again in close().
        small = size <= SMALL
        self.flat = two_like(self.mean[:1]).expand(2, runs, size) if small else both
        self.var = self.flat[1, :1] if small else None
        self.pairs = [layout.split(self.flat[:, run : run + 1]) for run in range(runs)]
        self.gradients = [layout.split(both[:, run : run + 1]) for run in range(runs)]
        shapes = [shape for shape in layout.shapes if len(shape) == 2]
        largest, widest = max(out * width for out, width in shapes), max(width for _, width in shapes)
        self.memory = self.mean.new_empty(2 * min(largest, max(PIECE, widest)))
        self.points = None
        if rest and self.to.points is not None:
            self.points = PointsTorch(fit.points, rest[0], self.to.points, 1)
        self.number, self.tape = 0, self.mean
        self.groups = [slice(run, run + 1) for run in range(runs)]
        self.views: dict[tuple[object, ...], _PairViews] = {}

    def _both(self) -> Tensor:
        """Both gradients as one tensor [2, R, D]."""
        runs, stride = len(self.mean), self.to.mean.stride(0)
        return self.to.mean.as_strided((2, runs, self.mean.shape[1]), (runs * stride, stride, 1))

    def open(self, runs: slice, noise: Tensor) -> None:
        """Be ready for this run, with noise [R, S, K]."""
        self.number, self.tape = runs.start, noise[runs.start]
        self.flat[0, runs].copy_(self.mean[runs])
        torch.mul(self.log[runs], self.fit.scale, out=self.flat[1, runs]).exp_()
        if self.points is not None:
            self.points.open(runs)

    def pair(self, name: str) -> Tensor:
        """Mean and variance [2, 1, ...]."""
        return self.pairs[self.number][name]

    def noise(self, first: int, shape: tuple[int, ...]) -> Tensor:
        """Standard normals [S, *shape]."""
        return self.tape[:, first : first + shape[0] * shape[1]].view(-1, *shape)

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        return self.take(block.weight), None if block.bias is None else self.take(block.bias)

    def take(self, name: str) -> Tensor:
        """A point [1, ...]."""
        assert self.points is not None
        return self.points.at[name]

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """A point's."""
        assert self.points is not None
        self.points.push(self.number, block, h, g, g_bias)

    def push_pair(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """g^T h for the mean, V (k^T h^2) for the log variance, in blocks of weight rows."""
        kind = (self.number, block.weight, g.data_ptr(), g.shape)
        if kind not in self.views:  # layers keep their memory, and views cost as much as a small product
            self.views[kind] = _PairViews(self, block, h[:, 0], g[:, 0])
        views = self.views[kind]
        if views.bias is not None:
            (g_b, k_v), (v, to_b, to_v) = views.g.sum(1), views.bias
            to_b.copy_(g_b)
            torch.mul(v, k_v, out=to_v)
        for turned, pair, first, second, V, to_mean, to_log in views.pieces:
            torch.bmm(turned, views.h, out=pair)
            to_mean.copy_(first)
            torch.mul(V, second, out=to_log)

    def close(self, runs: slice) -> None:
        """Subtracts the KL gradient."""
        _less_kl(self.fit, self.mean, self.log, self.to, runs, self.to.log[runs], self.var)


def _less_kl(
    fit: MeanFieldFit, mean: Tensor, log: Tensor, to: Gradients, runs: slice, g_log: Tensor, var: Tensor | None
) -> None:
    """The KL of these runs; subtracts its gradient and converts g_log from log variances to the optimised logs."""
    log_var = log[runs] if fit.scale == 1 else fit.log_var(log[runs])
    to.kl[runs] = fit.subtract_kl(mean[runs], log_var, to.mean[runs], g_log, var, runs)
    if fit.scale != 1:
        g_log.mul_(fit.scale)


@final
class MomentsTorch:
    """Converts gradients in means and variances to the optimised parameters, and subtracts the KL gradient."""

    SEEDED = False
    """Noise comes as a tape."""

    def __init__(self, fit: MeanFieldFit, parameters: Parameters) -> None:
        self.fit, (self.mean, self.log, *_) = fit, parameters
        self.kl = self.mean.new_zeros(len(self.mean))

    def __call__(self, var: Tensor, g_mean: Tensor, g_var: Tensor) -> Gradients:
        """All [R, D], over the drawn parameters; the inputs are overwritten."""
        to = Gradients(g_mean, g_var, None, self.kl)
        _less_kl(self.fit, self.mean, self.log, to, slice(0, len(self.mean)), g_var.mul_(var), var)
        return to
