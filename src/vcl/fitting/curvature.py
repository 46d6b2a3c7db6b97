"""Phi_t, the diagonal curvature of a task's log-likelihood at theta_t.

    empirical   sum_n ( grad log p(y^(n) | theta, x^(n)) )^2, with the labels of the data (the paper)
    true        the same with labels drawn from the model, y^(n) ~ p(y | theta, x^(n))
    hessian     - d^2/dtheta_d^2 sum_n log p(y^(n) | theta, x^(n)), the definition; for small models

Each example's gradient is squared and then summed. (The square of a batch's mean gradient is different: it vanishes at
the optimum.)

With latent variables log p(y^(n) | theta, x^(n)) is example n's lower bound, averaged over K draws of z before its
gradient is squared; or, tighter, the importance-sampled bound log (1/K) sum_k p(x | z_k, theta) p(z_k) / q(z_k | x).
Parameters without a posterior have curvature 0, because no penalty applies to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout, Params
from vcl.data import Data, weight_of_each
from vcl.engines.choose import choose
from vcl.engines.general import General, along, squares_one_by_one
from vcl.errors import VclError, unknown
from vcl.fitting.processes import current, own_pieces
from vcl.fitting.step import gather
from vcl.models.base import LatentModel, Model, held
from vcl.ops.noise import draw_noise
from vcl.ops.out_of_memory import CURVATURE, told_of_memory
from vcl.ops.rng import Rng

CurvatureKind = Literal["empirical", "true", "hessian"]
CURVATURE_KINDS: tuple[CurvatureKind, ...] = ("empirical", "true", "hessian")

VALUES_IN_FLIGHT = 2**26
"""The most gradient values (or activations) in memory at once, over runs and examples (256 MiB of float32)."""

HESSIAN_LIMIT = 20_000
"""The most parameters for a Hessian diagonal, which needs one pass over the data per parameter."""


@final
@dataclass(frozen=True)
class Curvature:
    """The kind of Phi_t and its number of examples: at most ``samples``, drawn for each run; None uses all.

    A sum over fewer examples is scaled up to N_t, so Phi_t always refers to the whole task. ``draws`` is the number of
    draws of latent variables, if any, and ``importance`` selects the importance-sampled bound.
    """

    kind: CurvatureKind = "empirical"
    samples: int | None = None
    draws: int = 10
    importance: bool = False

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if self.kind not in CURVATURE_KINDS:
            raise unknown("curvature", self.kind, CURVATURE_KINDS)
        if self.samples is not None and self.samples < 1:
            raise VclError(f"the number of Fisher samples is {self.samples}; give at least 1, or none to take all.")
        if self.draws < 1:
            raise VclError(f"the number of draws of the latent variables is {self.draws}; give at least 1.")

    @torch.no_grad()
    @told_of_memory("the curvature", CURVATURE)
    def __call__(self, model: Model, layout: Layout, theta: Tensor, data: Data, rng: Rng) -> Tensor:
        """Phi_t [R, D] at theta [R, D]."""
        self.check()
        sample = sample_of(data, self.samples, rng.at("samples"))
        if model.latent:
            phi = self._of_bounds(model, layout, theta, sample, rng.at("latent"))
        elif self.kind == "hessian":
            phi = _negative_hessian(model, layout, theta, sample)
        else:
            labels = rng.at("labels") if self.kind == "true" else None
            phi = _sum_of_squares(model, layout, theta, sample, labels)
        current().add(phi)
        if self.kind == "hessian":
            phi = phi.clamp(min=0)  # negative where theta is no mode
        return phi * weight_of_each(sample.size, data.size)

    def _of_bounds(self, model: Model, layout: Layout, theta: Tensor, data: Data, rng: Rng) -> Tensor:
        """sum_n ( grad L^(n)(theta) )^2 [R, D] for each example's lower bound L^(n)."""
        if not isinstance(model, LatentModel) or self.kind != "empirical":
            raise VclError(
                f"the curvature is {self.kind!r}, but {type(model).__name__} has latent variables, whose bound has no "
                "labels to draw and no exact Hessian; use the curvature 'empirical'."
            )
        known = held(model, layout)
        if not known.size:  # no parameter has a posterior: independent generators
            return torch.zeros_like(theta)
        params = layout.split(theta)
        mine = {name: params.pop(name) for name in known.names}

        def bound(params: Params, x: Tensor, y: Tensor, source: Tensor, noise: Tensor) -> Tensor:
            one, noise = Data(x, y, source, data.sources), noise.transpose(0, 1)
            if self.importance:
                return model.log_weight(params, one, noise).logsumexp(0) - log(self.draws)
            return model.log_lik(params, one, noise).mean(0)

        size = data.size * self.draws * model.latent
        noise = draw_noise(size, rng.generators(theta.device), theta)
        parts = (data.x, data.y, data.source, noise.view(data.runs, data.size, self.draws, model.latent))
        total = theta.new_zeros(theta.shape[0], known.size)
        for chunk in own_pieces(parts, chunk_for(data.runs * known.size)):
            total += known.join(squares_one_by_one(bound, mine, *chunk, fixed=params), lead=1)
        return layout.pad(total, known)


def _sum_of_squares(model: Model, layout: Layout, theta: Tensor, data: Data, labels: Rng | None) -> Tensor:
    """sum_n ( grad log p(y^(n) | theta, x^(n)) )^2 [R, D], a chunk of examples at a time; ``labels`` draws y^(n)."""

    engine = choose(model, layout, data.heads, theta)
    parts: tuple[Tensor, ...] = (data.x, data.y, data.source)
    if labels is not None:
        size = data.y[0].numel()
        parts = (*parts, draw_noise(size, labels.generators(theta.device), theta).view(data.y.shape))
    # The general engine stores one gradient per example; the layered engine stores only activations.
    each = layout.size if isinstance(engine, General) else row_values(layout, data)
    total = torch.zeros_like(theta)
    for x, y, source, *noise in own_pieces(parts, chunk_for(data.runs * each)):
        batch = Data(x, y, source, data.sources)
        if noise:
            batch = batch._replace(y=drawn_labels(model, layout, theta, batch, noise[0]))
        total += engine.squares(theta, batch)
    return total


def sample_of(data: Data, samples: int | None, rng: Rng) -> Data:
    """At most ``samples`` examples, drawn for each run without repeats; None takes all."""
    if samples is None or samples >= data.size:
        return data
    picks = rng.per_run(lambda g: torch.randperm(data.size, generator=g)[:samples])
    return gather(data, picks.to(data.x.device))


def drawn_labels(model: Model, layout: Layout, theta: Tensor, batch: Data, noise: Tensor) -> Tensor:
    """y^(n) ~ p(y | theta, x^(n)) for each run."""

    def draw(params: Params, x: Tensor, y: Tensor, source: Tensor, noise: Tensor) -> Tensor:
        return model.sample(params, Data(x, y, source, batch.sources), noise)

    return along(draw, len(theta), theta.device)(layout.split(theta), batch.x, batch.y, batch.source, noise)


def _negative_hessian(model: Model, layout: Layout, theta: Tensor, data: Data) -> Tensor:
    """- diag of the Hessian [R, D], one column at a time."""
    if layout.size > HESSIAN_LIMIT:
        raise VclError(
            f"the Hessian's diagonal of {layout.size:,} parameters needs as many passes over the data; the limit is "
            f"{HESSIAN_LIMIT:,}: use the curvature 'empirical' or 'true' for this model."
        )

    def log_lik(theta: Tensor, x: Tensor, y: Tensor, source: Tensor) -> Tensor:
        return model.log_lik(layout.split(theta), Data(x, y, source, data.sources)).sum()

    positions = torch.arange(layout.size, device=theta.device)

    def second(position: Tensor, theta: Tensor, *examples: Tensor) -> Tensor:
        along = (positions == position).to(theta)
        slope = torch.func.grad(lambda at: (torch.func.grad(log_lik)(at, *examples) * along).sum())
        along_itself: Tensor = (slope(theta) * along).sum()
        return along_itself

    rows = current().rows(data.size)
    if rows.start == rows.stop:
        return torch.zeros_like(theta)
    data = data.map(lambda part: part[:, rows])
    chunk = chunk_for(data.size * row_values(layout, data))
    columns = torch.vmap(second, in_dims=(0, None, None, None, None), randomness="error", chunk_size=chunk)
    runs = zip(theta, data.x, data.y, data.source, strict=True)
    return -torch.stack([columns(positions, *run) for run in runs])


def row_values(layout: Layout, data: Data) -> int:
    """An estimate of the values per example in a pass: its input, and each unit a few times."""
    return data.x[0, 0].numel() * 4 + 8 * sum(shape[0] for shape in layout.shapes if shape)


def chunk_for(each: int) -> int:
    """The number of examples to process at once, for ``each`` values in memory per example."""
    return max(1, VALUES_IN_FLIGHT // each)
