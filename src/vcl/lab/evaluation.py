"""What is measured of a stream of tasks, how it is tabled and drawn, and what is kept of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.point import Point
from vcl.data import Data
from vcl.errors import NonFiniteError, too_fast
from vcl.fitting.progress import Report, silent
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.results import Confidence, Row
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.recursion import State, Task


class Run(NamedTuple):
    """One row of the stack: what its results are called, its seed, and its lambda where the method has one."""

    label: str
    seed: int
    lam: float | None


class PreparationContext(NamedTuple):
    """What an evaluation may need before the first task: the data, and where work is done."""

    prediction: Any
    data: Arrays
    digest: str
    """Of every byte of the data."""
    device: torch.device
    say: Callable[[str], None]
    once: Callable[[str, Mapping[str, Any], Callable[[], bytes], Callable[[bytes], Any]], Any]
    """What a file holds that depends on a description alone, made once and kept in the store.

    It takes a name, the description, a function that makes the file, and one that reads it (or raises ValueError).
    """


def unkept(confidences: Sequence[Confidence]) -> None:
    """Keep nothing of the confidences."""


class EvaluationContext(NamedTuple):
    """What there is to evaluate after a task: the tasks met so far (their test data alone) under the state.

    A task without test data is learned and not evaluated.
    """

    prediction: Any
    entry: MethodEntry
    lr: float | None
    runs: tuple[Run, ...]
    device: torch.device
    model: Any
    state: State[Any]
    met: Sequence[Task]
    rng: Rng
    prepared: Any = None
    """What ``prepare`` returned."""
    report: Report = silent
    """What fits report to; it carries the journal, where long measurements are kept too."""
    confident: Callable[[Sequence[Confidence]], None] = unkept
    """Takes the binned confidences of predictions."""

    def tested(self) -> Iterator[tuple[int, Task, Data]]:
        """The tasks with test data: the number of each, from 1, the task, and its test data."""
        return ((number, task, task.test) for number, task in enumerate(self.met, start=1) if task.test is not None)

    def belief(self, head: str) -> Any:
        """What to predict with at a head: q_t, or its mean for a method that does not draw."""
        belief = self.state.predictive[head]
        return belief if self.entry.draws else Point(belief.layout, belief.mean)

    def rows(self, number: int, metric: str, values: Tensor) -> list[Row]:
        """One row for each run from ``values`` [R] of a metric on a task."""
        return [
            Row(run.label, run.seed, self.state.t, number, metric, value)
            for run, value in zip(self.runs, values.tolist(), strict=True)
        ]

    def require_finite(self, fine: Tensor, what: str) -> None:
        """Raise unless all runs are ``fine`` [R]; says which are not, so that they are set aside."""
        if not bool(fine.all()):
            why = f"{what} not finite; {too_fast(self.lr or 0.0)}"
            bad = (~fine).nonzero()[:, 0].tolist()
            raise NonFiniteError(f"task {self.state.t} ({self.met[-1].name}): {why}", bad, why)


class Score(NamedTuple):
    """The one number that lambdas are chosen by and a finished task is told by: the larger the better."""

    metric: str
    name: str
    scale: float = 1.0
    unit: str = ""

    def text(self, mean: float, error: float, digits: int = 1) -> str:
        """Mean and standard error (which a single seed does not have) for people."""
        spread = "" if error != error else f" ± {self.scale * error:.{digits}f}"
        return f"{self.scale * mean:.{digits}f}{spread}{self.unit}"


class TableFormat(NamedTuple):
    """How results are tabled: the columns, one line of cells a method, and a sentence on what they are."""

    columns: Callable[[Sequence[Row]], tuple[str, ...]]
    cells: Callable[[Sequence[Row], Mapping[str, float]], list[tuple[str, ...]]]
    explain: Callable[[Sequence[Row], Mapping[str, float]], str]
    seconds: bool = False
    """Whether a last column has the seconds of each line: all of its seeds and lambdas, fits and evaluations."""


def no_bytes(prediction: Any, shape: tuple[int, ...], runs: int) -> int:
    """Nothing that counts."""
    return 0


def nothing(context: PreparationContext) -> None:
    """No preparation."""


def no_description(prepared: Any) -> Mapping[str, Any]:
    """Numbers do not depend on what was prepared."""
    return {}


def without_coreset(context: EvaluationContext) -> State[Any]:
    """All that predictions need."""
    return context.state._replace(coreset=None)


class Evaluation(NamedTuple):
    """Metrics, table, figure and artifacts of an experiment."""

    evaluate: Callable[[EvaluationContext], list[Row]]
    score: Score
    table: TableFormat
    draw: Callable[[Sequence[Row], str, Mapping[str, float], Path], list[Path]]
    """The main figure, from rows, a title, the paper's numbers and a folder."""
    unused_at_mean: tuple[str, ...] = ()
    """Settings of the prediction that matter only for methods that draw."""
    prepare: Callable[[PreparationContext], Any] = nothing
    depends_on: Callable[[Any], Mapping[str, Any]] = no_description
    """What the numbers depend on of what ``prepare`` returned."""
    memory: Callable[[Any, tuple[int, ...], int], int] = no_bytes
    """Bytes that it holds beside beliefs and data, from prediction settings, the shape of an input and the runs."""
    samples: Callable[[EvaluationContext], Tensor] | None = None
    """Pictures to keep after each task, if there are any: uint8 [runs, tasks so far, count, ...]."""
    keep: Callable[[EvaluationContext], State[Any]] = without_coreset
    """What is kept of the last state, for later predictions."""
