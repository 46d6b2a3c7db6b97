"""proj: from an intractable p*(theta) = q(theta) p(D | theta) to a tractable belief."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data
from vcl.engines.choose import choose
from vcl.errors import unknown
from vcl.fitting.loop import Report, silent
from vcl.models.base import Model, start_of
from vcl.ops.rng import Rng

Q = TypeVar("Q", bound=Belief)
P = TypeVar("P")

Init = Literal["normal", "glorot"]
INITS: tuple[Init, ...] = ("normal", "glorot")


class Target(NamedTuple, Generic[Q]):
    """The unnormalised target p*_t(theta) = q(theta) p(data | theta), and the prior p(theta) = q_0(theta).

    ``memory`` holds remembered points that are not part of the likelihood, for projections that use them (replay,
    function space): C_{t-1} when q~_t is fitted, C_t when q_t is.
    """

    q: Q
    model: Model
    data: Data
    prior: MeanField
    memory: Data | None = None


class Projection(Protocol[Q]):
    """q(theta) = proj(p*(theta)). Without data it returns q itself.

    A projection with per-run settings other than ``lam`` also has ``select(runs)``.
    """

    def initial(self, prior: MeanField) -> Q:
        """The prior as this projection's kind of belief."""
        ...

    def __call__(self, target: Target[Q], rng: Rng, report: Report = silent) -> Q:
        """The tractable approximation of ``target``."""
        ...


@runtime_checkable
class UsesEngine(Protocol):
    """A projection whose fits use an engine."""

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine for data of these heads and parameters on the prior's device."""
        ...


def engine_name(project: object, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
    """The name of the engine that the fits of a projection, or of one that it wraps, use; "-" if none."""
    if isinstance(project, UsesEngine):
        return project.engine_name(model, prior, heads)
    if not is_dataclass(project) or isinstance(project, type):
        return "-"
    within = (engine_name(getattr(project, field.name), model, prior, heads) for field in fields(project))
    return next((name for name in within if name != "-"), "-")


def engine_at_points(model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
    """The name of the engine that evaluates log p(y | theta, x) at a single theta."""
    return choose(model, prior.layout.touched(heads), heads, prior.mean).name


def select_runs(project: P, runs: Sequence[int], of: int) -> P:
    """The projection for the selected runs out of ``of``: by its ``select(runs)``, or by selecting a per-run lambda."""
    made: Any = project
    lam = getattr(made, "lam", None)
    if hasattr(made, "select"):
        project = made.select(runs)
    elif isinstance(lam, tuple) and len(lam) == of:
        project = replace(made, lam=tuple(lam[run] for run in runs))
    return project


def lambda_of(project: object, run: int) -> float | None:
    """The lambda of a run; None if the projection has none."""
    lam = getattr(project, "lam", None)
    return lam[run] if isinstance(lam, tuple) else lam


def fresh(q: Belief, prior: MeanField) -> list[str]:
    """Names of the tensors of q whose mean still equals the prior's: no data has informed them.

    The prior's mean, where it is zero, is a saddle point of a network's likelihood, so a fit must start elsewhere.
    """
    before = q.layout.split(prior.restrict(q.layout).mean.to(q.mean))
    return [name for name, now in q.layout.split(q.mean).items() if bool((now == before[name]).all())]


def start_mean(model: Model, q: Belief, names: list[str], sd: float, rng: Rng, init: Init = "normal") -> Tensor:
    """The mean of q [R, D] with the tensors ``names`` at the start of a fit: the model's start values, or small random
    values (:func:`small_random`) where it offers none."""
    offered = {name: value for name, value in start_of(model).items() if name in names}
    mean = small_random(q.layout, [name for name in names if name not in offered], q.mean, sd, rng, init)
    if not offered:
        return mean
    values = q.layout.split(mean)
    return q.layout.join(values | {name: given.to(mean).expand_as(values[name]) for name, given in offered.items()}, 1)


def small_random(layout: Layout, names: list[str], mean: Tensor, sd: float, rng: Rng, init: Init = "normal") -> Tensor:
    """``mean`` [R, D] with the tensors ``names`` replaced by random values.

    ``normal``: standard deviation ``sd``, truncated at 2 sd. ``glorot``: weights uniform within
    sqrt(6 / (units in + units out)) of 0, biases 0, and the scales of normalisation layers (vectors called weight) 1.

    Each tensor draws from (seed, its name), so later heads do not change earlier ones.
    """
    if init not in INITS:
        raise unknown("init", init, INITS)
    values = layout.split(mean)
    for name in names:
        shape = values[name].shape[1:]
        draw = partial(_truncated_normal, shape, sd) if init == "normal" else partial(_glorot, shape, name)
        values[name] = rng.at("start", name).per_run(draw).to(mean)
    return layout.join(values, lead=1)


def _truncated_normal(shape: torch.Size, sd: float, generator: torch.Generator) -> Tensor:
    return torch.nn.init.trunc_normal_(torch.empty(shape), 0.0, sd, -2 * sd, 2 * sd, generator=generator)


def _glorot(shape: torch.Size, name: str, generator: torch.Generator) -> Tensor:
    if len(shape) < 2:
        return torch.full(shape, 1.0 if name.endswith("weight") else 0.0)
    return torch.nn.init.xavier_uniform_(torch.empty(shape), generator=generator)
