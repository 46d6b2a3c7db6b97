"""The fast way through a row-wise network: all runs and draws in one call of the module, without vmap.

In a *row-wise* network each example is one row of a matrix all the way: its parameters enter through linear layers
only, and everything between works row by row (ReLU, for one). Such a module does not care how many rows it is given,
so it is called once with the rows of all runs and draws; the linear layers know whose rows are whose. The first layer
sees each run's examples once, whatever the number of draws. The results are those of the general way in
:mod:`vcl.engines.forward` (the tests compare them), at a fraction of its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vcl.beliefs.layout import Params
from vcl.engines.places import home_of, place_at
from vcl.ops import kernels

TINY = 1e-16
"""Added to variances before a square root, whose gradient at 0 (a dead input, no bias) would be NaN."""


def local_rows(
    function: Callable[..., Tensor], mean: Params, var: Params, noise: Tensor, x: Tensor, *rest: Tensor
) -> Tensor:
    """``function(params, x, *rest)`` under local reparameterisation: [R, S, B, ...].

    mean, var: each tensor [R, ...]; noise [R, S, K]; x and each of ``rest`` [R, B, ...].
    """
    runs, draws, examples = noise.shape[0], noise.shape[1], x.shape[1]
    names = {id(value): name for name, value in mean.items()}
    position = 0

    def layer(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        nonlocal position
        start, position = position, position + examples * weight.shape[1]
        # Before the first layer there is one row an example; its moments serve every draw.
        rows = rows.view(runs, -1, examples, rows.shape[-1])
        piece = noise[..., start:position].view(runs, draws, examples, -1)
        bias_var = None if bias is None else var[names[id(bias)]]
        drawn: Tensor = _LocalLinear.apply(rows, weight, bias, var[names[id(weight)]], bias_var, piece)  # type: ignore[no-untyped-call]
        return drawn.flatten(0, 2)

    return _through(function, mean, layer, (runs, draws, examples), x, rest)


def mixed_rows(
    function: Callable[..., Tensor], mean: Params, var: Params, draw: Callable[[str, int], Tensor], x: Tensor
) -> Tensor:
    """``function(params, x)`` with the first layer by local reparameterisation and the others drawn: [R, S, N, ...].

    mean, var: each tensor [R, ...]; x [R, N, ...]; ``draw(name, size)`` gives standard normals [R, S, size]. All
    examples share a draw's noise: each of them by itself has the right distribution, which is all that a prediction
    asks, and the first layer, the widest, is multiplied once for all draws.
    """
    names = {id(value): name for name, value in mean.items()}
    runs, examples = x.shape[:2]
    first = True

    def layer(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        nonlocal first
        name, (out, width) = names[id(weight)], weight.shape[1:]
        spread, bias_var = var[name], None if bias is None else var[names[id(bias)]]
        if first:
            first = False
            rows = rows.view(runs, examples, width)
            m = _affine(rows, weight, bias)
            std = _affine(rows * rows, spread, bias_var).add_(TINY).sqrt_()
            a = torch.addcmul(m.unsqueeze(1), std.unsqueeze(1), draw(name, out).unsqueeze(2))
            return a.flatten(0, 2)
        W = _drawn(weight, spread, draw(name, out * width))
        b = None if bias is None else _drawn(bias, var[names[id(bias)]], draw(names[id(bias)], out)).flatten(0, 1)
        return _affine(rows.view(-1, examples, width), W.flatten(0, 1), b).flatten(0, 1)

    with _Layers(mean, layer):
        result = function(mean, x.flatten(0, 1))
    return result.view(runs, -1, examples, *result.shape[1:])


def _drawn(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """mu + sigma * noise for every draw: mean, var [R, ...], noise [R, S, size] -> [R, S, ...]."""
    return torch.addcmul(mean.unsqueeze(1), var.sqrt().unsqueeze(1), noise.view(*noise.shape[:2], *mean.shape[1:]))


def theta_rows(function: Callable[..., Tensor], theta: Params, x: Tensor, *rest: Tensor) -> Tensor:
    """``function(params, x, *rest)`` at given parameters theta, each [R, S, ...] -> [R, S, B, ...]."""
    runs, draws = next(iter(theta.values())).shape[:2]
    examples = x.shape[1]

    def layer(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # Before the first layer there is one row an example, the same for every draw.
        rows = rows.view(runs, -1, examples, rows.shape[-1])
        a: Tensor = _ThetaLinear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
        return a.flatten(0, 2)

    return _through(function, theta, layer, (runs, draws, examples), x, rest)


def square_gradients(function: Callable[..., Tensor], theta: Params, x: Tensor, *rest: Tensor) -> dict[str, Tensor]:
    """sum_n ( d function(theta, x^(n), ...) / d theta )^2 for theta, each tensor [R, ...]; the same shapes come back.

    In a linear layer the gradient of one example is g a^T (a the row that comes in, g the gradient of the row that
    goes out), so the sum of its squares is (g^2)^T (a^2): no example's own gradient is ever formed.
    """
    runs, examples = x.shape[:2]
    fixed = {name: value.detach() for name, value in theta.items()}
    names = {id(value): name for name, value in fixed.items()}
    layers: list[tuple[str, str | None, Tensor, Tensor]] = []

    def layer(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = rows.view(runs, examples, -1)
        a = _affine(rows, weight, bias)
        # Parameters carry no gradient here, so the first rows that go out are where the graph begins.
        a = a if a.requires_grad else a.requires_grad_()
        layers.append((names[id(weight)], None if bias is None else names[id(bias)], rows.detach(), a))
        return a.flatten(0, 1)

    with torch.enable_grad():
        total = _through(function, fixed, layer, (runs, 1, examples), x, rest).sum()
    gradients = torch.autograd.grad(total, [a for *_, a in layers])
    squares = {}
    for (weight, bias, rows, _), g in zip(layers, gradients, strict=True):
        g = g.square()
        squares[weight] = torch.bmm(g.mT, rows.square())
        if bias is not None:
            squares[bias] = g.sum(1)
    return squares


def _affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """rows W^T + b for each of a stack."""
    return torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)


def _outer(g: Tensor, rows: Tensor, pieces: int) -> Tensor:
    """g^T rows: g [R, N, out], rows [R, N, in] -> [R, out, in].

    A GPU takes the sum over N in pieces side by side: a long sum into a small matrix would leave it idle.
    """
    if not g.is_cuda or pieces == 1:
        return torch.bmm(g.mT, rows)
    runs, examples = g.shape[0], g.shape[1] // pieces
    left, right = (part.reshape(runs * pieces, examples, -1) for part in (g, rows))
    return torch.bmm(left.mT, right).view(runs, pieces, g.shape[2], rows.shape[2]).sum(1)


class _ThetaLinear(torch.autograd.Function):
    """a = x W^T + b for every draw, with its gradient written out so that it comes as it is needed, without copies.

    x [R, S or 1, B, in]; W [R, S, out, in]; b [R, S, out] or None. Where all draws see the same rows, the draws' units
    stand side by side: one product a run.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W, b)
        ctx.homes = home_of(W), home_of(b)
        runs, draws, out, width = W.shape
        examples = x.shape[2]
        if x.shape[1] == draws:
            stacked = None if b is None else b.flatten(0, 1)
            return _affine(x.flatten(0, 1), W.flatten(0, 1), stacked).view(runs, draws, examples, out)
        wide = (
            torch.bmm(x[:, 0], W.reshape(runs, draws * out, width).mT).view(runs, examples, draws, out).transpose(1, 2)
        )
        a = wide.new_empty(runs, draws, examples, out)
        return a.copy_(wide) if b is None else torch.add(wide, b.unsqueeze(2), out=a)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, W, b = ctx.saved_tensors
        runs, draws, out, width = W.shape
        examples = x.shape[2]
        g_W, g_b = place_at(ctx.homes[0], W), None if b is None else place_at(ctx.homes[1], b)
        if g_b is not None:
            torch.sum(g, 2, out=g_b)
        if x.shape[1] == draws:
            g_x = torch.bmm(g.flatten(0, 1), W.flatten(0, 1)).view(x.shape) if ctx.needs_input_grad[0] else None
            torch.bmm(g.flatten(0, 1).mT, x.flatten(0, 1), out=g_W.view(-1, out, width))
            return g_x, g_W, g_b
        wide = g.transpose(1, 2).reshape(runs, examples, draws * out)
        g_x = torch.bmm(wide, W.reshape(runs, draws * out, width)).unsqueeze(1) if ctx.needs_input_grad[0] else None
        torch.bmm(wide.mT, x[:, 0], out=g_W.view(runs, draws * out, width))
        return g_x, g_W, g_b


class _LocalLinear(torch.autograd.Function):
    """a = x W^T + b + sqrt(x^2 V^T + v + tiny) * noise, with its gradient written out to save passes over memory.

    x [R, S or 1, B, in]; W, V [R, out, in]; b, v [R, out] or None; noise [R, S, B, out].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None, V: Tensor, v: Tensor | None, noise: Tensor) -> Tensor:
        rows, shape = x.flatten(1, 2), (*x.shape[:3], W.shape[1])
        if _by_kernel(x, noise):
            m, s = (torch.bmm(left, right.mT).view(shape) for left, right in ((rows, W), (rows * rows, V)))
            a, std = kernels.local(m, s, b, v, noise, TINY)
        else:
            mean = _affine(rows, W, b).view(shape)
            std = _affine(rows.square(), V, v).add_(TINY).sqrt_().view(shape)
            a = torch.addcmul(mean, std, noise)
        ctx.save_for_backward(x, W, V, noise, std)
        ctx.biased = b is not None
        return a

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, W, V, noise, std = ctx.saved_tensors
        # da/dmean = 1 and da/dvar = noise / (2 std), summed over the draws that share their moments.
        if _by_kernel(x, noise):
            g_mean, g_var = kernels.local_gradient(g, noise, std)
        else:
            g_mean, g_var = g, g * noise
            if x.shape[1] < noise.shape[1]:
                g_mean, g_var = g_mean.sum(1, keepdim=True), g_var.sum(1, keepdim=True)
            g_var = g_var.div_(std).mul_(0.5)
        rows, g_mean, g_var = x.flatten(1, 2), g_mean.flatten(1, 2), g_var.flatten(1, 2)
        g_x = None
        if ctx.needs_input_grad[0]:
            # dmean/dx = W and dvar/dx = 2 x V
            g_x = torch.bmm(g_mean, W).addcmul_(rows, torch.bmm(g_var, V), value=2).view(x.shape)
        g_b, g_v = (g_mean.sum(1), g_var.sum(1)) if ctx.biased else (None, None)
        pieces = x.shape[1]
        return g_x, _outer(g_mean, rows, pieces), g_b, _outer(g_var, rows.square(), pieces), g_v, None


def _by_kernel(x: Tensor, noise: Tensor) -> bool:
    """Whether the kernels can take this; draws must lie equally far apart, as they do on a tape."""
    return kernels.usable(x) and kernels.evenly_apart(noise)


def _through(
    function: Callable[..., Tensor],
    params: Params,
    layer: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    shape: tuple[int, int, int],
    x: Tensor,
    rest: tuple[Tensor, ...],
) -> Tensor:
    """Call ``function`` once on all rows; ``rest`` (labels and such) is repeated for every draw."""
    repeated = [part[:, None].expand(-1, shape[1], *part.shape[1:]).flatten(0, 2) for part in rest]
    with _Layers(params, layer):
        result = function(params, x.flatten(0, 1), *repeated)
    return result.view(*shape, *result.shape[1:])


class _Layers(TorchFunctionMode):
    """Answers the linear calls whose weight is one of ``params`` by ``layer``."""

    def __init__(self, params: Params, layer: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> None:
        self.known = {id(value) for value in params.values()}
        self.layer = layer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.linear and id(args[1]) in self.known:
            return self.layer(args[0], args[1], args[2] if len(args) > 2 else (kwargs or {}).get("bias"))
        return func(*args, **(kwargs or {}))
