"""The largest fits of a method, for estimates of memory, and the engine that computes them."""

from __future__ import annotations

from typing import Any, NamedTuple

from vcl.coresets import sizes
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.projections.base import engine_name
from vcl.recursion import Method


class Largest(NamedTuple):
    """A fit by a projection, with its numbers of examples and tasks."""

    what: str
    project: Any
    examples: int
    tasks: int
    kept: int
    """Points of the whole coreset after the last task."""


def largest_fits(method: Method[Any], tasks: int, examples: int) -> list[Largest]:
    """The largest fit to a task's data and to a coreset, for tasks of this many examples; empty fits are left out."""
    together = tasks if method.predictive == "joint" else 1
    (every, rest), kept = sizes(method.choose, tasks, examples), sizes(method.choose, together, examples).kept
    made = [Largest("task", method.project, rest, 1, every), Largest("coreset", method.refit, kept, together, every)]
    return [fit for fit in made if fit.examples]


def engine_of(plan: Plan, entry: MethodEntry, data: Arrays | None) -> str:
    """The name of the engine of a method's fits, and that of its coreset fits if it differs; "-" if there is none."""
    stream = plan.stream(data, Rng((0,)))
    first, last = stream.make(0), stream.make(stream.size - 1)
    model = plan.model(stream.shape)
    heads = {**first.heads, **last.heads}
    prior = model.prior(heads).to(plan.device)
    names = {
        fit.what: engine_name(fit.project, model, prior, tuple(first.heads if fit.tasks == 1 else heads))
        for fit in largest_fits(plan.build(entry), stream.size, max(1, first.train.size))
    }
    main = names.pop("task", None) or names["coreset"]
    return main + "".join(f"; {what}: {name}" for what, name in names.items() if name != main)
