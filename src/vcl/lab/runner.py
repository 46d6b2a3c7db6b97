"""From an experiment and methods to rows: the recursion, and an evaluation after every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

from torch import Tensor

from vcl.fitting.loop import Report, silent
from vcl.lab.arithmetic import matrix_products
from vcl.lab.kind import Asked, MethodEntry, Prepared, Score
from vcl.lab.plan import Plan
from vcl.lab.results import Row
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.recursion import State, initial, learn


class Done(NamedTuple):
    """One task learned by one method, for all runs."""

    method: str
    task: str
    number: int
    tasks: int
    seconds: float
    rows: list[Row]
    state: State[Any]
    """All that is needed to go on from here."""
    score: Score
    pictures: Tensor | None = None
    """What the kind's ``samples`` gave."""
    saved: bytes | None = None
    """What the kind's ``save`` gave, after the last task."""


def quiet(line: str) -> None:
    """Say nothing."""


def run_method(
    plan: Plan,
    entry: MethodEntry,
    data: Arrays,
    report: Report = silent,
    state: State[Any] | None = None,
    say: Callable[[str], None] = quiet,
) -> Iterator[Done]:
    """Learn the stream with one method, all runs stacked, and evaluate on every task so far after each one.

    ``state`` is where an earlier run stopped; its tasks are not learned again, and the end is the same, bit for bit.
    """
    settings, runs = plan.settings_of(entry), plan.runs(entry)
    rng = Rng(tuple(run.seed for run in runs))
    stream = plan.experiment.stream(data.to(plan.device), settings, rng)
    kind = plan.experiment.kind
    prepared = kind.prepare(Prepared(settings, data, data.digest, plan.device, say))
    model = kind.model(settings, stream.shape)
    method = plan.build(entry)
    if state is None:
        state = initial(model, method, len(runs), plan.device)
    # Only the test data of old tasks is kept.
    met = [task._replace(train=task.train.empty()) for task in map(stream.make, range(state.t))]
    for number in range(state.t, stream.size):
        began = perf_counter()
        task = stream.make(number)
        met.append(task._replace(train=task.train.empty()))
        with matrix_products(settings.matmul):
            (state,) = learn(state, [task], model, method, rng, report)
            asked = Asked(settings, entry, runs, plan.device, model, state, met, rng, prepared)
            rows = kind.evaluate(asked)
            pictures = None if kind.samples is None else kind.samples(asked).cpu()
        saved = kind.save(asked) if kind.save is not None and state.t == stream.size else None
        seconds = perf_counter() - began
        yield Done(entry.name, task.name, state.t, stream.size, seconds, rows, state, kind.score, pictures, saved)
