"""Where a fit stands, as tensors that another process can go on from.

Parameters, optimiser, noise and what the caller keeps are written into place, so that it does not matter where they
live: a captured step sees them too. Of the order of the examples, the generators' states at the epoch's start are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Generator, Tensor

from vcl.fitting.step import Captured, Eager


@final
class Path:
    """What the caller of :func:`vcl.fitting.loop.climb` keeps of the steps; it is saved with the fit."""

    def __init__(self, kept: tuple[Tensor, ...] = ()) -> None:
        self.kept = kept
        """The caller's own."""
        self.now: tuple[Tensor, ...] = ()
        """The parameters after the last step."""
        self.steps = 0
        """The number of steps so far."""


def result(path: Path) -> dict[str, Tensor]:
    """What a finished fit leaves."""
    return {**_numbered("now", path.now), **_numbered("kept", path.kept), "steps": torch.tensor(path.steps)}


def again(path: Path, saved: Mapping[str, Tensor], where: torch.device) -> None:
    """The inverse of :func:`result`."""
    path.now, path.kept = (tuple(part.to(where) for part in _list(saved, name)) for name in ("now", "kept"))
    path.steps = int(saved["steps"])


def standing(
    path: Path, take: Eager | Captured, order: Sequence[Tensor], values: Sequence[Tensor], first: Tensor | None
) -> dict[str, Tensor]:
    """Where a fit stands: ``order`` has the states of the order's generators at the start of the epoch, ``values``
    the objective at each step since then, and ``first`` that of the first step of all."""
    return {
        **result(path),
        **_numbered("held", take.held()),
        **_numbered("noise", [each.get_state() for each in take.generators]),
        **_numbered("order", order),
        **_numbered("value", values),
        **({} if first is None else {"first": first}),
    }


def go_on(
    path: Path, take: Eager | Captured, order: Sequence[Generator], saved: Mapping[str, Tensor]
) -> tuple[list[Tensor], Tensor | None]:
    """Write a standing into a fit that was just made; returns the values of the epoch and the first of all."""
    for mine, theirs in zip((*path.now, *take.held()), (*_list(saved, "now"), *_list(saved, "held")), strict=True):
        mine.copy_(theirs)
    where = path.now[0].device
    path.kept, path.steps = tuple(part.to(where) for part in _list(saved, "kept")), int(saved["steps"])
    states = (*_list(saved, "order"), *_list(saved, "noise"))
    for generator, state in zip((*order, *take.generators), states, strict=True):
        generator.set_state(state)
    first = saved.get("first")
    return [value.to(where) for value in _list(saved, "value")], None if first is None else first.to(where)


def _numbered(name: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{place}": value for place, value in enumerate(tensors)}


def _list(saved: Mapping[str, Tensor], name: str) -> list[Tensor]:
    return [saved[f"{name}.{place}"] for place in range(sum(key.startswith(f"{name}.") for key in saved))]
