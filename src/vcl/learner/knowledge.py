"""Everything a learner knows after an update, as one value: an update makes a new one or leaves the old."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from vcl.learner.input_kind import Inputs
from vcl.learner.record import Update
from vcl.learner.scaling import Scaling
from vcl.learner.sites import Site
from vcl.learner.tables import Table
from vcl.recursion import State


class TaskRecord(NamedTuple):
    """A task that was learned: its head and how much data it had."""

    head: str
    examples: int
    updates: int


class Knowledge(NamedTuple):
    """The state of the recursion, and what is needed to read inputs and to name outputs."""

    state: State[Any]
    inputs: Inputs
    outputs: Mapping[str, Any]
    """By head: the classes, or the scaling of targets."""
    tasks: Mapping[str, TaskRecord]
    scaling: Scaling | None
    table: Table | None
    noise: Any
    sites: Mapping[str, Site]
    """By task: what its data contributed, where the learner keeps it so that it can be forgotten."""
    seen: Mapping[str, str]
    """Digests of the data of each update, and its task."""
    history: tuple[Update, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of all tasks, in their order."""
        return tuple(dict.fromkeys(record.head for record in self.tasks.values()))

    def lines(self) -> list[str]:
        """Lines for people: inputs, tasks and memory."""
        scaled = ", as they are"
        if self.scaling is not None:
            scaled = ", scaled by one mean and deviation" if self.scaling.whole else ", standardised"
        found = [f"inputs {list(self.inputs.shape)} {self.inputs.kind}{scaled}"]
        found += [
            f"task {name}: {record.examples} examples, head {record.head}: {self.outputs[record.head]}"
            for name, record in self.tasks.items()
        ]
        coreset = self.state.coreset
        return [*found, f"memory: {coreset.size} examples"] if coreset is not None and coreset.size else found


def digest_of(x: Tensor, y: np.ndarray) -> str:
    """A checksum of an update's examples in any order, to notice data that is given twice.

    ``x`` are the inputs as the network takes them: the same numbers in another dtype are the same data.
    """
    rows = x.detach().cpu().contiguous().numpy()
    each = sorted(
        blake2b(row.tobytes() + repr(target).encode(), digest_size=12).digest()
        for row, target in zip(rows, y.tolist(), strict=True)
    )
    found = blake2b(repr(rows.shape[1:]).encode(), digest_size=12)
    found.update(b"".join(each))
    return found.hexdigest()
