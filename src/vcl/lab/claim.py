"""Locks a folder for one process, until the process releases it or ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from vcl.errors import VclError

LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
"""The system's locks, where it has any."""

MARKER = ".in-use"
"""The file that marks a claimed folder on systems that cannot lock folders."""

BUSY = (errno.EWOULDBLOCK, errno.EACCES)
TRIES = 100


@final
class Claim:
    """A folder that this process alone may use until it gives it back.

    The folder itself is locked, so nothing is left behind by a process that is killed. On a file system without such
    locks a marker is made in it, which only one process can make; that of a killed process must be deleted by hand.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is not there and claim it; raise OSError if that cannot be, VclError if it is taken."""
        self.folder, self.handle, self.marked = folder, -1, False
        for _ in range(TRIES):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self.handle = os.open(folder, os.O_RDONLY)
            except FileNotFoundError:  # another process has just removed it
                continue
            if not self._lock():
                self._mark()
            if self._same():
                return
            self.give_back()
        raise VclError(f"{folder} comes and goes while it is claimed; give --out another folder.")

    def give_back(self) -> None:
        """Let others have it."""
        if self.marked:
            (self.folder / MARKER).unlink(missing_ok=True)
        if self.handle >= 0:
            os.close(self.handle)
        self.handle, self.marked = -1, False

    def _lock(self) -> bool:
        """Whether it is locked now; False where it cannot be."""
        if LOCKS is None:
            return False
        try:
            LOCKS.flock(self.handle, LOCKS.LOCK_EX | LOCKS.LOCK_NB)
        except OSError as error:
            if error.errno not in BUSY:
                return False
            self.give_back()
            raise taken(self.folder, "") from error
        return True

    def _mark(self) -> None:
        marker = self.folder / MARKER
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError as error:
            self.give_back()
            raise taken(self.folder, f", or was killed there (then delete {marker})") from error
        self.marked = True

    def _same(self) -> bool:
        """Whether what was claimed is still what is found under that name."""
        try:
            return os.path.samestat(os.fstat(self.handle), self.folder.stat())
        except FileNotFoundError:
            return False


def taken(folder: Path, more: str) -> VclError:
    """The error for a folder that another process has."""
    return VclError(
        f"another vcl is at work in {folder}{more}; wait for it, or give --out another folder. Nothing was changed."
    )


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder for this process alone while it is in here; one clear sentence if that cannot be."""
    try:
        claim = Claim(folder)
    except OSError as error:
        raise VclError(
            f"cannot write to {folder} ({error.strerror}); give --out a folder that you may write."
        ) from error
    try:
        yield
    finally:
        claim.give_back()
