"""A dataset of four IDX files that is small enough to be made for a test."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vcl.lab.datasets.entry import LIMIT, DatasetEntry
from vcl.lab.datasets.fetch import Origin
from vcl.lab.datasets.idx_set import FILES, IdxFiles, idx_set


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


class Tiny:
    """A dataset of four IDX files, 12 + 6 images of 4x4 in three classes, and its entry."""

    name = "tiny"

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.train_x, self.test_x = (rng.integers(0, 256, (n, 4, 4), dtype=np.uint8) for n in (12, 6))
        self.train_y, self.test_y = np.arange(12) % 3, np.arange(6) % 3
        arrays = (self.train_x, self.train_y, self.test_x, self.test_y)
        self.content = dict(zip(FILES, map(idx_bytes, arrays), strict=True))

    def entry(self, origins: Sequence[Origin] = (), limit: int = LIMIT) -> DatasetEntry:
        hashes = IdxFiles(*(hashlib.sha256(content).hexdigest() for content in self.content.values()))
        return idx_set(self.name, "a tiny set", hashes, ("a", "b", "c"), origins, limit=limit)

    def write(self, data: Path, gz: bool = True, only: Sequence[str] = FILES) -> Path:
        folder = data / self.name
        folder.mkdir(parents=True, exist_ok=True)
        for file in only:
            content = self.content[file]
            (folder / (file + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)
        return data
