"""proj: from an intractable p*(theta) = q(theta) p(D | theta) to a tractable belief."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from math import inf
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.layout import Layout, Rows, head_of, with_rows
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
class FitsCoresets(Protocol):
    """A projection that fits a coreset by another one, which is the default of a method's ``refit``."""

    def for_coresets(self) -> Projection[Any]:
        """proj of q_t p(C_t | theta)."""
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


def fresh(q: Belief, prior: MeanField) -> dict[str, int]:
    """The tensors of q whose mean still equals the prior's, as rows: no data has informed them.

    Of other tensors of a head, these are the last rows that are all at the prior: outputs that the head has got since.
    The prior's mean, where it is zero, is a saddle point of a network's likelihood, so a fit must start elsewhere.
    """
    before = q.layout.split(prior.restrict(q.layout).mean.to(q.mean))
    found: dict[str, int] = {}
    heads: dict[tuple[str, int], dict[str, Tensor]] = {}
    for name, now in q.layout.split(q.mean).items():
        same, head = now == before[name], head_of(name)
        if bool(same.all()):
            found[name] = 0
        if head is not None and same.dim() > 1:
            heads.setdefault((head, same.shape[1]), {})[name] = same
    for tensors in heads.values():
        # A single bias may end at 0 by itself; a whole row of weights does not.
        if any(same.dim() > 2 for same in tensors.values()):
            first = max(map(_first_of_last, tensors.values()))
            found |= {name: first for name, same in tensors.items() if name not in found and first < same.shape[1]}
    return {name: found[name] for name in q.layout.names if name in found}


def _first_of_last(same: Tensor) -> int:
    """The first of the last rows of [R, rows, ...] that are True throughout; the number of rows if there are none."""
    other = (~same.transpose(0, 1).flatten(1).all(1)).nonzero()
    return int(other[-1]) + 1 if len(other) else 0


def start_mean(model: Model, q: Belief, new: Rows, sd: float, rng: Rng, init: Init = "normal") -> Tensor:
    """The mean of q [R, D] with the rows ``new`` at the start of a fit: the model's start values, or small random
    values (:func:`small_random`) where it offers none."""
    sizes = {name: _rows(shape) for name, shape in zip(*q.layout, strict=True)}
    offered = {name: value for name, value in start_of(model).items() if new.get(name, inf) < _rows(value.shape)}
    # A head may have got more outputs than there are start values.
    left = {name: max(first, _rows(offered[name].shape)) if name in offered else first for name, first in new.items()}
    mean = small_random(
        q.layout, {name: first for name, first in left.items() if first < sizes[name]}, q.mean, sd, rng, init
    )  # fmt: skip
    if not offered:
        return mean
    values = q.layout.split(mean)
    for name, given in offered.items():
        whole = given.to(mean).expand(len(mean), *given.shape)
        if new[name] == 0 and given.shape == values[name].shape[1:]:
            values[name] = whole
        else:
            first, last = new[name], left[name]
            parts = [values[name][:, :first], whole[:, first:last], values[name][:, last:]]
            values[name] = torch.cat(parts, dim=1)
    return q.layout.join(values, lead=1)


def _rows(shape: Sequence[int]) -> int:
    """The number of rows of a tensor of this shape; a scalar has one."""
    return shape[0] if len(shape) else 1


def small_random(layout: Layout, new: Rows, mean: Tensor, sd: float, rng: Rng, init: Init = "normal") -> Tensor:
    """``mean`` [R, D] with the rows ``new`` replaced by random values.

    ``normal``: standard deviation ``sd``, truncated at 2 sd. ``glorot``: weights uniform within
    sqrt(6 / (units in + units out)) of 0, biases 0, and the scales of normalisation layers (vectors called weight) 1.

    Each tensor draws from (seed, its name), so later heads do not change earlier ones.
    """
    if init not in INITS:
        raise unknown("init", init, INITS)
    values = layout.split(mean)
    for name, first in new.items():
        shape = values[name].shape[1:]
        draw = partial(_truncated_normal, shape, sd) if init == "normal" else partial(_glorot, shape, name)
        values[name] = with_rows(values[name], first, rng.at("start", name).per_run(draw).to(mean))
    return layout.join(values, lead=1)


def _truncated_normal(shape: torch.Size, sd: float, generator: torch.Generator) -> Tensor:
    return torch.nn.init.trunc_normal_(torch.empty(shape), 0.0, sd, -2 * sd, 2 * sd, generator=generator)


def _glorot(shape: torch.Size, name: str, generator: torch.Generator) -> Tensor:
    if len(shape) < 2:
        return torch.full(shape, 1.0 if name.endswith("weight") else 0.0)
    return torch.nn.init.xavier_uniform_(torch.empty(shape), generator=generator)
