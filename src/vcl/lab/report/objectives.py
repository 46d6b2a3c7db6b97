"""The objectives and the measures of fits, as a page takes them: by fit, and thinned where there are too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from vcl.lab.results import read_measures, read_objectives
from vcl.lab.show import Member
from vcl.lab.store import FITS, OBJECTIVE, Stack
from vcl.pages import Fit, Measures

MOST = 200_000
"""The objectives of all fits that a page holds."""

LEAST = 6
"""The epochs of a fit that are kept in any case."""

Runs = Mapping[tuple[str, int], str]


class Budget(NamedTuple):
    """How many epochs of each fit a page shows; None for all of them."""

    epochs: int | None

    @classmethod
    def of(cls, stacks: Sequence[Stack]) -> Budget:
        """A budget by the sizes of the files: a line of objective.csv is about 50 bytes."""
        paths = [stack.folder / OBJECTIVE for stack in stacks]
        lines = sum(path.stat().st_size // 50 for path in paths if path.exists())
        fits = sum(len(stack.runs) * len(stack.known["tasks"]) for stack in stacks)
        return cls(None if lines <= MOST else max(LEAST, MOST // max(1, fits)))

    def sentence(self) -> str:
        """What is told beside thinned curves."""
        if self.epochs is None:
            return ""
        return f"This page holds at most {self.epochs} epochs of each fit; objective.csv of each part has all of them."

    def take(self, epochs: Sequence[int]) -> list[int]:
        """The epochs to keep: the first, the last, and evenly between them."""
        if self.epochs is None or len(epochs) <= self.epochs:
            return list(epochs)
        return [epochs[round(place)] for place in np.linspace(0, len(epochs) - 1, self.epochs)]


def objectives(members: Sequence[Member], budget: Budget, label: str, seeds: Sequence[int]) -> tuple[Fit, ...]:
    """The objective of each fit of a line, for all of its seeds."""
    found: dict[tuple[int, str], dict[tuple[int, int], float]] = {}
    for member in members:
        for row in read_objectives(member.stack.file(OBJECTIVE)):
            if member.names.get((row.method, row.seed)) == label:
                found.setdefault((row.task, row.fit), {}).setdefault((row.seed, row.epoch), row.value)
    made = []
    for (task, fit), values in sorted(found.items()):
        epochs = budget.take(sorted({epoch for _, epoch in values}))
        array = [[values.get((seed, epoch), nan) for epoch in epochs] for seed in seeds]
        made.append(Fit(task, fit, tuple(epochs), np.asarray(array)))
    return tuple(made)


def measures(members: Sequence[Member], label: str, seeds: Sequence[int]) -> tuple[Measures, ...]:
    """How far each variational fit of a line got, for all of its seeds."""
    found: dict[tuple[int, str], dict[str, dict[int, float]]] = {}
    for member in members:
        for row in read_measures(member.stack.file(FITS)):
            if member.names.get((row.method, row.seed)) == label:
                found.setdefault((row.task, row.fit), {}).setdefault(row.measure, {}).setdefault(row.seed, row.value)
    return tuple(
        Measures(task, fit, {name: [values.get(seed, nan) for seed in seeds] for name, values in each.items()})
        for (task, fit), each in sorted(found.items())
    )
