"""Where files are fetched from: an origin has a label for people and yields files as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class OriginError(Exception):
    """An origin did not give what was asked; the next one is tried."""


class Origin(NamedTuple):
    """One place in the network that keeps files under the names asked for."""

    label: str
    get: Callable[[Iterable[str]], Iterator[tuple[str, bytes]]]
    """For each name asked, the name to store the file under and its bytes; raises OriginError."""
