"""The largest fits that a method will make: what they need of memory, and the engine that computes them."""

from __future__ import annotations

from typing import Any, NamedTuple

from vcl.coresets import sizes
from vcl.lab.kind import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.projections.base import engine_name
from vcl.recursion import Method


class Largest(NamedTuple):
    """A fit by a projection to so many examples of so many tasks."""

    what: str
    project: Any
    examples: int
    tasks: int
    kept: int
    """Points of the whole coreset after the last task."""


def largest_fits(method: Method[Any], tasks: int, examples: int) -> list[Largest]:
    """The largest fit of a task's data and of a coreset, for tasks of so many examples; those that are made at all."""
    together = tasks if method.predictive == "joint" else 1
    (every, rest), kept = sizes(method.choose, tasks, examples), sizes(method.choose, together, examples).kept
    made = [Largest("task", method.project, rest, 1, every), Largest("coreset", method.refit, kept, together, every)]
    return [fit for fit in made if fit.examples]


def engine_of(plan: Plan, entry: MethodEntry, data: Arrays) -> str:
    """The engine of a method's fits, and that of its coreset's fits where it is another; "-" where there is none."""
    settings = plan.settings_of(entry)
    stream = plan.experiment.stream(data, settings, Rng((0,)))
    first, last = stream.make(0), stream.make(stream.size - 1)
    model = plan.experiment.kind.model(settings, stream.shape)
    heads = {**first.heads, **last.heads}
    prior = model.prior(heads).to(plan.device)
    names = {
        fit.what: engine_name(fit.project, model, prior, tuple(first.heads if fit.tasks == 1 else heads))
        for fit in largest_fits(plan.build(entry), stream.size, max(1, first.train.size))
    }
    main = names.pop("task", None) or names["coreset"]
    return main + "".join(f"; {what}: {name}" for what, name in names.items() if name != main)


def engines(plan: Plan, data: Arrays) -> dict[str, str]:
    """The engine of each method of a plan. It is part of a record, not of what the numbers are recognised by."""
    return {entry.name: engine_of(plan, entry, data) for entry in plan.methods}
