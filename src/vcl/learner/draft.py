"""An update as tensors, before the fit."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from torch import Tensor

from vcl.learner.input_kind import Inputs
from vcl.learner.inputs import Given
from vcl.learner.knowledge import Knowledge
from vcl.learner.scaling import Scaling, Standardize, learned
from vcl.learner.tables import Table
from vcl.learner.warned import warn_user


class Read(NamedTuple):
    """The inputs of an update as the network takes them, and how they were read."""

    x: Tensor
    inputs: Inputs
    scaling: Scaling | None
    table: Table | None


@final
class Draft(NamedTuple):
    """An update as tensors: its place, its data, and what its targets mean."""

    name: str
    head: str
    read: Read
    y: Tensor
    outputs: Any
    units: int
    digest: str
    forget: float


def read(given: Given, known: Knowledge | None, net: object, standardize: Standardize) -> Read:
    """The inputs read as those of the first update were; VclError if they are of another shape or kind."""
    if known is None:
        inputs = Inputs.of(given.x, net)
        scaling = learned(given.x, standardize) if inputs.kind == "numbers" else None
        inputs = inputs._replace(grey=inputs.grey and scaling is None)
        return Read(inputs.tensor(given.x, scaling), inputs, scaling, given.table)
    known.inputs.check(given.x, net)
    x = known.inputs.tensor(given.x, known.scaling)
    if known.scaling is not None:
        outside = known.scaling.outside(x, () if known.table is None else known.table.outputs)
        if outside:
            warn_user(outside)
    return Read(x, known.inputs, known.scaling, known.table)
