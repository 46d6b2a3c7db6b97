"""Bisection, elementwise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def bisect(
    reached: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor, steps: int, whole: bool = False
) -> Tensor:
    """The smallest value at which ``reached`` (false below, true above) holds, between ``lower`` and ``upper``.

    It must be false at ``lower`` and true at ``upper``, which are not tried. ``steps`` halve the bracket;
    ``whole`` brackets hold whole numbers, and the answer is exact once they are neighbours.
    """
    for _ in range(steps):
        middle = lower + (upper - lower) / 2
        middle = middle.floor() if whole else middle
        here = reached(middle)
        lower, upper = torch.where(here, lower, middle), torch.where(here, middle, upper)
    return upper
