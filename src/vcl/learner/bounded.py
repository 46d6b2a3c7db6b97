"""Reads whole files whose size is checked first, so that no file can take more memory than the machine has."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def memory() -> int:
    """The bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system without these names
        return 2**63


def read_bounded(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The bytes of a file; ValueError if it has more than ``most``, or more than the machine has memory.

    A file may say that it is as large as it likes: one with a hole takes no room on the disk. A pipe or a device, of
    which nobody knows the size, is refused too.
    """
    limit = memory() if most is None else min(most, memory())
    about = Path(path).stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("it is no plain file")
    if about.st_size > limit:
        raise ValueError(f"it has {about.st_size:,} bytes, and at most {limit:,} are read")
    with Path(path).open("rb") as file:
        return file.read(about.st_size)
