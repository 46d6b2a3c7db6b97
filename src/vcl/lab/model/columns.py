"""What a data file holds: named columns, or arrays x and y."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Columns = dict[str, np.ndarray]
"""Columns [N] by name, in the file's order."""


class Arrays(NamedTuple):
    """Inputs [N, ...], and labels or targets where the file has them."""

    x: np.ndarray
    y: np.ndarray | None


Contents = Columns | Arrays
