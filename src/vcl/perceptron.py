"""The fit of a multilayer perceptron and its gradient, written out: what torch would differentiate, in fewer passes.

A perceptron is a chain a_1 = x W_1^T + b_1, h_l = max(0, a_l), a_{l+1} = h_l W_{l+1}^T + b_{l+1}, whose last a are the
logits of a softmax. Its fit under q, from B of N examples and S draws of theta, is

    F(q) = N/B sum_n 1/S sum_s log p(y^(n) | theta_s, x^(n))

Both estimators go up the chain with the values and down again with g = dF/da:

    weights   theta = mu + sigma eps:  dF/dmu = sum_s dF/dtheta_s,  dF/dlog sigma^2 = sigma/2 sum_s eps_s dF/dtheta_s
    local     a = m + d eps with m = h M^T + b and d^2 = h^2 V^T + v + tiny; with k = g eps / d
              dF/dM = g^T h,  dF/dlog V = V/2 (k^T h^2),  dF/dh = g M + h (k V)

Noise is used as :mod:`vcl.rows` and :mod:`vcl.draws` use it, so values and gradients are those of the general way, to
rounding; the tests compare them. Runs are taken one after another: what one needs stays in the caches, and nothing in
it depends on what stands beside it. Memory, and the views of it, are made once and serve every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.data import Data, input_into, weight_of_each
from vcl.forward import Estimator
from vcl.layout import Layout
from vcl.rows import TINY

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


class Fit(NamedTuple):
    """F(q) of each run [R], and its gradient [R, D] twice, which is lent: the next call writes over it."""

    value: Tensor
    g_mean: Tensor
    g_log_var: Tensor


Finish = Callable[[slice, Tensor, Tensor, Tensor | None], None]
"""What is done with a run's gradient while it is at hand: which run, both parts, and e^{log_var} if kept; [1, D]."""


@final
class Workspace:
    """The memory of the last call, which serves the next if that is of the same kind."""

    def __init__(self) -> None:
        self.kind: tuple[object, ...] = ()
        self.mean: Tensor | None = None
        self.chain: _Local | _Drawn | None = None

    def chain_for(
        self, net: Perceptron, layout: Layout, estimator: Estimator, draws: int, examples: int, mean: Tensor
    ) -> _Local | _Drawn:
        """Memory for this kind of call, with the layers of ``mean`` in place."""
        kind = (net, layout, estimator, draws, examples)
        if self.chain is None or self.mean is not mean or self.kind != kind:
            self.chain = None  # what is freed can be used again
            chain = _Local if estimator == "local" else _Drawn
            self.kind, self.mean, self.chain = kind, mean, chain(net, layout, draws, examples, mean)
        return self.chain


def suits(net: Perceptron, layout: Layout, mean: Tensor, batch: Data) -> bool:
    """Whether :func:`fit_gradient` can take this: the layout is the perceptron's and no more, all in one precision."""
    precision = torch.float32 if batch.x.dtype == torch.uint8 else batch.x.dtype
    return (
        mean.device.type == "cpu"
        and mean.dtype == precision
        and mean.dtype in (torch.float32, torch.float64)
        and batch.y.dtype == torch.int64
        and set(net.names) == set(layout.names)
    )


@torch.no_grad()
def fit_gradient(
    net: Perceptron,
    layout: Layout,
    estimator: Estimator,
    draws: int,
    mean: Tensor,
    log_var: Tensor,
    batch: Data,
    total: int,
    noise: Tensor,
    workspace: Workspace,
    finish: Finish | None = None,
) -> Fit:
    """F(q) and its gradient for q given by mean and log variance [R, D], with noise [R, K]; see :func:`suits`."""
    chain = workspace.chain_for(net, layout, estimator, draws, batch.size, mean)
    share = weight_of_each(batch.size, total) / draws
    tapes = noise.view(len(mean), draws, -1)
    value = mean.new_empty(len(mean))
    for run in range(len(mean)):
        chain(run, (mean[run], log_var[run]), batch.x[run], batch.y[run], tapes[run], share, value[run])
        if finish is not None:
            only = slice(run, run + 1)
            finish(only, chain.g_mean[only], chain.g_log_var[only], chain.var)
    return Fit(value.mul_(share), chain.g_mean, chain.g_log_var)


class _Layer(NamedTuple):
    """A layer's weight [..., out, in] and bias [..., out], as views of a flat vector."""

    W: Tensor
    b: Tensor | None


def _layers(net: Perceptron, layout: Layout, flat: Tensor) -> list[_Layer]:
    """The layers in a flat vector [..., D]."""
    parts = layout.split(flat)
    return [_Layer(parts[w], None if b is None else parts[b]) for w, b in zip(*net, strict=True)]


def _two_like(mean: Tensor) -> Tensor:
    """Memory [2, R, D] for two like ``mean`` [R, D], every run aligned alike."""
    runs, size = mean.shape
    return mean.new_empty(2, runs, -(-size // LINE) * LINE)[..., :size]


class _Pair(NamedTuple):
    """A layer's weights under local reparameterisation: means and variances in pairs, one product for both."""

    weights: Tensor
    """M and V [2, out, in]."""
    turned: Tensor
    """The same [2, in, out]."""
    biases: Tensor | None
    """b and v [2, 1, out]."""
    v: Tensor | None
    to_b: Tensor | None
    to_v: Tensor | None
    pieces: tuple[_Piece, ...]


class _Piece(NamedTuple):
    """Some rows of a layer's weights: those of V, where the gradients go, and what they are made of."""

    turned: Tensor
    """The same columns of g and k/2, turned [2, some, rows]."""
    pair: Tensor
    """Memory for g^T h and k^T h^2 / 2 [2, some, in]."""
    first: Tensor
    second: Tensor
    V: Tensor
    to_mean: Tensor
    to_log_var: Tensor


class _Rows(NamedTuple):
    """A layer's memory under local reparameterisation, the same for every run.

    Rows are draws and examples; in the first layer just examples, whose moments serve every draw. Every name after a
    pair is the same memory again.
    """

    inputs: Tensor
    """h and h^2 [2, rows, in]."""
    h: Tensor
    square: Tensor
    floor: Tensor
    """b and v + tiny [2, 1, out]."""
    moments: Tensor
    """m and d^2, and then d [2, rows, out]."""
    m: Tensor
    d: Tensor
    d_rows: Tensor
    a: Tensor
    """[S, B, out]; the next layer's h."""
    up: Tensor
    """dF/da and that times the noise [2, S, B, out]."""
    up_g: Tensor
    up_k: Tensor
    up_rows: Tensor
    """dF/da [S B, out]."""
    g: Tensor
    """g and k/2 [2, rows, out]: the same memory, unless draws share their moments."""
    k: Tensor
    over: Tensor | None
    """g [2, B, out] as a sum over draws, where they share them."""
    g_inputs: Tensor
    """g M and k V / 2 [2, rows, in]."""
    g_first: Tensor
    g_second: Tensor


@final
class _Local:
    """Local reparameterisation: rows are examples, as the noise has them."""

    def __init__(self, net: Perceptron, layout: Layout, draws: int, examples: int, mean: Tensor) -> None:
        self.draws, self.examples, small = draws, examples, mean.shape[1] <= SMALL
        gradients = _two_like(mean)
        self.g_mean, self.g_log_var = gradients
        # In a large network the gradient's memory holds the moments until it is its turn: nothing else is as large.
        # In a small one they have memory of their own, the same for all runs, and the variances are there afterwards.
        self.flat = _two_like(mean[:1]).expand(2, *mean.shape) if small else gradients
        self.var = self.flat[1, :1] if small else None
        self.tiny, self.zero = mean.new_tensor([0, TINY]).view(2, 1, 1), mean.new_zeros(())
        shapes = [(layer.W.shape[0], layer.W.shape[1]) for layer in _layers(net, layout, mean[0])]
        self.sizes = [examples * out for out, _ in shapes]
        self.rows = self._rows(mean, shapes)
        largest, widest = max(out * width for out, width in shapes), max(width for _, width in shapes)
        pair = mean.new_empty(2 * min(largest, max(PIECE, widest)))
        self.runs = [
            [_pair(at, to, of.g, pair) for at, to, of in zip(
                _layers(net, layout, self.flat[:, run]), _layers(net, layout, gradients[:, run]), self.rows,
                strict=True)]
            for run in range(len(mean))
        ]  # fmt: skip
        self.softmax = Softmax(mean, draws, shapes[-1][0], examples)
        # Turned, because softmax is many times faster over an axis that is not the last.
        self.logits, self.g_logits = self.rows[-1].a.mT, self.rows[-1].up_g.mT

    def _rows(self, like: Tensor, shapes: list[tuple[int, int]]) -> list[_Rows]:
        every = self.draws * self.examples
        inputs = [like.new_empty(2, every if at else self.examples, width) for at, (_, width) in enumerate(shapes)]
        above = [*(pair[0] for pair in inputs[1:]), like.new_empty(every, shapes[-1][0])]
        found = []
        for at, ((out, width), pair, a) in enumerate(zip(shapes, inputs, above, strict=True)):
            rows = pair.shape[1]
            moments, g = like.new_empty(2, rows, out), like.new_empty(2, rows, out)
            up = g if rows == every else like.new_empty(2, every, out)
            g_inputs = like.new_empty(2, rows if at else 0, width)
            each = (-1, self.examples, out)
            found.append(_Rows(
                inputs=pair, h=pair[0], square=pair[1], floor=like.new_empty(2, 1, out), moments=moments,
                m=moments[0].view(each), d=moments[1].view(each), d_rows=moments[1], a=a.view(each),
                up=up.view(2, *each), up_g=up[0].view(each), up_k=up[1].view(each), up_rows=up[0], g=g, k=g[1],
                over=None if rows == every else g.view(2, *each[1:]),
                g_inputs=g_inputs, g_first=g_inputs[0], g_second=g_inputs[1],
            ))  # fmt: skip
        return found

    def __call__(
        self, run: int, moments: tuple[Tensor, Tensor], x: Tensor, y: Tensor, tape: Tensor, share: float, value: Tensor
    ) -> None:
        """One run: x [B, ...], y [B], noise [S, K]."""
        self.flat[0, run].copy_(moments[0])
        torch.exp(moments[1], out=self.flat[1, run])
        input_into(x, self.rows[0].h)
        noises = [part.view(of.a.shape) for part, of in zip(torch.split(tape, self.sizes, 1), self.rows, strict=True)]
        for layer, of, eps in zip(self.runs[run], self.rows, noises, strict=True):
            floor = self.tiny if layer.biases is None else torch.add(layer.biases, self.tiny, out=of.floor)
            torch.mul(of.h, of.h, out=of.square)
            torch.baddbmm(floor, of.inputs, layer.turned, out=of.moments)
            torch.addcmul(of.m, of.d.sqrt_(), eps, out=of.a)
            if of is not self.rows[-1]:
                of.a.relu_()
        self.g_logits.copy_(self.softmax(self.logits, y, share, value))
        below = [None, *self.rows[:-1]]
        for layer, of, eps, to in zip(self.runs[run][::-1], self.rows[::-1], noises[::-1], below[::-1], strict=True):
            self._down(layer, of, eps, to)

    def _down(self, layer: _Pair, of: _Rows, eps: Tensor, below: _Rows | None) -> None:
        """From dF/da of a layer to the gradient of its weights, and to dF/da of the layer below."""
        torch.mul(of.up_g, eps, out=of.up_k)
        if of.over is not None:
            torch.sum(of.up, 1, out=of.over)
        torch.addcdiv(self.zero, of.k, of.d_rows, value=0.5, out=of.k)
        if layer.v is not None and layer.to_b is not None and layer.to_v is not None:
            g_b, k_v = of.g.sum(1)
            layer.to_b.copy_(g_b)
            torch.mul(layer.v, k_v, out=layer.to_v)
        if below is not None:
            torch.bmm(of.g, layer.weights, out=of.g_inputs)
            through_relu(torch.addcmul(of.g_first, of.h, of.g_second, value=2, out=below.up_rows), of.h)
        for piece in layer.pieces:
            torch.bmm(piece.turned, of.inputs, out=piece.pair)
            piece.to_mean.copy_(piece.first)
            torch.mul(piece.V, piece.second, out=piece.to_log_var)


def _pair(at: _Layer, to: _Layer, g: Tensor, memory: Tensor) -> _Pair:
    """The views of a layer's moments and of where its gradients go, each [2, ...]."""
    (out, width), turned = at.W.shape[1:], g.mT
    some = len(memory) // 2 // width
    pieces = []
    for rows in (slice(first, min(first + some, out)) for first in range(0, out, some)):
        pair = memory[: 2 * (rows.stop - rows.start) * width].view(2, -1, width)
        pieces.append(_Piece(turned[:, rows], pair, pair[0], pair[1], at.W[1, rows], to.W[0, rows], to.W[1, rows]))
    if at.b is None or to.b is None:
        return _Pair(at.W, at.W.mT, None, None, None, None, tuple(pieces))
    return _Pair(at.W, at.W.mT, at.b.unsqueeze(1), at.b[1], to.b[0], to.b[1], tuple(pieces))


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

    mu: _Layer
    sd: _Layer
    to_mean: _Layer
    to_log_var: _Layer


@final
class _Drawn:
    """Weights drawn once a batch. With examples as columns no product of any draw needs a copy."""

    def __init__(self, net: Perceptron, layout: Layout, draws: int, examples: int, mean: Tensor) -> None:
        self.net, self.layout, self.draws = net, layout, draws
        self.g_mean, self.g_log_var = _two_like(mean)
        self.sd = mean.new_empty(mean.shape[1])
        self.var = mean.new_empty(1, mean.shape[1]) if mean.shape[1] <= SMALL else None
        first = _layers(net, layout, mean[0])
        self.x = mean.new_empty(examples, first[0].W.shape[1])
        self.columns = [_columns(mean, at == 0, draws, examples, *layer) for at, layer in enumerate(first)]
        self.runs = [
            [_Drawing(*of) for of in zip(
                *(_layers(net, layout, part) for part in (mean[run], self.sd, self.g_mean[run], self.g_log_var[run])),
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
        layers, noises = self.runs[run], _layers(self.net, self.layout, tape)
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
