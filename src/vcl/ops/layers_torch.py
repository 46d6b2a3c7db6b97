"""The layers of a chain, up and down, in torch: for any device and dtype, one run at a time, in preallocated memory.

With h the input of a layer and g = dF/da the gradient of its output,

    given   a = h W^T + b at given weights:                    dF/dW = g^T h,  dF/dh = g W
    local   a = m + d eps, m = h M^T + b, d^2 = h^2 V^T + v + tiny; with k = g eps / (2 d)
            dF/dM = g^T h,  dF/dV = k^T h^2,  dF/dh = g M + 2 h (k V)

A ReLU is fused with the linear layer before it. Allocating memory at every step costs as much time as a small network,
so every layer keeps its own. :mod:`vcl.ops.layers_triton` is the GPU form, for all runs at once.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.ops.layer_weights import LayerMoments, LayerWeights
from vcl.ops.layers import TINY, Layer, Linear, Score, Sizes
from vcl.ops.rows import input_into


@final
class Given:
    """A linear layer at given weights [S, out, in], or [1, out, in] if draws share them."""

    NOISY = False
    """It takes no noise."""

    def __init__(self, of: Linear, sizes: Sizes, like: Tensor, above: Any = None) -> None:
        self.of = of
        self.a = like.new_empty(1 if of.shared_input and of.shared_weight else sizes.draws, sizes.examples, of.out)
        # If draws share their weights, one product covers the rows of all draws.
        self.rows = self.a.view(1, -1, of.out) if of.shared_weight else self.a
        self.spreads = sizes.draws if of.shared_input and not of.shared_weight and sizes.draws > 1 else 0
        inputs = 1 if of.shared_input else sizes.draws
        self.g_h = like.new_empty(inputs if of.needs_input else 0, sizes.examples, of.width)
        self.g_rows = self.g_h.view(self.rows.shape[0], -1, of.width) if of.needs_input else self.g_h
        self.h = self.W = self.g_h

    def up(self, h: Tensor, weights: LayerWeights) -> Tensor:
        """h W^T + b, or the positive part of it."""
        of, (W, b) = self.of, weights.layer(self.of.block)
        self.W, self.h = W, h.reshape(1, -1, of.width) if of.shared_weight else h
        seen = self.h.expand(self.spreads, -1, -1) if self.spreads else self.h
        if b is None:
            torch.bmm(seen, W.mT, out=self.rows)
        else:
            torch.baddbmm(b.unsqueeze(1), seen, W.mT, out=self.rows)
        return self.a.relu_() if of.relu else self.a

    def down(self, g: Tensor, weights: LayerWeights) -> Tensor | None:
        """g W, where g is 0 if the positive part is."""
        of = self.of
        g = through_relu(g, self.a) if of.relu else g
        g = g.reshape(self.rows.shape) if of.shared_weight else g
        if of.needs_input:
            torch.bmm(g, self.W, out=self.g_rows)
        weights.push(of.block, self.h, g)
        return self.g_h if of.needs_input else None


@final
class Local:
    """A linear layer that draws its units; means and variances are pairs, with one product for both."""

    NOISY = True
    """It takes noise for every unit and example."""

    def __init__(self, of: Linear, sizes: Sizes, like: Tensor, above: Any = None) -> None:
        self.of, self.sizes = of, sizes
        every = sizes.draws * sizes.examples
        rows, each = sizes.examples if of.shared_input else every, (-1, sizes.examples, of.out)
        self.tiny, self.zero = like.new_tensor([0, TINY]).view(2, 1, 1), like.new_zeros(())
        self.floor = like.new_empty(2, 1, of.out)
        self.inputs = like.new_empty(2, rows, of.width)
        self.moments = like.new_empty(2, rows, of.out)  # m and d^2, and then d
        self.m, self.d = (part.view(each) for part in self.moments)
        # The output is written to the next layer's input, next to the memory for its square.
        self.a = (above.inputs[0] if isinstance(above, Local) else like.new_empty(every, of.out)).view(each)
        self.g = like.new_empty(2, rows, of.out)  # g and k
        # dF/da and its product with the noise; the same memory, unless draws share their moments
        self.up_pair = (self.g if rows == every else like.new_empty(2, every, of.out)).view(2, *each)
        self.over = None if rows == every else self.g.view(2, *each[1:])
        self.g_inputs = like.new_empty(2, rows if of.needs_input else 0, of.width)
        self.eps = self.weight = self.floor
        # Views, created once.
        self.h, self.square = self.inputs
        self.first, self.second = self.up_pair
        self.k, self.d_rows = self.g[1], self.moments[1]
        self.g_h, self.g_square = self.g_inputs
        self.pairs = self.inputs.unsqueeze(1), self.g.unsqueeze(1)

    def up(self, h: Tensor, weights: LayerMoments) -> Tensor:
        """m + d eps, or the positive part of it."""
        of = self.of
        if h.data_ptr() != self.h.data_ptr():
            self.h.copy_(h.reshape(self.h.shape))
        self.weight = weights.pair(of.block.weight)[:, 0]
        floor = self.tiny
        if of.block.bias is not None:
            floor = torch.add(weights.pair(of.block.bias), self.tiny, out=self.floor)
        torch.mul(self.h, self.h, out=self.square)
        torch.baddbmm(floor, self.inputs, self.weight.mT, out=self.moments)
        self.eps = weights.noise(of.noise_at, (self.sizes.examples, of.out))
        torch.addcmul(self.m, self.d.sqrt_(), self.eps, out=self.a)
        return self.a.relu_() if of.relu else self.a

    def down(self, g: Tensor, weights: LayerMoments) -> Tensor | None:
        """g M + 2 h (k V), where g is 0 if the positive part is."""
        of = self.of
        if g.data_ptr() != self.first.data_ptr():
            self.first.copy_(g.reshape(self.first.shape))
        if of.relu:
            through_relu(self.first, self.a)
        torch.mul(self.first, self.eps, out=self.second)
        if self.over is not None:
            torch.sum(self.up_pair, 1, out=self.over)
        torch.addcdiv(self.zero, self.k, self.d_rows, value=0.5, out=self.k)
        g_h = None
        if of.needs_input:
            torch.bmm(self.g, self.weight, out=self.g_inputs)
            g_h = self.g_h.addcmul_(self.h, self.g_square, value=2).view(-1, self.sizes.examples, of.width)
        weights.push_pair(of.block, *self.pairs)
        return g_h


@final
class Inputs:
    """Inputs in the form that the first layer reads, in its memory if it provides some."""

    def __init__(self, first: Layer | None, like: Tensor) -> None:
        self.like, self.memory = like, first.inputs[0] if isinstance(first, Local) else None

    def __call__(self, x: Tensor) -> Tensor:
        """x [1, B, ...] as [1, B, width]."""
        if self.memory is None and x.dtype != self.like.dtype:
            self.memory = self.like.new_empty(x.shape[1], x[0, 0].numel())
        return x.flatten(2) if self.memory is None else input_into(x, self.memory).unsqueeze(0)


RULES: dict[str, Any] = {"given": Given, "local": Local}
"""How a linear layer is computed, by the name of its rule."""


@final
class Softmax:
    """log softmax(f)_y and its gradient 1[c = y] - p(c); transposed, as softmax is faster off the last axis."""

    def __init__(self, sizes: Sizes, classes: int, like: Tensor) -> None:
        self.shape = (sizes.draws, 1, sizes.examples)
        self.log_p = like.new_empty(sizes.draws, classes, sizes.examples)
        self.g, self.one = like.new_empty(sizes.draws, sizes.examples, classes), like.new_empty(1, 1, 1)

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """For output [S, B, C] and labels [1, B]."""
        label = target.expand(self.shape)
        log_p = torch.log_softmax(output.mT, 1, out=self.log_p)
        found = log_p.gather(1, label)
        self.one.fill_(share)
        g = log_p.exp_().mul_(-share).scatter_add_(1, label, self.one.expand(self.shape))
        if mask is not None:
            found, g = found * mask, g.mul_(mask)
        return found.sum(2), self.g.copy_(g.mT)


@final
class Bernoulli:
    """sum_d x_d f_d - log(1 + e^f_d) and its gradient x - sigmoid(f)."""

    def __init__(self, sizes: Sizes, classes: int, like: Tensor) -> None:
        self.g = like.new_empty(sizes.draws, sizes.examples, classes)

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """For output [S, B, P] and pixels [1, B, P]."""
        value = -torch.addcmul(F.softplus(output, threshold=40.0), target, output, value=-1).sum(-1)
        g = torch.sub(target, torch.sigmoid(output), out=self.g).mul_(share)
        return value, g


@final
class Differentiated:
    """Any log density per row, log_prob(output [N, C], target [N, ...]) -> [N], differentiated by torch."""

    def __init__(self, log_prob: Any, sizes: Sizes) -> None:
        self.log_prob, self.sizes = log_prob, sizes

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """For output [G S, B, C]."""
        group, draws, _ = self.sizes
        leaf = output.detach().requires_grad_()
        repeated = target[:, None].expand(-1, draws, *target.shape[1:]).flatten(0, 2)
        with torch.enable_grad():
            value = self.log_prob(leaf.flatten(0, 1), repeated).view(group, draws, -1)
            value = value if mask is None else value * mask[:, None]
        (g,) = torch.autograd.grad(value, leaf, torch.full_like(value, share))
        return value.detach().flatten(0, 1), g


SCORES: dict[str, Any] = {"softmax": Softmax, "bernoulli": Bernoulli}
"""Scores with an explicit gradient, by name."""


@final
class Encoding:
    """z = mu + sd eps for the latent variables of each example, and KL(N(mu, sd^2) || N(0, I))."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.kept: tuple[Tensor, ...] = ()

    def up(self, codes: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """z [G S, B, latent] and the KL over examples [G]: codes [G, B, mu and log sd], noise [G, S, B, latent]."""
        mean, log_sd = codes.unsqueeze(1).chunk(2, dim=-1)
        sd = log_sd.exp()
        self.kept = mean, sd, noise
        # KL = 1/2 sum_i mu_i^2 + sd_i^2 - 1 - log sd_i^2
        divergence = 0.5 * (mean.square() + sd.square() - 1 - 2 * log_sd).sum((1, 2, 3))
        return torch.addcmul(mean, sd, noise).flatten(0, 1), divergence

    def down(self, g_z: Tensor, weight: float) -> Tensor:
        """The gradient in the codes, from the gradient in z, minus ``weight`` times the KL's.

        g_mu = sum_s g_z - weight mu,   g_log_sd = sum_s g_z eps sd - weight (sd^2 - 1)
        """
        mean, sd, noise = self.kept
        g_z = g_z.view(noise.shape)
        g_mean = g_z.sum(1, keepdim=True).sub_(mean, alpha=weight)
        g_log_sd = (g_z * noise).sum(1, keepdim=True).mul_(sd).sub_(sd.square().sub_(1), alpha=weight)
        return torch.cat([g_mean, g_log_sd], dim=-1).squeeze(1)


def readout(layers: list[Layer], score: str, sizes: Sizes) -> None:
    """A fused operation for the last layers and the score; torch has none."""


def through_relu(g: Tensor, h: Tensor) -> Tensor:
    """g where h = max(0, a) is above 0 and 0 elsewhere, in place."""
    return torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g)  # type: ignore[no-any-return]


__all__ = ["RULES", "SCORES", "Bernoulli", "Differentiated", "Encoding", "Given", "Inputs", "Local", "Score", "Softmax"]
