"""The type of a dataset, and the entry by which the lab finds, checks, reads and fetches one."""

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
"""The default limit on the uncompressed size of one file, in bytes."""


def silent(line: str) -> None:
    """Ignore the line."""


class MissingData(VclError):  # noqa: N818 (it names what happened to the data, not a fault of the code)
    """A dataset that is not on this machine and could not be fetched."""


class Dataset(NamedTuple):
    """Images and labels with a fixed train/test split."""

    name: str
    train_x: NDArray[np.uint8]
    """[N, H, W]"""
    train_y: NDArray[np.int64]
    """[N]"""
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]
    origin: str
    """Where the data came from, as one short line for the user."""


class Found(NamedTuple):
    """The files of a dataset, all or some, in one place."""

    where: str
    files: tuple[Path, ...] = ()
    """Files, or folders of files; empty for data that ships with another package."""
    lacking: tuple[str, ...] = ()
    """The names of missing files; a dataset is read only if there are none."""


@dataclass(frozen=True)
class DatasetEntry:
    """All that the lab needs to know about one dataset. To add one, write an entry and list it in `DATASETS`."""

    name: str
    about: str
    by_hand: str
    """How to get it by hand if it cannot be fetched; completes the sentence 'to have it, …'."""
    find: Callable[[Path], Found | None]
    """Its files in a data folder; None if there are none."""
    check: Callable[[Path], str]
    """Compares one found file with its known hash; returns a few words, or raises VclError if they differ."""
    read: Callable[[Found, Say], Dataset]
    """Reads a complete dataset and checks every known hash."""
    fetch: Callable[[Path, Say], str] | None = None
    """Fetches the missing files into a data folder and returns their origin; None if it cannot be fetched."""
    classes: int | None = None
    """The number of classes, if known before loading."""
    limit: int = LIMIT
    """The limit on the uncompressed size of one file, in bytes. Larger files are rejected."""
