"""A reader of files, with valid files for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from formats import Format


class Reader(NamedTuple):
    """A reader, where the file lies that it reads, and what is valid there."""

    read: Callable[[Path], object]
    place: Path
    valid: Sequence[bytes]
    format: Format
    weight: float = 1.0
    """How many inputs it is given, beside others."""
