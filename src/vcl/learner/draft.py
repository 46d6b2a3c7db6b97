"""An update as tensors, before the fit."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from torch import Tensor, nn

from vcl.learner.input_kind import Inputs
from vcl.learner.inputs import Given
from vcl.learner.knowledge import Knowledge
from vcl.learner.scaling import Scaling, is_image, learned
from vcl.learner.settings import Settings
from vcl.learner.tables import Table
from vcl.learner.warned import warn_user
from vcl.learner.ways import way_of
from vcl.models.untrained import untrained


class Read(NamedTuple):
    """The inputs of an update as the network takes them, and how they were read."""

    x: Tensor
    inputs: Inputs
    scaling: Scaling | None
    table: Table | None
    note: str = ""
    """What was decided about them that the user may want to decide otherwise."""


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


def read(given: Given, known: Knowledge | None, net: object, settings: Settings) -> Read:
    """The inputs read as those of the first update were; VclError if they are of another shape or kind."""
    if known is None:
        return _first(given, net, settings)
    known.inputs.check(given.x, net)
    x = known.inputs.tensor(given.x, known.scaling)
    if known.scaling is not None and not known.inputs.grey:
        outside = known.scaling.outside(x, () if known.table is None else known.table.outputs)
        if outside:
            warn_user(outside)
    return Read(x, known.inputs, known.scaling, known.table)


KEPT = "images keep their scale, since the network may be trained (standardize=True or False decides)"


def _first(given: Given, net: object, settings: Settings) -> Read:
    """The inputs of the first update, which says how all are scaled.

    A network that keeps its values (a frozen part, a prior around them) takes inputs as they are, and one that may be
    trained takes images as they are: they suit the scale that it knows.
    """
    inputs, standardize = Inputs.of(given.x, net), settings.standardize
    rescales = way_of(settings.method).rescales
    new = rescales and isinstance(net, nn.Module) and untrained(net)
    scaling, note = None, ""
    scalable = inputs.kind == "numbers" or (inputs.kind == "pixels" and rescales)
    if scalable and (standardize != "auto" or not settings.shape.keeps):
        scaling = learned(given.x, standardize, new)
        note = KEPT if rescales and standardize == "auto" and not new and is_image(given.x) else ""
    inputs = inputs._replace(grey=inputs.grey and (scaling is None or (rescales and scaling.whole)))
    return Read(inputs.tensor(given.x, scaling), inputs, scaling, given.table, note)
