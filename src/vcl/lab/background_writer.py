"""Writes large files in a thread while the computation continues."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, final

from torch import Tensor

from vcl.lab.folder import write_atomic_bytes
from vcl.lab.sums import sealed

SMALL = 2**26
"""Tensors below this total size in bytes are written without the thread."""


@final
class BackgroundWriter:
    """Writes tensors to files in the order given, large ones in a thread.

    On exit it waits for the last file, even after an error or an interrupt, so all files are then on disk.
    """

    def __init__(self, of: str = "") -> None:
        """``of`` is what the tensors belong to (:func:`vcl.lab.sums.owner`)."""
        self.of = of
        self.writer = ThreadPoolExecutor(1)
        self.last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.writer.shutdown(wait=True)
        if error is None:
            self._wait()

    def __call__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write ``tensors``, which must not change afterwards. Raises the previous write's error, if any."""
        self._wait()
        small = sum(value.nbytes for value in tensors.values()) < SMALL
        if small:
            _write(path, tensors, self.of)
        else:
            self.last = self.writer.submit(_write, path, tensors, self.of)

    @property
    def idle(self) -> bool:
        """Whether every file given so far is on disk."""
        return self.last is None or (self.last.done() and self.last.exception() is None)

    def _wait(self) -> None:
        if self.last is not None:
            last, self.last = self.last, None
            last.result()


def _write(path: Path, tensors: Mapping[str, Tensor], of: str) -> None:
    write_atomic_bytes(path, sealed(tensors, of))
