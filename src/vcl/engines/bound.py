"""L(q) = sum_n E_q log p(y^(n) | theta, x^(n)) - KL(q || q_{t-1}) and its gradient, by either engine."""

from __future__ import annotations

from typing import Any, Protocol, final

import torch
from torch import Tensor

from vcl.beliefs.mean_field_fit import MeanFieldFit
from vcl.data import Data, weight_of_each
from vcl.engines.general import General, Gradient, differentiate
from vcl.engines.layered import Layered
from vcl.engines.structure import blocks_of
from vcl.engines.suppliers import UNITS, supplier_for
from vcl.engines.usage import Estimator, Usage
from vcl.engines.walk import runs_of
from vcl.ops.layers import Sizes
from vcl.ops.noise import Key

Parameters = tuple[Tensor, ...]


class Bound(Protocol):
    """L(q) of a family, an engine and an estimator, from S draws and a batch."""

    name: str
    """The engine that computes it, and the fallback if that engine has no rules for the family."""

    unit: int
    """The noise of a draw takes a multiple of this many values."""

    seeded: bool
    """Whether it takes the key of a step's noise instead of the noise."""

    def noise(self, batch: Data) -> int:
        """The number of standard normals per draw, without those of latent variables."""
        ...

    def widths(self, batch: Data) -> tuple[int, ...]:
        """The units of every layer that draws its units, in the order of the noise, where it ends with theirs."""
        ...

    def gradient(self, parameters: Parameters, batch: Data, total: int, noise: Tensor | Key) -> Gradient:
        """L(q) of each run [R] and its gradient, which the next call may overwrite."""
        ...


@final
class LayeredBound:
    """L(q) by a walk through the layers; coordinates of q are independent."""

    def __init__(self, engine: Layered, fit: MeanFieldFit, estimator: Estimator, draws: int, latent: int) -> None:
        self.engine, self.fit, self.estimator, self.draws, self.latent = engine, fit, estimator, draws, latent
        self.name = engine.name
        self.supplier: Any = None
        self.bound_to: Parameters = ()
        self.walks: dict[int, Any] = {}
        kind = supplier_for(fit, estimator, engine.name)
        self.rule, self.seeded, self.unit = kind.RULE, kind.SEEDED, UNITS[engine.name]

    def walk(self, batch: Data, like: Tensor) -> Any:
        """The walk for batches of this size, for one group of the supplier's runs."""
        runs = self.supplier.groups[0]
        sizes, points = Sizes(runs.stop - runs.start, self.draws, batch.size), self.fit.points.names
        self.walks[batch.size] = self.engine.walk(self.rule, points, batch, sizes, like, rules=self.fit.rules)
        return self.walks[batch.size]

    def noise(self, batch: Data) -> int:
        """The supplier's number: one per drawn parameter, or one per unit and example."""
        known, shapes = set(self.fit.points.names), self.engine.shapes
        names = [name for name in self.engine.structure.names if len(shapes[name]) == 2 and name not in known]
        kind = supplier_for(self.fit, self.estimator, self.engine.name)
        size: int = kind.noise_of(self.fit, batch.size, [shapes[name] for name in names])
        return size

    def widths(self, batch: Data) -> tuple[int, ...]:
        """Of the layers that draw units, in the order of a walk."""
        blocks = blocks_of(self.engine.structure, batch.heads) if self.rule == "local" else ()
        known = self.fit.points.names
        return tuple(self.engine.shapes[block.weight][0] for block in blocks if block.weight not in known)

    @torch.no_grad()
    def gradient(self, parameters: Parameters, batch: Data, total: int, noise: Tensor | Key) -> Gradient:
        """For each group of runs: draw weights, walk through the layers, subtract the KL."""
        if self.supplier is None or not _same(self.bound_to, parameters):
            self.bound_to = parameters
            self.supplier = None  # frees its memory before the next is allocated
            self.supplier = supplier_for(self.fit, self.estimator, self.engine.name)(self.fit, self.draws, parameters)
        examples, supplier = batch.x.shape[1], self.supplier
        share = weight_of_each(examples, total) / self.draws
        size = self.noise(batch) if self.latent else -1
        tape, z = split_noise(noise, self.draws, size, examples, self.latent)
        walk = self.walks.get(examples) or self.walk(batch, parameters[0])
        values = []
        for runs in supplier.groups:
            supplier.open(runs, tape)
            part = batch if len(supplier.groups) == 1 else runs_of(batch, runs)
            values.append(walk(supplier, part, None if z is None else z[runs], share).view(walk.group, -1).sum(1))
            supplier.close(runs)
        value = torch.cat(values).mul_(share).sub_(supplier.to.kl)
        return value, supplier.to.like_parameters()


@final
class GeneralBound:
    """L(q) by the model's own code; coordinates of q are independent."""

    def __init__(
        self, engine: General, fit: MeanFieldFit, estimator: Estimator, draws: int, latent: int, why: str = ""
    ) -> None:
        self.engine, self.fit, self.estimator, self.draws, self.latent = engine, fit, estimator, draws, latent
        self.name = engine.name + why
        self.usages: dict[object, Usage] = {}
        self.supplier: Any = None
        self.bound_to: Parameters = ()
        self.moments: Any = None
        # Parameters without local reparameterisation have their weights drawn.
        self.drawn = supplier_for(fit, "weights" if estimator == "local" else estimator, engine.name)
        self.seeded = estimator != "local" and self.drawn.SEEDED
        self.unit = UNITS[engine.name]

    def usage(self, batch: Data) -> Usage:
        """How each parameter is treated in such batches, from one recorded pass; cached."""
        kind = (batch.size, batch.sources)
        if kind not in self.usages:
            like = self.fit.previous.mean
            zero = torch.zeros(self.fit.layout.size, dtype=like.dtype, device=like.device)
            self.usages[kind] = self.engine.find_usage(batch, zero, self.estimator, self.fit.points.names)
        return self.usages[kind]

    def noise(self, batch: Data) -> int:
        """One per drawn parameter, and one per unit and example of layers that draw their units."""
        return self.usage(batch).noise

    def widths(self, batch: Data) -> tuple[int, ...]:
        """Of the linear layers that draw units, in the order in which the module calls them."""
        return self.usage(batch).widths

    def value(self, parameters: Parameters, batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(q) of each run [R], differentiable by torch."""
        mean, log, *rest = parameters
        return self.fitted(mean, self.fit.log_var(log).exp(), rest, batch, total, noise) - self.fit.kl(parameters)

    def fitted(self, mean: Tensor, var: Tensor, rest: list[Tensor], batch: Data, total: int, noise: Tensor) -> Tensor:
        """sum_n E_q log p(y^(n) | theta, x^(n)) of each run [R], from means, variances and points."""
        usage = self.usage(batch)
        tape, z = split_noise(noise, self.draws, usage.noise, batch.size, self.latent)
        assert isinstance(tape, Tensor)
        tape = tape[..., : usage.noise]
        points = self.fit.points.split(rest[0]) if rest else {}
        share = weight_of_each(batch.size, total) / self.draws
        if usage.local:
            means, variances = self.fit.spread.split(mean), self.fit.spread.split(var)
            found = self.engine.local(usage, means, variances, tape, points, batch, z)
        else:
            drawn = torch.addcmul(mean.unsqueeze(1), var.sqrt().unsqueeze(1), tape)
            found = self.engine.at(self.fit.spread.split(drawn), points, batch, z)
        return share * found.sum((1, 2))

    @torch.no_grad()
    def gradient(self, parameters: Parameters, batch: Data, total: int, noise: Tensor | Key) -> Gradient:
        """torch's gradient in the draws, or in means and variances; the family converts it to its parameters."""
        usage = self.usage(batch)
        if usage.local:
            assert isinstance(noise, Tensor)
            return self._by_moments(parameters, batch, total, noise)
        runs = len(parameters[0])
        self._bind(parameters)
        if self.supplier is None:
            self.supplier = self.drawn(self.fit, self.draws, parameters, runs)
        supplier, share = self.supplier, weight_of_each(batch.size, total) / self.draws
        tape, z = split_noise(noise, self.draws, usage.noise, batch.size, self.latent)
        supplier.open(slice(0, runs), tape)
        drawn = {name: _by_run(supplier.take(name), runs).requires_grad_() for name in self.fit.spread.names}
        points = {name: supplier.take(name).detach().requires_grad_() for name in self.fit.points.names}
        leaves = (*drawn.values(), *points.values())
        with torch.enable_grad():
            value = self.engine.at(drawn, points, batch, z).sum((1, 2))
            found = torch.autograd.grad(value, leaves, torch.full_like(value, share))
        for name, g in zip((*drawn, *points), found, strict=True):
            supplier.add(name, g)
        supplier.close(slice(0, runs))
        return value.detach().mul_(share).sub_(supplier.to.kl), supplier.to.like_parameters()

    def _bind(self, parameters: Parameters) -> None:
        """Drop what was built for other tensors."""
        if not _same(self.bound_to, parameters):
            self.bound_to, self.supplier, self.moments = parameters, None, None

    def _by_moments(self, parameters: Parameters, batch: Data, total: int, noise: Tensor) -> Gradient:
        self._bind(parameters)
        if self.moments is None:
            self.moments = supplier_for(self.fit, "local", self.engine.name)(self.fit, parameters)
        mean, log, *rest = parameters
        var = self.fit.log_var(log).exp()

        def fitted(mean: Tensor, var: Tensor, *rest: Tensor) -> Tensor:
            return self.fitted(mean, var, list(rest), batch, total, noise)

        value, (g_mean, g_var, *g_rest) = differentiate(fitted, (mean, var, *rest))
        to = self.moments(var, g_mean, g_var)
        return value.sub_(to.kl), (to.mean, to.log, *g_rest)


@final
class DrawnBound:
    """L(q) by draws of all of theta, for any family; torch differentiates fit.draw and fit.kl."""

    seeded, unit = False, 1

    def __init__(self, engine: General | Layered, fit: Any, draws: int, latent: int) -> None:
        self.engine, self.fit, self.draws, self.latent = engine, fit, draws, latent
        self.name = f"{engine.name}, theta drawn whole (no rules for the family {type(fit).__name__})"

    def noise(self, batch: Data) -> int:
        """The family's number."""
        size: int = self.fit.noise
        return size

    def widths(self, batch: Data) -> tuple[int, ...]:
        """None: all of theta is drawn."""
        return ()

    def value(self, parameters: Parameters, batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(q) of each run [R], differentiable by torch."""
        tape, z = split_noise(noise, self.draws, self.fit.noise, batch.size, self.latent)
        found = self.engine.log_lik(self.fit.draw(parameters, tape), batch, z)
        share = weight_of_each(batch.size, total) / self.draws
        value: Tensor = share * found.sum((1, 2)) - self.fit.kl(parameters)
        return value

    def gradient(self, parameters: Parameters, batch: Data, total: int, noise: Tensor | Key) -> Gradient:
        """The engine's gradient in theta [R, S, D], backpropagated through the draws."""
        assert isinstance(noise, Tensor)
        tape, z = split_noise(noise, self.draws, self.fit.noise, batch.size, self.latent)
        share = weight_of_each(batch.size, total) / self.draws
        leaves = tuple(value.detach().requires_grad_() for value in parameters)
        with torch.enable_grad():
            theta, kl = self.fit.draw(leaves, tape), self.fit.kl(leaves)
            value, g = self.engine.gradient(theta.detach(), batch, share, z)
            found = torch.autograd.grad((theta, kl), leaves, (g, -torch.ones_like(kl)))
        return share * value.sum(1) - kl.detach(), tuple(part.contiguous() for part in found)


def split_noise(
    noise: Tensor | Key, draws: int, size: int, examples: int, latent: int
) -> tuple[Tensor | Key, Tensor | None]:
    """A step's noise as that of the parameters [R, S, size] and that of latent variables [R, S, B, latent]."""
    if isinstance(noise, Key):
        return noise, noise.for_latent(draws * examples * latent).view(-1, draws, examples, latent) if latent else None
    tape = noise.view(len(noise), draws, -1)
    if not latent:  # a draw ignores surplus noise
        return tape, None
    beside = tape[..., size : size + examples * latent]
    return tape[..., :size], beside.view(*tape.shape[:2], examples, latent)


def _same(one: Parameters, other: Parameters) -> bool:
    """Whether both hold the same tensor objects; their values may have changed."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _by_run(values: Tensor, runs: int) -> Tensor:
    """[R S, ...] as [R, S, ...]."""
    return values.detach().view(runs, -1, *values.shape[1:])
