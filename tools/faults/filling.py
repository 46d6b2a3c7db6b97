"""Disks that are full or may not be written: the means by which :mod:`disk` makes them.

Limits and errors are made in the child (``first=`` of :func:`runs.start`); small disks and read-only ones are mounted
by root. Without root, :func:`mounted` says that it could not, and the caller tells it in the table.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from killing import at_changes

CAPABILITIES = 0x20080522
"""The version of the kernel's structures."""
OVERRIDE = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
PLENTY = "64m"


class CannotMountError(Exception):
    """This user or this machine may not mount."""


def limit(most: int) -> None:
    """From now on, no file of this process grows beyond so many bytes: what is written then fails with EFBIG."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def full_at(number: int, lasting: bool = True) -> None:
    """From now on, the n-th change of a file that takes room finds the disk full, and so do all later ones."""

    def refuse(count: int) -> None:
        if number and (count >= number if lasting else count == number):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    at_changes(refuse, takes_room=True)


def without_rights() -> None:
    """From now on, the modes of files hold for this process too: root gives up the right to override them."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        header, rights = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
        if libc.capget(header, rights):
            raise OSError(ctypes.get_errno(), "capget")
        for kind in (0, 1):  # effective and permitted
            rights[kind] &= ~OVERRIDE
        if libc.capset(header, rights):
            raise OSError(ctypes.get_errno(), "capset")


def closed(folder: Path) -> None:
    """Let nobody write in a folder and what is in it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def opened(folder: Path) -> None:
    """Let the owner write again."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of so many bytes (in whole pages) in an empty folder."""
    _call("mount", "-t", "tmpfs", "-o", f"size={size}", "vcl-faults", str(folder))
    try:
        yield
    finally:
        _call("umount", "-l", str(folder))


def with_room(folder: Path, size: str = PLENTY) -> None:
    """Give such a disk another size."""
    _call("mount", "-o", f"remount,size={size}", str(folder))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder as a file system that may not be written, for root too."""
    _call("mount", "--bind", str(folder), str(folder))
    try:
        _call("mount", "-o", "remount,ro,bind", str(folder))
        yield
    finally:
        _call("umount", "-l", str(folder))


def may_mount(folder: Path) -> str:
    """Nothing if disks can be mounted here; else the reason."""
    folder.mkdir(parents=True)
    try:
        with small_disk(folder, 2**16):
            pass
        with read_only(folder):
            pass
    except (CannotMountError, OSError) as why:
        return str(why)
    return ""


def _call(*words: str) -> None:
    end = subprocess.run(words, capture_output=True, text=True, check=False)
    if end.returncode:
        raise CannotMountError(end.stderr.strip().partition("\n")[0])
