"""Laplace propagation with Kronecker-factored curvature, and EWC with it.

    theta_t = argmax_theta log p(D_t | theta) - 1/2 sum over layers of tr( (W - M)^T (lambda G) (W - M) A )
                           - delta/2 |theta - M|^2,                       M = theta_{t-1}
    A (x) G  <-  A (x) G + A_t (x) G_t   by a named rule: one pair for a layer, however many tasks came

q_t = N(theta_t, (A (x) G + delta I)^{-1}), exactly, in the eigenvectors of A and G. lambda weights what data has said
(G), never the prior's precision delta.

The curvature A_t (x) G_t approaches the expectation under q_t itself, a fixed point. At the mode of a well-fitted task
the Fisher information nearly vanishes, and the best lambda differs from stream to stream; under q_t lambda = 1 is near
the best where tasks have heads or inputs of their own, and too small where they share outputs. Points on the way from
the mode to draws of q_t stand for q_t (``KroneckerCurvature.reach``). Round k moves
1 / (1 + k) of the way to the curvature under the last q_t, on a logarithmic scale; without that it oscillates. After K
rounds the mode's curvature still has the weight 1 / (1 + K).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import final

import torch
from torch import Tensor

from vcl.beliefs.blocks import joined, put_back
from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.information import Information, Pair, add, between
from vcl.beliefs.kronecker import Factors, Kronecker
from vcl.beliefs.kronecker_factor import KroneckerFactor
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.journal import journal_of
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent, Progress, Report, ascend, silent
from vcl.models.base import Model, held, refuse_latent
from vcl.ops.layer_weights import Block
from vcl.ops.noise import draw_noise
from vcl.ops.out_of_memory import CURVATURE, told_of_memory
from vcl.ops.rng import Rng
from vcl.ops.rotations import eigen
from vcl.projections.base import Init, Target, engine_at_points, fresh, start_mean
from vcl.projections.quadratic import Lambda, Penalised, check_fit, lambda_column


def cooled() -> Ascent:
    """Adam with a learning rate that decays to 0: curvature is taken at a mode, so the fit must arrive there."""
    return Ascent(schedule="cosine")


Known = dict[Block, tuple[Tensor, Tensor, tuple[Tensor, Tensor]]]
"""By layer: A of this task, A of all tasks, and its eigenvalues and eigenvectors."""


@final
@dataclass(frozen=True)
class KroneckerLaplace:
    """A Kronecker-factored Gaussian at the mode.

    With ``prior=False`` the fit's penalty has no prior: elastic weight consolidation, anchored at the last mode,
    because several anchors have no common Kronecker-factored centre.
    """

    ascent: Ascent = field(default_factory=cooled)
    lam: Lambda = 1.0
    curvature: KroneckerCurvature = field(default_factory=KroneckerCurvature)
    prior: bool = True
    init_sd: float = 0.1
    init: Init = "glorot"

    def initial(self, prior: MeanField) -> Kronecker:
        """q_0 = p."""
        return Kronecker.from_prior(prior)

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        check_fit(self.ascent, self.lam)
        self.curvature.check()

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[Kronecker], rng: Rng, report: Report = silent) -> Kronecker:
        """The Gaussian at the mode over the parameters that the data informs; the others keep their bits."""
        self.check()
        q, model, data, prior, *_ = target
        refuse_latent(model, "Kronecker-factored Laplace propagation")
        if data.size == 0:
            return q
        previous = q.restrict(q.layout.touched(data.heads))
        delta = prior_precision(model, previous, prior)
        blocks = self.blocks(model, previous, delta, data)
        penalty = past(previous, delta, self.lam, self.prior)
        objective = Penalised(model, previous.layout, penalty)
        start = start_mean(model, previous, fresh(previous, prior), self.init_sd, rng, self.init)
        told = _Last(report)
        (theta,) = ascend(objective, (start,), data, self.ascent, rng, told, "Kronecker-factored Laplace")
        told.note(_treatment(model, previous.layout, blocks))
        return q.merge(self.posterior(model, previous, theta, delta, data, blocks, rng.at("curvature"), report))

    def blocks(self, model: Model, previous: Kronecker, delta: Tensor, data: Data) -> tuple[Block, ...]:
        """The layers that get factors: with one prior precision, and no diagonal information from before."""
        found = self.curvature.layers(model, previous.layout, previous.mean, data)
        lost = [block.weight for block in previous.blocks if block not in found]
        if lost:
            raise VclError(
                f"the belief has Kronecker factors of {lost[0]!r}, but these settings give it a diagonal; keep the "
                "settings (heads, most) of the earlier tasks."
            )
        known, precision = previous.layout.split(delta), previous.layout.split((-previous.log_var).exp())
        kept = []
        for block in found:
            one = known[block.weight].flatten(1)[:, :1]
            flat = all(bool((known[name].flatten(1) == one).all()) for name in block.names)
            new = all(bool((precision[name] == known[name]).all()) for name in block.names)
            if block in previous.blocks or (flat and new):
                kept.append(block)
        return tuple(kept)

    @told_of_memory("the Kronecker-factored curvature", CURVATURE)
    def posterior(
        self, model: Model, previous: Kronecker, theta: Tensor, delta: Tensor, data: Data, blocks: tuple[Block, ...],
        rng: Rng, report: Report = silent,
    ) -> Kronecker:  # fmt: skip
        """q_t at the mode theta [R, D], with the curvature at the mode or under q_t."""
        layout, curvature = previous.layout, self.curvature
        stage = journal_of(report).stage("curvature", rng)
        saved, done, known = stage.entry, 0, Known()
        if saved is None:
            found = curvature(model, layout, theta.unsqueeze(1), data, blocks, rng.at("mode"))
        else:
            found, done = unpacked(saved.tensors, blocks, theta)
        q = gaussian_at(model, theta, previous, found, delta, curvature, known)
        rounds = 0 if curvature.at == "mode" else curvature.rounds
        for number in range(done + 1, rounds + 1):
            stage.tick(partial(packed, found, number - 1))
            at = rng.at("round", number)
            noise = draw_noise(curvature.draws * layout.size, at.at("theta").generators(theta.device), theta)
            # mean + s (draw - mean) is the draw of s times the noise.
            thetas = q.draw(noise.view(len(theta), curvature.draws, -1) * curvature.reach(theta))
            now = curvature(model, layout, thetas, data, blocks, at)
            found = between(found, now, 1 / (1 + number))
            q = gaussian_at(model, theta, previous, found, delta, curvature, known)
        stage.finish(packed(found, rounds))
        return q


def packed(found: Information, rounds: int) -> dict[str, Tensor]:
    """Information as named tensors, with the number of rounds that led to it."""
    pairs = {
        f"{block.weight}.{name}": value for block, pair in found.pairs.items() for name, value in pair._asdict().items()
    }
    return {**pairs, "diagonal": found.diagonal, "rounds": torch.tensor(rounds)}


def unpacked(tensors: Mapping[str, Tensor], blocks: tuple[Block, ...], like: Tensor) -> tuple[Information, int]:
    """The inverse of :func:`packed`."""
    pairs = {
        block: Pair(*(tensors[f"{block.weight}.{name}"].to(like.device) for name in Pair._fields)) for block in blocks
    }
    return Information(pairs, tensors["diagonal"].to(like.device)), int(tensors["rounds"])


def prior_precision(model: Model, previous: Kronecker, prior: MeanField) -> Tensor:
    """delta [R, D]: the precision of p(theta), 0 for parameters without a posterior."""
    layout = previous.layout
    delta = (-prior.restrict(layout).log_var.to(previous.mean)).exp().expand_as(previous.mean)
    part = held(model, layout)
    return layout.pad(layout.cut(delta, part), part)


def past(previous: Kronecker, delta: Tensor, lam: Lambda, prior: bool) -> KroneckerFactor:
    """The penalty of a fit: lambda times the information of data so far, and the prior's precision if asked for."""
    layout, weight = previous.layout, lambda_column(lam, previous.mean)
    data = ((-previous.log_var).exp() - delta).clamp(min=0)
    inside = {name for block in previous.blocks for name in block.names}
    data = torch.where(delta > 0, data, 0)
    data = layout.join(
        {name: value * (name not in inside) for name, value in layout.split(data).items()}, lead=1
    )  # fmt: skip
    diagonal = weight * data + (delta if prior else 0)
    pairs = {
        block: (factors.A, weight.unsqueeze(-1) * factors.G) for block, factors in previous.blocks.items()
    }  # fmt: skip
    return KroneckerFactor(DiagonalFactor(layout, previous.mean, diagonal), pairs)


def gaussian_at(
    model: Model, theta: Tensor, previous: Kronecker, found: Information, delta: Tensor, curvature: KroneckerCurvature,
    known: Known,
) -> Kronecker:  # fmt: skip
    """N(theta, (A (x) G + delta I)^{-1}), with the factors of previous data and of this task added.

    ``known`` keeps eigenvectors for the next round: with the rule ``mean`` A depends on A_t alone.
    """
    layout = previous.layout
    for name, values in layout.split(found.diagonal).items():
        _check_finite(name, values)
    part = held(model, layout)
    precision = (-previous.log_var).exp() + found.diagonal
    # A parameter without a posterior is a point, with variance 0.
    log_vars = layout.split(layout.pad(-layout.cut(precision, part).log(), part, -inf))
    deltas = layout.split(delta)
    blocks: dict[Block, Factors] = {}
    for block, new in found.pairs.items():
        old = previous.blocks.get(block)
        pair = new if old is None else add(Pair(old.A, old.G, old.rows), new, curvature.rule)
        _check_finite(block.weight, pair.A, pair.G)
        if block not in known or known[block][0] is not new.A or curvature.rule != "mean":
            known[block] = new.A, pair.A, eigen(pair.A)
        pair = pair._replace(A=known[block][1])
        (a, Q_A), (g, Q_G) = known[block][2], eigen(pair.G)
        prior = joined(deltas, block, 1)
        # V_ij = 1 / (g_i a_j + delta): the prior keeps directions that no input or gradient reaches.
        put_back(log_vars, block, -(g.unsqueeze(2) * a.unsqueeze(1) + prior.double()).log().to(prior.dtype))
        blocks[block] = Factors(*pair, Q_A, Q_G)
    return Kronecker(layout, theta, layout.join(log_vars, lead=1), blocks)


def _check_finite(name: str, *values: Tensor) -> None:
    """Raise NonFiniteError with the runs in which some of the values [R, ...] are not finite."""
    fine = torch.stack([each.isfinite().flatten(1).all(1) for each in values]).all(0)
    if not bool(fine.all()):
        bad = [run for run, good in enumerate(fine.tolist()) if not good]
        what = (
            f"the curvature of {name!r} is not finite; use curvature at the mode, a smaller learning rate, or "
            "scaled inputs."
        )
        raise NonFiniteError(what, bad, what)


class _Last:
    """Passes reports on, and keeps the last one to add a note to it."""

    def __init__(self, report: Report) -> None:
        self.report, self.journal = report, journal_of(report)
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.last = progress
        self.report(progress)

    def note(self, text: str) -> None:
        if self.last is not None and text:
            self.report(self.last._replace(note=text))


FEW = 4
"""The parameters that a remark names."""


def _treatment(model: Model, layout: Layout, blocks: tuple[Block, ...]) -> str:
    """A remark on the parameters that have a diagonal instead of factors, if any."""
    inside = {name for block in blocks for name in block.names}
    rest = [name for name in held(model, layout).names if name not in inside]
    some = ", ".join(rest[:FEW]) + (f" and {len(rest) - FEW} more" if len(rest) > FEW else "")
    return f"diagonal instead of Kronecker factors: {some}" if rest else ""
