"""The general engine: evaluates any module, by ``torch.func`` over runs and draws.

Parts that do not depend on a draw, such as an encoder, are computed once: only drawn parameters have an axis of draws.
Weights are drawn before the module is called. With local reparameterisation, linear layers with one row per example
draw their outputs instead (:mod:`vcl.engines.usage` detects them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout, Params
from vcl.data import Data
from vcl.engines.usage import Estimator, Usage, evaluate, find_usage
from vcl.engines.vmapped_linear import with_linear_gradients

Gradient = tuple[Tensor, tuple[Tensor, ...]]
"""A value per run [R], and its gradient in each parameter."""


@final
class General:
    """Evaluates any model through log_lik(params, data, noise) and predict(params, x, head)."""

    counts_rows = False
    """The number of rows does not determine the memory of a prediction."""

    def __init__(self, model: Any, layout: Layout, name: str = "general/torch") -> None:
        self.model, self.layout, self.name = model, layout, name

    def log_lik(self, theta: Tensor, batch: Data, z: Tensor | None = None) -> Tensor:
        """log p(y^(n) | theta, x^(n)) at theta [R, S, D]: [R, S, B]. ``z`` [R, S, B, latent] is each draw's noise."""
        return self.at(self.layout.split(theta), {}, batch, z)

    def at(self, drawn: Params, points: Params, batch: Data, z: Tensor | None) -> Tensor:
        """:meth:`log_lik` at parameters [R, S, ...], or [R, ...] where draws share them."""
        each = () if z is None else (z,)

        def one(drawn: Params, points: Params, x: Tensor, y: Tensor, source: Tensor, *z: Tensor) -> Tensor:
            return self.model.log_lik({**points, **drawn}, Data(x, y, source, batch.sources), *z)  # type: ignore[no-any-return]

        first = next(iter(drawn.values()))
        axes = (0, None, None, None, None, *(0 for _ in each))
        draws = along(_linears(one, first), first.shape[1], first.device, axes)
        return along(draws, first.shape[0], first.device)(drawn, points, batch.x, batch.y, batch.source, *each)

    def gradient(self, theta: Tensor, batch: Data, share: float, z: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """sum_n log p at theta [R, S, D]: [R, S], and ``share`` times its gradient [R, S, D]."""
        leaf = theta.detach().requires_grad_()
        with torch.enable_grad():
            value = self.log_lik(leaf, batch, z).sum(-1)
            (g,) = torch.autograd.grad(value, leaf, torch.full_like(value, share))
        return value.detach(), g

    def point_gradient(
        self, theta: Tensor, batch: Data, share: float, z: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """:meth:`gradient` at one theta [R, D], averaged over draws of z: [R], and the gradient [R, D]."""
        leaf = theta.detach().requires_grad_()
        params = self.layout.split(leaf)
        with torch.enable_grad():
            if z is None:
                value = self.at({name: part.unsqueeze(1) for name, part in params.items()}, {}, batch, None).sum((1, 2))
            else:
                value = self._over_z(params, batch, z).sum((1, 2)) / z.shape[1]
            (g,) = torch.autograd.grad(value, leaf, torch.full_like(value, share))
        return value.detach(), g

    def _over_z(self, params: Params, batch: Data, z: Tensor) -> Tensor:
        """log p at parameters [R, ...] for draws of z alone: [R, S, B]."""

        def one(params: Params, x: Tensor, y: Tensor, source: Tensor, z: Tensor) -> Tensor:
            return self.model.log_lik(params, Data(x, y, source, batch.sources), z)  # type: ignore[no-any-return]

        values = (batch.x, batch.y, batch.source, z)
        return along(_linears(one, z), len(z), z.device)(params, *values)

    def squares(self, theta: Tensor, batch: Data) -> Tensor:
        """sum_n ( grad log p(y^(n) | theta, x^(n)) )^2 at theta [R, D], from per-example gradients: [R, D]."""

        def log_lik(params: Params, x: Tensor, y: Tensor, source: Tensor) -> Tensor:
            return self.model.log_lik(params, Data(x, y, source, batch.sources))  # type: ignore[no-any-return]

        found = squares_one_by_one(log_lik, self.layout.split(theta), batch.x, batch.y, batch.source)
        return self.layout.join(found, lead=1)

    def predictions(self, theta: Tensor, x: Tensor, head: str) -> Tensor:
        """The prediction's moments at theta [R, S, D] for x [R, n, ...]: [R, S, n, C]."""

        return self._each(lambda params, x: self.model.predict(params, x, head), theta, x)

    def outputs(self, theta: Tensor, x: Tensor, head: str) -> Tensor:
        """The model's outputs f at theta [R, S, D] for x [R, n, ...]: [R, S, n, units]."""
        return self._each(lambda params, x: self.model.outputs(params, x, head), theta, x)

    def _each(self, one: Callable[[Params, Tensor], Tensor], theta: Tensor, x: Tensor) -> Tensor:
        draws = along(one, theta.shape[1], theta.device, (0, None))
        return torch.vmap(draws, randomness="error")(self.layout.split(theta), x)

    def find_usage(self, batch: Data, mean: Tensor, estimator: Estimator, points: tuple[str, ...]) -> Usage:
        """How each parameter is used in such batches, from one recorded pass at ``mean`` [D]."""
        one = Data(batch.x[0], batch.y[0], batch.source[0], batch.sources)
        latent = self.model.latent
        params, size = self.layout.split(mean), batch.size
        x, y, source = (torch.cat([part, part[:1]]) for part in (one.x, one.y, one.source))
        more = Data(x, y, source, batch.sources)

        def log_lik(params: Params, data: Data) -> Tensor:
            zero = mean.new_zeros(data.x.shape[0], latent) if latent else None
            return self.model.log_lik(params, data, zero)  # type: ignore[no-any-return]

        return find_usage(
            lambda params: log_lik(params, one), params, size, estimator, points, lambda params: log_lik(params, more)
        )

    def local(
        self, usage: Usage, mean: Params, var: Params, noise: Tensor, points: Params, batch: Data, z: Tensor | None
    ) -> Tensor:
        """log p [R, S, B] by local reparameterisation where it is exact: mean, var [R, ...], noise [R, S, K]."""

        def one(mean: Params, var: Params, noise: Tensor, points: Params, *values: Tensor) -> Tensor:
            x, y, source, *z = values
            data = Data(x, y, source, batch.sources)
            return evaluate(usage, lambda theta: self.model.log_lik({**points, **theta}, data, *z), mean, var, noise)

        values = (batch.x, batch.y, batch.source)
        return _over_draws(_linears(one, noise), mean, var, noise, points, values, () if z is None else (z,))

    def local_predictions(
        self, usage: Usage, mean: Params, var: Params, noise: Tensor, points: Params, x: Tensor, head: str
    ) -> Tensor:
        """The prediction's moments by local reparameterisation where it is exact: [R, S, n, C]."""

        def one(mean: Params, var: Params, noise: Tensor, points: Params, x: Tensor) -> Tensor:
            return evaluate(usage, lambda p: self.model.predict({**points, **p}, x, head), mean, var, noise)

        return _over_draws(one, mean, var, noise, points, (x,), ())


def _over_draws(
    one: Callable[..., Tensor], mean: Params, var: Params, noise: Tensor, points: Params,
    batch: tuple[Tensor, ...], each: tuple[Tensor, ...],
) -> Tensor:  # fmt: skip
    """``one(mean, var, noise, points, *batch, *each)`` for runs and draws; noise and ``each`` have an axis of draws."""
    axes = (None, None, 0, None, *(None for _ in batch), *(0 for _ in each))
    draws = along(one, noise.shape[1], noise.device, axes)
    return along(draws, noise.shape[0], noise.device)(mean, var, noise, points, *batch, *each)


def squares_one_by_one(
    log_lik: Callable[..., Tensor], params: Params, *part: Tensor, fixed: Params | None = None
) -> dict[str, Tensor]:
    """Per-example gradients in ``params`` [R, ...] (not in ``fixed``) by torch.func, squared and summed."""

    def one(params: Params, fixed: Params, *example: Tensor) -> Tensor:
        return log_lik({**fixed, **params}, *(value.unsqueeze(0) for value in example)).squeeze(0)

    def run(params: Params, fixed: Params, *examples: Tensor) -> dict[str, Tensor]:
        axes = (None, None, *(0,) * len(examples))
        gradients = torch.vmap(torch.func.grad(one), in_dims=axes, randomness="error")(params, fixed, *examples)
        return {name: value.square().sum(0) for name, value in gradients.items()}

    return torch.vmap(run, randomness="error")(dict(params), dict(fixed or {}), *part)


def along(
    function: Callable[..., Tensor], count: int, device: torch.device, in_dims: tuple[int | None, ...] | int = 0
) -> Callable[..., Tensor]:
    """``function`` mapped over the first axis, of length ``count``, of arguments whose entry in ``in_dims`` is 0.

    On a CPU a count of 1 is called without vmap, whose overhead equals the time of a small network.
    """
    if count > 1 or device.type != "cpu":
        return torch.vmap(function, in_dims, randomness="error")

    def only(*arguments: Tensor | Params) -> Tensor:
        places = (in_dims,) * len(arguments) if isinstance(in_dims, int) else in_dims
        return function(*map(_first, arguments, places)).unsqueeze(0)

    return only


def _first(argument: Tensor | Params, place: int | None) -> Tensor | Params:
    if place is None:
        return argument
    return argument[0] if isinstance(argument, Tensor) else {name: value[0] for name, value in argument.items()}


def _linears(function: Callable[..., Tensor], like: Tensor) -> Callable[..., Tensor]:
    """``function``, on CUDA with our gradient of linear layers; captured steps hide its Python overhead."""
    return with_linear_gradients(function) if like.is_cuda else function


def differentiate(value: Callable[..., Tensor], parameters: tuple[Tensor, ...]) -> Gradient:
    """A value [R] and its gradient, by torch's autograd."""
    leaves = tuple(part.detach().requires_grad_() for part in parameters)
    with torch.enable_grad():
        found = value(*leaves)
        gradients = torch.autograd.grad(found, leaves, torch.ones_like(found))  # runs are independent: no sum is needed
    return found.detach(), tuple(g.contiguous() for g in gradients)
