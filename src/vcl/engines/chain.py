"""A chain of linear layers and elementwise functions at many parameters at once, each run and draw on its own axis.

    x [R, S, B, in],  W [R, S, out, in],  b [R, S, out]   ->   x W^T + b  [R, S, B, out]

What all draws share has no axis of draws: x may be [R, 1, B, in], and W [R, out, in], b [R, out] are a point's. With
them the rows of all draws are multiplied at once. :mod:`vcl.engines.rows` does the same for a network that is called
as it is; here the layers are called one by one, so that an activation can be taken with its layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vcl.beliefs.layout import Params
from vcl.engines.layers import chain_of
from vcl.engines.places import home_of, place_at
from vcl.ops import kernels


def through(module: nn.Module, params: Params, x: Tensor) -> Tensor:
    """``module`` at ``params``: called as it is for one theta, and as a chain where they have axes of runs."""
    return chain(module, params, x) if stacked(module, params) else functional_call(module, dict(params), x)


def stacked(module: nn.Module, params: Params) -> bool:
    """Whether ``params`` has axes of runs (and draws) before those that the module's parameters have."""
    return any(params[name].dim() > value.dim() for name, value in module.named_parameters())


def chain(module: nn.Module, params: Params, x: Tensor) -> Tensor:
    """``module``, a chain, on x [R, S, B, ...] at ``params`` with axes of runs, or of runs and draws."""
    layers = chain_of(module)
    skip = False
    for (name, layer), (_, after) in zip(layers, [*layers[1:], ("", None)], strict=True):
        if skip:
            skip = False
        elif type(layer) is nn.Linear:
            prefix = f"{name}." if name else ""
            skip = type(after) is nn.ReLU  # it is taken with its layer
            x = linear(x, params[f"{prefix}weight"], params.get(f"{prefix}bias"), skip)
        else:
            x = x.flatten(3) if type(layer) is nn.Flatten else layer(x)
    return x


def linear(x: Tensor, W: Tensor, b: Tensor | None, relu: bool = False) -> Tensor:
    """x W^T + b [R, S, B, out], or the positive part of it."""
    if W.dim() == 4 and W.shape[1] != x.shape[1]:
        x = x.expand(-1, W.shape[1], -1, -1)
    found: Tensor = _Linear.apply(x, W, b, relu)  # type: ignore[no-untyped-call]
    return found


class _Linear(torch.autograd.Function):
    """One product for each run (and draw), with the gradient written out so that it comes without copies.

    With g the gradient of what comes out, 0 where the positive part is 0: g_x = g W, g_W = g^T x, g_b = sum_n g.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None, relu: bool) -> Tensor:
        ctx.homes = home_of(W), home_of(b)
        rows, weight, bias = _stack(x, W), _matrices(W), None if b is None else b.reshape(-1, W.shape[-2])
        # No view of another tensor, or torch would refuse a module that works in place on it.
        found = x.new_empty(*x.shape[:3], weight.shape[1])
        a = torch.bmm(rows, weight.mT, out=found.view(*rows.shape[:2], -1))
        if kernels.usable(a):
            kernels.activate(a, bias, relu)
        else:
            a = a if bias is None else a.add_(bias.unsqueeze(1))
            a = a.relu_() if relu else a
        ctx.save_for_backward(x, W, b, found if relu else None)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, W, b, found = ctx.saved_tensors
        rows, weight = _stack(x, W), _matrices(W)
        g = gradients[0].reshape(*rows.shape[:2], -1)
        a = None if found is None else found.view(g.shape)
        g_b = None if b is None else place_at(ctx.homes[1], b)
        if kernels.usable(g):
            g = kernels.activate_gradient(g, a, None if g_b is None else g_b.view(-1, g.shape[-1]))
        else:
            g = g if a is None else g.masked_fill(a <= 0, 0)
            if g_b is not None:
                torch.sum(g, 1, out=g_b.view(-1, g.shape[-1]))
        g_x = torch.bmm(g, weight).view(x.shape) if ctx.needs_input_grad[0] else None
        g_W = place_at(ctx.homes[0], W)
        torch.bmm(g.mT, rows, out=_matrices(g_W))
        return g_x, g_W, g_b, None


def _stack(x: Tensor, W: Tensor) -> Tensor:
    """x [R, S, B, in] as the rows of each matrix: of each run and draw, or of each run where the draws share W."""
    return x.reshape(-1, x.shape[2], x.shape[3]) if W.dim() == 4 else x.reshape(x.shape[0], -1, x.shape[3])


def _matrices(W: Tensor) -> Tensor:
    """[R, S, out, in] or [R, out, in] as a stack of matrices; always a view."""
    return W.flatten(0, 1) if W.dim() == 4 else W
