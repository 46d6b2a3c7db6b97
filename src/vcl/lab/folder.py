"""Folders for results, and files that are written atomically."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

from vcl.errors import VclError
from vcl.lab.claim import MARKER, claimed
from vcl.learner.bounded import read_bounded

PART, NOW = "part.json", "now.json"
MOST_JSON = 2**26
"""The most bytes of a part.json that are read."""
ABANDONED = 3600.0
"""Seconds after which a temporary file belongs to no process that still writes it."""


class UnwritableError(VclError):
    """The disk or the system refused a write."""


def new_under(parent: Path, stem: str) -> Path:
    """A folder under ``parent`` that did not exist: ``stem``, or else ``stem``-1, ``stem``-2 and so on."""
    for number in range(1000):
        folder = parent / f"{stem}{f'-{number}' if number else ''}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _refused(folder, error) from error
        return folder
    raise VclError(f"{parent / stem} and 999 more names like it are taken; give --out a folder of your own.")


@contextmanager
def results_folder(path: Path) -> Iterator[Path]:
    """A folder for results: new, empty, or one that has parts. It is removed again if it ends up without any.

    A folder with anything else in it is refused before any work starts.
    """
    made = not path.exists()
    if not made and not path.is_dir():
        raise VclError(f"{path} is a file; give --out a folder. Nothing was changed.")
    parts = path / "parts"
    if not made and not parts.is_dir() and any(path.iterdir()):
        raise VclError(
            f"{path} already holds files, and they are not results of this version; give --out a folder that is new, "
            "empty, or made by `vcl run`. Nothing was changed."
        )
    if not os.access(make_folder(path), os.W_OK):
        raise VclError(f"cannot write to {path} (Permission denied); give --out a folder that you may write.")
    try:
        yield path
    finally:
        for folder in list(parts.glob("*")):
            with suppress(OSError, ValueError, VclError):  # a part that another process computes is that process's
                _remove_bare(folder)
        for folder in (parts, *((path,) if made else ())):
            with suppress(OSError):  # only an empty folder can be removed
                folder.rmdir()


def _remove_bare(folder: Path) -> None:
    """Remove the folder of a stack that has no rows and is not at work."""
    with claimed(folder):
        remove_unfinished(folder)
        files = {file.name for file in folder.iterdir()} - {MARKER}
        bare = files - {NOW} == {PART}  # a heartbeat is of the process that was killed
        if bare and '"finished": false' in read_bounded(folder / PART, MOST_JSON).decode(errors="replace"):
            for file in files:
                (folder / file).unlink()
        with suppress(OSError):  # while it is locked; a marker goes first
            folder.rmdir()
    if folder.exists():
        folder.rmdir()


def remove_unfinished(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote; the caller has claimed the folder."""
    for file in folder.glob(".*.tmp"):
        file.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files that are too old to be of a process that still writes; nobody need have claimed these."""
    for file in folder.glob(".*.tmp"):
        with suppress(OSError):
            if time() - file.stat().st_mtime > ABANDONED:
                file.unlink(missing_ok=True)


def make_folder(path: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(path, error, "make") from error
    return path


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` so that a reader, or a crash, finds the old file or the new one and nothing between."""
    write_atomic_bytes(path, text.encode())


def write_atomic_bytes(path: Path, content: bytes) -> None:
    """The same for bytes."""
    try:
        _write(path, content)
    except OSError as error:
        raise _refused(path.parent, error) from error


def write_new(path: Path, content: bytes) -> None:
    """Write a file that was not there, whole or not at all; :func:`check_new` says earlier what is wrong with it."""
    check_new(path, path.name)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))  # of two at once, one has the name
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise _refused(path.parent, error) from error
    try:
        write_atomic_bytes(path, content)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def check_new(path: Path, such: str, ending: str = "") -> None:
    """Raise one clear sentence unless ``path``, given as --out, can be a new file, ``such`` as this, so ending."""
    if path.is_dir():
        raise VclError(f"--out is {path}, which is a folder; give a file, such as {path / such}.")
    if not path.name.lower().endswith(ending):
        raise VclError(f"--out is {path}; give a name that ends in {ending}.")
    if not path.parent.is_dir():
        raise VclError(f"--out is {path}, but {path.parent} is not a folder; give a file in a folder that exists.")
    if path.exists() or path.is_symlink():
        raise _exists(path)
    if not os.access(path.parent, os.W_OK):
        raise VclError(f"--out is {path}, but nothing may be written in {path.parent}; give a file in another folder.")


def _exists(path: Path) -> VclError:
    return VclError(f"--out is {path}, which exists; give a new name, or delete it first.")


def _write(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _refused(path: Path, error: OSError, what: str = "write to") -> UnwritableError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    mend = (
        "make room there, or give --out a folder on another disk" if full else "give --out a folder that you may write"
    )
    return UnwritableError(f"cannot {what} {path} ({error.strerror}); {mend}.")
