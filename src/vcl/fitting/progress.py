"""What a fit reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from vcl.fitting.health import Health


class Progress(NamedTuple):
    """One finished epoch: the name of the fit, its progress, and the objective of each run [R]."""

    what: str
    epoch: int
    epochs: int
    objective: Tensor
    note: str = ""
    """A remark to show when the fit is done, if any."""
    health: Health | None = None
    """With the last epoch of a variational fit: how far it got."""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""
