"""Predictions summed over draws: of the weights or, by local reparameterisation, of units.

In a chain the first layer draws its units, a = m + d eps, with one product for all draws; the other layers draw their
weights, theta = mu + sigma eps. All examples share a draw's noise: each example's marginal distribution is right, which
is all that a prediction needs. Examples are columns, so that products and softmax need no copy. On a CPU they are
processed in blocks that fit into the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from vcl.beliefs.belief import Belief, Roles
from vcl.beliefs.blocks import joined
from vcl.beliefs.kronecker import Kronecker
from vcl.beliefs.mean_field import MeanField
from vcl.engines.general import General
from vcl.engines.layered import Layered
from vcl.engines.structure import Fork
from vcl.engines.usage import ESTIMATORS, Estimator, find_usage
from vcl.errors import unknown
from vcl.ops.devices import limits
from vcl.ops.layer_weights import Block
from vcl.ops.layers import TINY
from vcl.ops.noise import draw_noise
from vcl.ops.rows import as_input

Generators = tuple[torch.Generator, ...]

Sum = Callable[[Tensor], Tensor]
"""A function from inputs [R, n, ...] to the sum over draws of the prediction's moments [R, n, C]."""

Each = Callable[[Tensor], Tensor]
"""A function from inputs [R, n, ...] to a value per draw [R, S, n, C]."""


def predictor(
    engine: General | Layered, q: Belief, roles: Roles, head: str, draws: int, estimator: Estimator,
    generators: Generators,
) -> Sum:  # fmt: skip
    """A function that sums predictions over ``draws`` draws of q.

    ``local`` is for mean-field beliefs, and for Kronecker-factored ones in chains of layers; others draw their weights.
    """
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    chain = isinstance(engine, Layered) and isinstance(engine.structure, Fork)
    if estimator == "local" and chain and isinstance(q, MeanField | Kronecker):
        return FirstLayerLocal(engine.structure, q, head, draws, generators)  # type: ignore[union-attr, arg-type]
    if estimator == "local" and isinstance(q, MeanField):
        return _local(engine.general if isinstance(engine, Layered) else engine, q, roles, head, draws, generators)
    each = drawn_predictions(engine, q, head, draws, generators)
    return lambda x: each(x).sum(1)


def drawn_predictions(engine: General | Layered, q: Belief, head: str, draws: int, generators: Generators) -> Each:
    """A function to the prediction's moments under each draw [R, S, n, C]; all inputs share the drawn weights."""
    theta = _drawn(q, draws, generators)
    return lambda x: engine.predictions(theta, x, head)


def drawn_outputs(engine: General | Layered, q: Belief, head: str, draws: int, generators: Generators) -> Each:
    """A function to the model's outputs under each draw [R, S, n, units], the draws of :func:`drawn_predictions`."""
    theta = _drawn(q, draws, generators)
    return lambda x: engine.outputs(theta, x, head)


def _drawn(q: Belief, draws: int, generators: Generators) -> Tensor:
    return q.draw(draw_noise(draws * q.layout.size, generators, q.mean).view(len(generators), draws, -1))


def _local(engine: General, q: MeanField, roles: Roles, head: str, draws: int, generators: Generators) -> Sum:
    """Local reparameterisation where it is exact; elsewhere new weights are drawn for each block of inputs."""
    drawn, fixed = q.restrict(roles.spread), q.restrict(roles.points)
    means, variances = (drawn.layout.split(part) for part in (drawn.mean, drawn.log_var.exp()))
    points, params = fixed.layout.split(fixed.mean), q.layout.split(q.mean[0])

    def add(x: Tensor) -> Tensor:
        more = torch.cat([x[0], x[0, :1]])
        usage = find_usage(
            lambda p: engine.model.predict(p, x[0], head), params, x.shape[1], "local", points,
            lambda p: engine.model.predict(p, more, head),
        )  # fmt: skip
        noise = draw_noise(draws * usage.noise, generators, q.mean).view(len(generators), draws, -1)
        return engine.local_predictions(usage, means, variances, noise, points, x, head).sum(1)

    return add


class _Drawn(NamedTuple):
    """A layer's drawn weight [R, S, out, in] and bias [R, S, out, 1]."""

    W: Tensor
    b: Tensor | None


@final
class FirstLayerLocal:
    """sum_s E[y | f_{theta_s}(x)] for fixed draws theta_s ~ q.

    A Kronecker-factored first layer has a = M x + Q_G ( sqrt(V x'^2) Q_G^T eps ) with x' = Q_A^T [x, 1], exactly.
    """

    def __init__(
        self, structure: Fork, q: MeanField | Kronecker, head: str, draws: int, generators: Generators
    ) -> None:
        means, variances = q.layout.split(q.mean), q.layout.split(q.log_var.exp())

        def normal(size: int) -> Tensor:
            return draw_noise(draws * size, generators, q.mean).view(len(generators), draws, -1)

        def drawn_alone(name: str) -> Tensor:
            mu = means[name]
            noise = normal(mu[0].numel()).view(len(mu), -1, *mu.shape[1:])
            return torch.addcmul(mu.unsqueeze(1), variances[name].sqrt().unsqueeze(1), noise)

        self.likelihood: Any = structure.likelihood
        chain = (*structure.trunk, structure.heads[head])
        at = next(place for place, step in enumerate(chain) if isinstance(step, Block))
        first = chain[at]
        assert isinstance(first, Block)
        self.before: tuple[nn.Module, ...] = tuple(step for step in chain[:at] if not isinstance(step, Block))
        self.M, self.V = means[first.weight], variances[first.weight]
        self.b, self.v = (None if first.bias is None else part[first.bias].unsqueeze(2) for part in (means, variances))
        self.eps = normal(self.M.shape[1]).unsqueeze(3)
        self.turn = None
        drawn: Callable[[str], Tensor] = drawn_alone
        if isinstance(q, Kronecker):
            names = {name for step in chain[at + 1 :] if isinstance(step, Block) for name in step.names}
            rest = q.restrict(q.layout.where(lambda name: name in names))
            drawn = rest.layout.split(rest.draw(normal(rest.layout.size))).__getitem__
            self.turn = q.blocks.get(first)
            if self.turn is not None:
                self.V, self.v = joined(variances, first, 1), None
        self.steps = [
            _Drawn(drawn(step.weight), None if step.bias is None else drawn(step.bias)[..., None])
            if isinstance(step, Block)
            else step
            for step in chain[at + 1 :]
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """For x [R, n, ...]: [R, n, C]."""
        return torch.stack([self._run(run, as_input(x[run]).flatten(1).T) for run in range(len(x))])

    def _run(self, run: int, x: Tensor) -> Tensor:
        """For one run's x [in, n]: [n, C]."""
        for function in self.before:
            x = function(x)
        m = self.M[run] @ x if self.b is None else torch.addmm(self.b[run], self.M[run], x)
        seen = x if self.turn is None else self._rotated(run, x)
        d = self.V[run] @ (seen * seen) if self.v is None else torch.addmm(self.v[run], self.V[run], seen * seen)
        d.add_(TINY).sqrt_()
        draws, columns = self.eps.shape[1], max(1, x.shape[1])
        some = max(1, min(draws, limits(x.device).columns // columns))
        total: Tensor | None = None
        memory: dict[int, Tensor] = {}
        for first in range(0, draws, some):
            part = slice(first, min(first + some, draws))
            out = _reused(memory, -1, m, (part.stop - first, *m.shape))
            if self.turn is None:
                h = torch.addcmul(m, d, self.eps[run, part], out=out)
            else:
                Q_G = self.turn.Q_G[run]
                h = torch.add(m, Q_G @ (d * (Q_G.mT @ self.eps[run, part])), out=out)
            for place, step in enumerate(self.steps):
                h = self._step(step, h, run, part, memory, place)
            found = self._moments(h)
            total = found if total is None else total.add_(found)
        assert total is not None
        return total.T if type(self.likelihood) in COLUMN_MOMENTS else total

    def _rotated(self, run: int, x: Tensor) -> Tensor:
        """Q_A^T [x, 1], for x [in, n]."""
        assert self.turn is not None
        Q_A = self.turn.Q_A[run]
        turned = Q_A[: len(x)].mT @ x
        return turned if self.b is None else turned + Q_A[-1].unsqueeze(1)

    def _step(
        self, step: _Drawn | nn.Module, h: Tensor, run: int, part: slice, memory: dict[int, Tensor], place: int
    ) -> Tensor:
        if isinstance(step, nn.ReLU):
            return h.relu_()
        if not isinstance(step, _Drawn):
            found: Tensor = step(h)
            return found
        W = step.W[run, part]
        out = _reused(memory, place, h, (len(W), W.shape[1], h.shape[2]))
        return torch.bmm(W, h, out=out) if step.b is None else torch.baddbmm(step.b[run, part], W, h, out=out)

    def _moments(self, output: Tensor) -> Tensor:
        """The sum over draws of the moments of outputs [S, C, n]."""
        turned = COLUMN_MOMENTS.get(type(self.likelihood))
        if turned is not None:
            return turned(output).sum(0)
        draws, _, examples = output.shape
        found: Tensor = self.likelihood.expectation(output.mT.reshape(draws * examples, -1))
        return found.view(draws, examples, -1).sum(0)


COLUMN_MOMENTS: dict[type, Callable[[Tensor], Tensor]] = {}
"""Functions from outputs in columns [S, C, n] to moments, by the likelihood's exact type."""


def _reused(memory: dict[int, Tensor], place: int, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Memory of this shape for a layer, allocated once and reused by later draws."""
    if place not in memory:
        memory[place] = like.new_empty(shape)
    return memory[place][: shape[0]]
