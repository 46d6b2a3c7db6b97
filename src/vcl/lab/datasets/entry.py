"""What a dataset is, and what the lab needs to know of one to find, check, read and fetch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcl.errors import VclError

Say = Callable[[str], None]

LIMIT = 64 * 2**20
"""The bytes that one file of a dataset may hold, unless its entry says otherwise."""


def silent(line: str) -> None:
    """Say nothing."""


class MissingData(VclError):  # noqa: N818 (it names what happened to the data, not a fault of the code)
    """A dataset that is not on this machine and could not be fetched."""


class Dataset(NamedTuple):
    """Images and labels, split once and for all into train and test."""

    name: str
    train_x: NDArray[np.uint8]
    """[N, H, W]"""
    train_y: NDArray[np.int64]
    """[N]"""
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]
    origin: str
    """One short line for people: where it came from."""


class Found(NamedTuple):
    """A dataset, or a part of it, in one place."""

    where: str
    files: tuple[Path, ...] = ()
    """Files, or folders of files; empty for data that another package carries."""
    lacking: tuple[str, ...] = ()
    """The names of the files that should be there too; a dataset is read only when this is empty."""


@dataclass(frozen=True)
class DatasetEntry:
    """Everything the lab knows of one dataset. Adding one is such an entry, and its name in `DATASETS`."""

    name: str
    about: str
    by_hand: str
    """What a person can do to have it where it cannot be fetched: ends the sentence 'to have it, …'."""
    find: Callable[[Path], Found | None]
    """What of it lies in a data folder; None if nothing does."""
    check: Callable[[Path], str]
    """Compare one found file with its known hash: a few words if it is good, a VclError if it is not."""
    read: Callable[[Found, Say], Dataset]
    """Read what was found whole, with every hash checked."""
    fetch: Callable[[Path, Say], str] | None = None
    """Bring the missing files into a data folder and name where they came from; None: cannot be fetched."""
    limit: int = LIMIT
    """The bytes that one of its files may hold, unpacked: what is larger is none of them."""
