"""The interface of a belief that can be saved, and checks on tensors read from a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, Self

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.layout import Layout
from vcl.errors import VclError

VECTOR, MATRIX = 1, 2
"""The number of D axes of a tensor: [R, D] or [R, D, D]."""


class Stored(Belief, Protocol):
    """A belief that its layout and tensors fully describe."""

    def tensors(self) -> dict[str, Tensor]:
        """All tensors to save with the layout, each [R, ...]."""
        ...

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Self:
        """The inverse of :meth:`tensors`; for invalid tensors a VclError that starts with the tensor's name."""
        ...


def checked(
    layout: Layout, tensors: Mapping[str, Tensor], shapes: Mapping[str, int], points: Collection[str] = ()
) -> list[Tensor]:
    """The tensors named in ``shapes``, in that order; VclError unless they are valid for ``layout``.

    ``shapes`` maps names to :data:`VECTOR` or :data:`MATRIX`, the mean first. All must have one floating-point dtype
    and number of runs, and be finite; those named in ``points`` may be minus infinity, the log variance of a point.
    """
    for name in shapes:
        _require(name in tensors, f"{name} is missing")
    for name in tensors:
        _require(name in shapes, f"{name} is too much")
    mean = tensors[next(iter(shapes))]
    for name, times in shapes.items():
        value, wanted = tensors[name], (*mean.shape[:1], *(layout.size,) * times)
        _require(value.is_floating_point() and value.dtype == mean.dtype, f"{name} has dtype {value.dtype}")
        _require(tuple(value.shape) == wanted, f"{name} has shape {tuple(value.shape)} and not {wanted}")
        fine = value.isfinite() | (value == -torch.inf) if name in points else value.isfinite()
        _require(bool(fine.all()), f"{name} holds numbers that are not finite")
    return [tensors[name] for name in shapes]


def _require(fine: bool, fault: str) -> None:
    if not fine:
        raise VclError(fault)
