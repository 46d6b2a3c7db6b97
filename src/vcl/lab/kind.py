"""What is done with a stream of tasks, to classify or to generate: everything in which the two differ, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcl.data import Data
from vcl.lab.results import Row
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.recursion import Method, State, Task


class MethodEntry(NamedTuple):
    """A name for the command line, what it is, and how to build it from settings."""

    name: str
    about: str
    build: Callable[[Any], Method[Any]]
    draws: bool = True
    """Whether prediction averages over draws of the belief; otherwise it takes the belief's mean."""
    takes_lambda: bool = False
    """Whether the weight of the past must be chosen."""
    climbs: bool = True
    """Whether its fits are steps of an optimiser, which a dry run can time one by one."""
    most_parameters: int | None = None
    """The largest network that it can take, if there is a limit."""
    settings: Mapping[str, Any] = MappingProxyType({})
    """What it does differently in every experiment."""
    ignores: tuple[str, ...] = ()
    """The settings of the network that its numbers do not depend on."""


class Run(NamedTuple):
    """One row of the stack: what its results are called, its seed, and its lambda where it comes from a grid."""

    label: str
    seed: int
    lam: float | None


class PreparationContext(NamedTuple):
    """What an evaluation may need before the first task: the data, and where work is done."""

    settings: Any
    data: Arrays
    digest: Callable[[], str]
    """Of every byte of the data."""
    device: torch.device
    say: Callable[[str], None]


class EvaluationContext(NamedTuple):
    """What there is to evaluate after a task: the tasks met so far (their test data alone) under the state.

    A task without test data is learned and not evaluated.
    """

    settings: Any
    entry: MethodEntry
    runs: tuple[Run, ...]
    device: torch.device
    model: Any
    state: State[Any]
    met: Sequence[Task]
    rng: Rng
    prepared: Any = None
    """What the kind's ``prepare`` gave."""

    def tested(self) -> Iterator[tuple[int, Task, Data]]:
        """The tasks with test data: the number of each, from 1, the task, and its test data."""
        return ((number, task, task.test) for number, task in enumerate(self.met, start=1) if task.test is not None)


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


ACCURACY = Score("accuracy", "average accuracy", 100, " %")


class TableFormat(NamedTuple):
    """How results are tabled: the columns, one line of cells a method, and a sentence on what they are."""

    columns: Callable[[Sequence[Row]], tuple[str, ...]]
    cells: Callable[[Sequence[Row], Mapping[str, float]], list[tuple[str, ...]]]
    explain: Callable[[Sequence[Row], Mapping[str, float]], str]


def no_bytes(settings: Any, shape: tuple[int, ...], runs: int) -> int:
    """Nothing that counts."""
    return 0


def nothing(context: PreparationContext) -> None:
    """No preparation."""


class Kind(NamedTuple):
    """A kind of experiment."""

    methods: tuple[MethodEntry, ...]
    model: Callable[[Any, tuple[int, ...]], Any]
    """From settings and the shape of an input."""
    evaluate: Callable[[EvaluationContext], list[Row]]
    score: Score
    table: TableFormat
    draw: Callable[[Sequence[Row], str, Mapping[str, float], Path], list[Path]]
    """The main figure, from rows, a title, the paper's numbers and a path without ending."""
    stream: tuple[str, ...]
    """The settings that the tasks follow from."""
    network: tuple[str, ...]
    """The settings that the network follows from."""
    prediction: Callable[[MethodEntry], tuple[str, ...]]
    """The settings that a method's evaluation follows from."""
    prepare: Callable[[PreparationContext], Any] = nothing
    evaluation: Callable[[Any, tuple[int, ...], int], int] = no_bytes
    """Bytes that an evaluation holds beside beliefs and data, from settings, the shape of an input and the runs."""
    samples: Callable[[EvaluationContext], Tensor] | None = None
    """Pictures to keep after each task, if there are any: uint8 [runs, tasks so far, count, ...]."""
    save: Callable[[EvaluationContext], bytes] | None = None
    """What to keep of the end of a run, if anything."""
