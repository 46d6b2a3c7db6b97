"""From an experiment and methods to rows: the recursion, and an evaluation after every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from torch import Tensor

from vcl.errors import NonFiniteError
from vcl.fitting.loop import Report, silent
from vcl.lab.arithmetic import matrix_products
from vcl.lab.evaluation import EvaluationContext, Run, Score
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.results import Confidence, Row
from vcl.lab.settings import values_of
from vcl.lab.streams import Arrays
from vcl.ops.out_of_memory import PREDICTION, told_of_memory
from vcl.ops.rng import Rng
from vcl.recursion import State, Task, describe_set_aside, initial, learn, set_runs_aside


class FinishedTask(NamedTuple):
    """One task learned by one method, for all runs of a stack."""

    method: str
    task: str
    number: int
    tasks: int
    seconds: float
    rows: list[Row]
    state: State[Any]
    """All that is needed to go on from here."""
    score: Score
    tested: bool = True
    """Whether it has test data."""
    pictures: Tensor | None = None
    """What the evaluation's ``samples`` returned."""
    kept: State[Any] | None = None
    """After the last task: what is kept for later predictions."""
    confidences: Sequence[Confidence] = ()
    """Of the predictions, where there are any."""


def quiet(line: str) -> None:
    """Say nothing."""


def run_method(
    plan: Plan,
    entry: MethodEntry,
    runs: Sequence[Run],
    data: Arrays | None,
    prepared: Any = None,
    report: Report = silent,
    state: State[Any] | None = None,
    say: Callable[[str], None] = quiet,
) -> Iterator[FinishedTask]:
    """Learn the stream with one method, these runs stacked, and evaluate on every task so far after each one.

    ``state`` is where an earlier run stopped: its tasks are not learned again, and the result is the same, bit for bit.
    A run that leaves the finite numbers, in training or in prediction, is set aside, which ``say`` is told.
    """
    rng = Rng(tuple(run.seed for run in runs))
    stream = plan.stream(None if data is None else data.to(plan.device), rng).to(plan.device)
    evaluation, model, method = plan.experiment.evaluation, plan.model(stream.shape), plan.build(entry, runs)
    lr = values_of(plan.settings_of(entry)).get("lr")
    if state is None:
        state = initial(model, method, len(runs), plan.device)

    confidences: list[Confidence] = []

    def context_after(state: State[Any], met: list[Task]) -> EvaluationContext:
        left = tuple(runs[run] for run in state.alive)
        return EvaluationContext(
            plan.setup.prediction, entry, lr, left, plan.device, model, state, met, rng.select(state.alive), prepared,
            report, confidences.extend,
        )  # fmt: skip

    # Only the test data of old tasks is kept, of the runs that are left.
    met = [_test_alone(stream.make(number), state.alive) for number in range(state.t)]
    for number in range(state.t, stream.size):
        began = perf_counter()
        task, before, known = stream.make(number), state.alive, len(state.set_aside)
        met.append(_test_alone(task, before))
        with matrix_products(plan.setup.run.matmul):
            (state,) = learn(state, [task], model, method, rng, report)
            rows: list[Row] | None = None
            while rows is None:
                met = _left(met, before, state.alive)
                context, before = context_after(state, met), state.alive
                confidences.clear()
                try:
                    with told_of_memory("it", PREDICTION, f"the evaluation after task {state.t} ({task.name})"):
                        rows = evaluation.evaluate(context)
                except NonFiniteError as error:
                    state = set_runs_aside(state, error, state.t, method, rng)
            pictures = None if evaluation.samples is None else evaluation.samples(context).cpu()
        if len(state.set_aside) > known:
            say(f"{entry.name}: {describe_set_aside(state, known)}")
        kept = evaluation.keep(context) if state.t == stream.size else None
        seconds, tested = perf_counter() - began, task.test is not None
        yield FinishedTask(
            entry.name, task.name, state.t, stream.size, seconds, rows, state, evaluation.score, tested, pictures, kept,
            tuple(confidences),
        )  # fmt: skip


def _test_alone(task: Task, alive: Sequence[int]) -> Task:
    """A task without its training data, of some runs."""
    return _of_runs(task._replace(train=task.train.empty()), alive)


def _of_runs(task: Task, runs: Sequence[int]) -> Task:
    return task if task.test is None else task._replace(test=task.test.select(runs))


def _left(met: list[Task], before: Sequence[int], alive: Sequence[int]) -> list[Task]:
    """The test data of the runs ``before``, of those that are left."""
    if len(alive) == len(before):
        return met
    places = [before.index(run) for run in alive]
    return [_of_runs(task, places) for task in met]


def set_aside_in(notes: Sequence[str]) -> list[str]:
    """Those of the lines that were said which tell of runs that were set aside."""
    return [line for line in notes if " runs set aside: " in line]
