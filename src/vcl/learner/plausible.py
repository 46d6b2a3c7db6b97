"""Whether the values of a saved learner fit each other, so that nothing fails later: ValueError says what does not.

The checksums of a folder notice damage. A manifest that was edited, checksum and all, is noticed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, get_args

import torch
from torch import Tensor

from vcl.learner.checkpoint import MOST_INPUTS
from vcl.learner.input_kind import Inputs, Kind
from vcl.learner.knowledge import Knowledge
from vcl.learner.record import Update


def check(known: Knowledge) -> None:
    """Raise ValueError unless inputs, tasks, heads, scaling, noise, contributions and history belong together."""
    _inputs(known.inputs, known)
    state, heads = known.state, set(known.outputs)
    _require(all(_text(name) for name in (*known.tasks, *heads)), "names of tasks or heads")
    for name, record in known.tasks.items():
        counts = (record.examples, record.updates)
        _require(record.head in heads and all(_whole(each, 1) for each in counts), f"the task {name!r}")
    _require(state.propagated.mean.shape[0] == 1, "the belief is of several runs")
    for head, noise in (known.noise or {}).items():
        fine = noise.shape.dim() == 2 and noise.shape.shape == noise.rate.shape
        _require(fine and _positive(noise.shape) and _positive(noise.rate), f"the noise of {head!r}")
    for name, site in known.sites.items():
        size = (1, site.layout.size)
        fine = name in known.tasks and site.precision.shape == size and site.shift.shape == size
        _require(fine and _finite(site.precision) and _finite(site.shift), f"what {name!r} contributed")
        # Heads may have grown since, or be gone with a task that was forgotten.
        now = dict(zip(*state.propagated.layout, strict=True))
        old = [(shape, now.get(part, shape)) for part, shape in zip(*site.layout, strict=True)]
        _require(all(was[1:] == is_[1:] for was, is_ in old), f"what {name!r} contributed")
    _require(all(_text(each) for pair in known.seen.items() for each in pair), "the data that was seen")
    for update in known.history:
        _update(update)


def check_units(heads: Mapping[str, int], units: Mapping[str, int]) -> None:
    """Raise ValueError unless the state's heads have so many outputs."""
    for head, count in units.items():
        _require(heads.get(head) == count, f"the head {head!r} has {heads.get(head)} outputs and {count} meanings")


def _inputs(inputs: Inputs, known: Knowledge) -> None:
    shape, scaling, table = inputs.shape, known.scaling, known.table
    _require(bool(shape) and all(_whole(size, 1) for size in shape) and prod(shape) <= MOST_INPUTS, "shape of inputs")
    _require(inputs.kind in get_args(Kind) and isinstance(inputs.dtype, str), "kind of inputs")
    _require(isinstance(inputs.grey, bool), "kind of inputs")
    if table is not None:
        _require(shape == (len(table.outputs),) and inputs.kind == "numbers", "columns of the table")
    if scaling is not None:
        _require(inputs.kind != "tokens", "scaling")
        fine = scaling.centre.shape == scaling.width.shape and tuple(scaling.width.shape) in ((), shape)
        _require(fine and _finite(scaling.centre) and _positive(scaling.width), "scaling")


def _update(update: Update) -> None:
    whole, real = (update.examples, update.epochs, update.fits), (update.seconds, update.reach, update.lost)
    fine = _text(update.task) and _text(update.head) and isinstance(update.growth, bool)
    fine = fine and all(_whole(each, 0) for each in whole) and all(_number(each) for each in real)
    fine = fine and all(each is None or _number(each) for each in (update.objective, update.limited))
    fine = fine and all(_text(name) and _number(value) for name, value in update.kl.items())
    _require(fine and all(_text(note) for note in update.notes), "history")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _finite(values: Tensor) -> bool:
    return values.is_floating_point() and bool(torch.isfinite(values).all())


def _positive(values: Tensor) -> bool:
    return _finite(values) and bool((values > 0).all())


def _require(fine: bool, what: str) -> None:
    if not fine:
        raise ValueError(f"{what}: not as a learner writes it")
