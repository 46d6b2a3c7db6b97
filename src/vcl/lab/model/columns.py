"""What a data file holds: named columns, or arrays x and y."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

Columns = dict[str, np.ndarray]
"""Columns [N] by name, in the file's order."""


class Arrays(NamedTuple):
    """Inputs [N, ...], and labels or targets where the file has them."""

    x: np.ndarray
    y: np.ndarray | None


Contents = Columns | Arrays

MOST_COLUMNS = 2**16
"""The most columns of a table."""


def first_twice(names: Iterable[str]) -> str | None:
    """The first name that is there more than once."""
    return next((name for name, times in Counter(names).items() if times > 1), None)
