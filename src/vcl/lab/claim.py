"""Locks a folder for one process until the process releases it or ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any, final

from vcl.errors import VclError

LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
"""The system's file locks; None if it has none."""

MARKER = ".in-use"
"""The file that marks a claimed folder on systems that cannot lock folders."""

BUSY = (errno.EWOULDBLOCK, errno.EACCES)
TRIES = 100
PAUSE = 0.2
"""Seconds between two attempts to lock a folder."""


class TakenError(VclError):
    """Another process has locked the folder."""


@final
class Claim:
    """A folder that only this process may use, until it gives it back.

    The lock is on the folder itself, so a killed process leaves nothing behind. A file system without such locks gets a
    marker file instead, which only one process can create; a killed process's marker must be deleted by hand.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folder if needed and lock it. Raises OSError if that fails, VclError if another process has it."""
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
        """Release the folder."""
        if self.marked:
            (self.folder / MARKER).unlink(missing_ok=True)
        if self.handle >= 0:
            os.close(self.handle)
        self.handle, self.marked = -1, False

    def _lock(self) -> bool:
        """Lock the folder; False if locks are unsupported. Raises TakenError if another process has it."""
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
        """Whether the path still leads to the folder that was opened."""
        try:
            return os.path.samestat(os.fstat(self.handle), self.folder.stat())
        except FileNotFoundError:
            return False


def taken(folder: Path, more: str) -> TakenError:
    """The error for a folder that another process has locked."""
    return TakenError(
        f"another vcl is at work in {folder}{more}; wait for it, or give --out another folder. Nothing was changed."
    )


@contextmanager
def claimed(folder: Path, wait: float = 0.0) -> Iterator[None]:
    """Lock the folder for this process inside the context. Raises VclError if that fails.

    Waits up to ``wait`` seconds for a folder that another process has locked.
    """
    began = monotonic()
    try:
        while True:
            try:
                claim = Claim(folder)
                break
            except TakenError:
                if monotonic() - began >= wait:
                    raise
                sleep(PAUSE)
    except OSError as error:
        raise VclError(
            f"cannot write to {folder} ({error.strerror}); give --out a folder that you may write."
        ) from error
    try:
        yield
    finally:
        claim.give_back()
