"""`--dry-run`: shows the plan, its time extrapolated from a few real steps, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from vcl.data import Data, dataset
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.lab.largest import engine_of
from vcl.lab.memory import check_memory, gigabytes, look
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.results import counted
from vcl.lab.settings import text_of
from vcl.lab.streams import Arrays
from vcl.models.base import Model
from vcl.ops.rng import Rng
from vcl.projections import Projection, Target
from vcl.recursion import Method, Task

TRIAL = 5
"""Timed steps for each kind of fit, after as many untimed ones."""


def ascents_of(project: Any) -> list[Ascent]:
    """The ascents of a projection and of those that it wraps; each is one stage of its fits."""
    if isinstance(project, Ascent):
        return [project]
    if not is_dataclass(project) or isinstance(project, type):
        return []
    return [found for field in fields(project) for found in ascents_of(getattr(project, field.name))]


def with_ascent(project: Any, ascent: Ascent) -> Any:
    """The same projection with another ascent in every stage."""
    if isinstance(project, Ascent):
        return ascent
    if not ascents_of(project):
        return project
    return replace(
        project, **{f.name: with_ascent(getattr(project, f.name), ascent) for f in fields(project) if f.init}
    )


class PlannedFit(NamedTuple):
    """One fit of the plan: its projection, its number of examples, and whether it starts at the prior."""

    project: Any
    examples: int
    first: bool

    @property
    def ascent(self) -> Ascent | None:
        """The steps of an optimiser that it takes, also where a projection wraps another."""
        return next(iter(ascents_of(self.project)), None)

    @property
    def climbs(self) -> bool:
        """Whether an optimiser (``ascent``) fits it in steps, which can be timed one by one."""
        return self.ascent is not None

    @property
    def batch(self) -> int:
        """Examples per step; without ``ascent``, the projection's ``batch``, or 1 if it has none."""
        batch: int | None = getattr(self.project, "batch", 1) if self.ascent is None else self.ascent.batch
        return min(batch or self.examples, self.examples)

    @property
    def kind(self) -> tuple[int, int, bool, bool]:
        """A key of fits that take the same time per step."""
        return id(self.project), self.batch, self.first, self.examples > self.batch

    @property
    def steps(self) -> int:
        """Steps in all epochs of all stages."""
        epochs = sum(stage.epochs for stage in ascents_of(self.project)) if self.climbs else 1
        return epochs * self.batches

    @property
    def batches(self) -> int:
        """Steps of one epoch."""
        return -(-self.examples // self.batch)


class Estimate(NamedTuple):
    """The cost of one method."""

    method: str
    steps: int
    seconds: float
    gigabytes: float
    engine: str
    """The engine of its fits."""


def estimate(plan: Plan, data: Arrays | None) -> list[Estimate]:
    """Per method: steps over all tasks and fits, their time on this device, and the peak memory."""
    return [_one(plan, entry, data) for entry in plan.methods]


def show_estimate(plan: Plan, data: Arrays | None, console: Console) -> None:
    """Print the plan and its cost."""
    console.print(f"{plan.name}, preset {plan.preset}, {counted(len(plan.seeds))} stacked, on {plan.device}")
    for name, lams in plan.grid.items():
        console.print(f"{name}: lambda {', '.join(f'{lam:g}' for lam in lams)}, stacked too", highlight=False)
    parts: dict[str, list[str]] = {}
    for part, setting, value, _ in plan.listed():
        parts.setdefault(part, []).append(f"{setting.shown}={text_of(value)}")
    for part, values in parts.items():
        console.print(f"{part}: {', '.join(values)}", soft_wrap=True, highlight=False)
    table = Table("method", "steps", "about", "memory", "engine")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.overflow = "fold"  # a truncated number would be wrong
    for each in estimate(plan, data):
        table.add_row(
            each.method,
            f"{each.steps:,}",
            _span(each.seconds),
            f"{each.gigabytes:.2f} GB" if each.gigabytes >= 0.01 else "< 0.01 GB",
            each.engine,
        )
    console.print(table)
    console.print(
        "Time of the fits, from a few real steps each; evaluation comes on top. No results were made or written."
    )


def check_methods(plan: Plan, data: Arrays | None, jobs: int = 1) -> None:
    """Raise VclError, before any training, unless every method can learn the tasks with this network.

    All must fit into memory. Tasks must be large enough for a method's coreset, and the network must be within its
    limit on parameters.
    """
    check_memory(plan, data, jobs)
    stream = plan.stream(data, Rng((0,)))
    tasks = [(task.train.size, task.heads) for task in stream]
    model = plan.model(stream.shape)
    largest = max(model.layout(heads).size for _, heads in tasks)
    for entry in plan.methods:
        fits(plan.build(entry), [size for size, _ in tasks])
        if entry.most_parameters is not None and largest > entry.most_parameters:
            raise VclError(
                f"{entry.name} takes networks of up to {entry.most_parameters} parameters a task, and this one has "
                f"{largest:,}; give a smaller one, such as --set hidden=4, or another method."
            )


def fits(method: Method[Any], sizes: Sequence[int]) -> list[PlannedFit]:
    """All fits of a stream with tasks of these sizes, as the coreset rule splits them."""
    made = []
    coreset: Data | None = None
    propagated = False
    for t, size in enumerate(sizes, start=1):
        # One pixel per example is enough to see how many points a rule keeps.
        new = dataset(torch.zeros(size, 1), torch.zeros(size), str(t), str(t))
        coreset, rest = method.choose(coreset or new.empty(), new, Rng((0,)))
        made.append(PlannedFit(method.project, rest.size, not propagated))
        propagated = propagated or rest.size > 0
        parts = [coreset] if method.predictive == "joint" else [coreset.where([s]) for s in coreset.sources]
        made += [PlannedFit(method.refit, part.size, not propagated) for part in parts]
    return [fit for fit in made if fit.examples]


def _one(plan: Plan, entry: MethodEntry, data: Arrays | None) -> Estimate:
    seeds = tuple(run.seed for run in plan.runs(entry))
    stream = plan.stream(None if data is None else data.to(plan.device), Rng(seeds)).to(plan.device)
    task, model = stream.make(0), plan.model(stream.shape)
    # Assumes that the other tasks are about as large as the first.
    planned = fits(plan.build(entry), [task.train.size] * stream.size)
    kinds = {fit.kind: fit for fit in planned}
    cost = {kind: _measured(fit, task, model, Rng(seeds)) for kind, fit in kinds.items()}
    seconds = sum(cost[fit.kind].step * fit.steps + cost[fit.kind].once * fit.batches for fit in planned)
    held = gigabytes(plan, entry, look(plan, data), len(plan.grid.get(entry.name, (None,))))
    return Estimate(entry.name, sum(fit.steps for fit in planned), seconds, held, engine_of(plan, entry, data))


class Cost(NamedTuple):
    """Seconds of one step, and of what a fit does once with each batch, such as taking its curvature."""

    step: float
    once: float


def _measured(fit: PlannedFit, task: Task, model: Model, rng: Rng) -> Cost:
    """From a few real steps: more epochs of the same batches cost steps alone, and more batches both."""
    prior, runs = model.prior(task.heads), len(rng.seeds)
    q = fit.project.initial(prior.to(task.train.x.device).expand(runs))
    if not fit.first:
        q = q._replace(mean=q.mean + 1e-3)  # no longer at the prior
    several = fit.examples > fit.batch

    def timed(batches: int, epochs: int) -> float:
        index = torch.arange(fit.batch * batches).remainder(task.train.size).expand(runs, -1)
        project: Projection[Any] = fit.project
        if fit.ascent is not None:
            project = with_ascent(project, replace(fit.ascent, epochs=epochs, batch=fit.batch))
        target = Target(q, model, task.train.take(index), prior)
        began = perf_counter()
        project(target, rng.at("trial"))
        return perf_counter() - began

    stages, first = max(1, len(ascents_of(fit.project))), TRIAL if several or not fit.climbs else 1
    timed(1, 1)
    short = timed(first, 1)
    if not fit.climbs:
        return Cost(max(timed(2 * first, 1) - short, 1e-6) / first, 0.0)
    more = TRIAL if first == 1 else 2
    step = max(timed(first, 1 + more) - short, 1e-6) / (more * first * stages)
    if not several:
        return Cost(step, max(short - stages * step, 0.0))
    return Cost(step, max((timed(2 * first, 1) - short) / first - stages * step, 0.0))


def _span(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
