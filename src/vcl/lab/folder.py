"""A run's folder: settings as JSON, rows as CSV, every file written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from vcl.errors import VclError
from vcl.lab.claim import MARKER, Claim
from vcl.lab.results import Row, to_csv

ABOUT = "run.json"
ROWS = "rows.csv"
VALIDATION = "validation"
"""The folder within a folder that a sweep keeps its held-out rows in."""


class UnwritableError(VclError):
    """The disk or the system refused a write."""


class RunFolder:
    """The one place that writes a run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shares: dict[int, list[Row]] = {}
        self.parts: list[RunFolder] = []
        self.notes: list[str] = []
        self.made = False
        self.claim: Claim | None = None
        self.adding = Lock()

    @property
    def rows(self) -> list[Row]:
        """All rows so far, those of one place after those of another."""
        return [row for place in sorted(self.shares) for row in self.shares[place]]

    def create(self) -> None:
        """Claim the folder, refusing one that holds anything or that another process has, before any work starts.

        What a run left that was killed before its first row is removed.
        """
        try:
            if self.path.exists() and not self.path.is_dir():
                raise _occupied(self.path)
            self.made = self.made or not self.path.exists()
            self.claim = Claim(self.path)
            if not is_bare(self.path):
                self.release()
                raise _occupied(self.path)
            _clear(self.path)
        except OSError as error:
            raise _refused(self.path, error) from error
        write_atomic(self.path / ROWS, to_csv([]))

    def release(self) -> None:
        """Let other processes have the folder."""
        if self.claim is not None:
            self.claim.give_back()

    def part(self, name: str) -> RunFolder:
        """A folder within this one, for rows of another kind."""
        part = RunFolder(self.path / name)
        part.create()
        self.parts.append(part)
        return part

    def drop_if_bare(self) -> None:
        """Take back a folder that has no rows yet, so that a run that failed early is not in the way of the next."""
        for part in self.parts:
            part.drop_if_bare()
        if not self.rows and not any(part.rows for part in self.parts):
            with suppress(OSError):
                _clear(self.path)
                if self.made:
                    self.path.rmdir()
        self.release()

    def describe(self, about: dict[str, Any]) -> None:
        """Write what this run is, with what was noted."""
        notes = {"notes": self.notes} if self.notes else {}
        write_atomic(self.path / ABOUT, json.dumps({**about, **notes}, indent=2) + "\n")

    def note(self, line: str) -> None:
        """Keep a line that belongs with the numbers, once."""
        with self.adding:
            self.notes += [] if line in self.notes else [line]

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file beside the rows."""
        write_atomic_bytes(self.path / name, content)

    def add(self, rows: list[Row], place: int = 0, gone: Collection[tuple[str, int]] = ()) -> None:
        """Add the rows of one finished task; several at work at once have places, by which rows are ordered.

        Rows of runs (method and seed) that are ``gone`` leave: a mean over runs is over those that came to the end.
        """
        with self.adding:
            self.shares[place] = [row for row in (*self.shares.get(place, ()), *rows) if row[:2] not in gone]
            write_atomic(self.path / ROWS, to_csv(self.rows))


def new_under(parent: Path, stem: str) -> RunFolder:
    """A folder under ``parent`` that was not there before: ``stem``, or else ``stem``-1, ``stem``-2 and so on."""
    for number in range(1000):
        folder = RunFolder(parent / f"{stem}{f'-{number}' if number else ''}")
        try:
            folder.path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _refused(folder.path, error) from error
        folder.made = True
        return folder
    raise VclError(f"{parent / stem} and 999 more names like it are taken; give --out a folder of your own.")


def is_bare(path: Path) -> bool:
    """Whether a folder holds nothing, or only what a run makes before its first row."""
    return all(_is_early(each) for each in path.iterdir()) and not _rows_in(path / ROWS)


def _is_early(path: Path) -> bool:
    """Whether a file or folder is one that a run makes before its first row."""
    if path.name == VALIDATION and path.is_dir():
        return is_bare(path)
    if path.name == ABOUT:  # which comes after the rows' file, and says which command made it
        return path.with_name(ROWS).exists() and '"command": "vcl ' in path.read_text(errors="replace")
    return path.name in (ROWS, MARKER) or _is_temporary(path)


def _is_temporary(path: Path) -> bool:
    """Whether it is what a write that was killed left."""
    return path.name.startswith((f".{ROWS}.", f".{ABOUT}."))


def _rows_in(path: Path) -> bool:
    """Whether there is a file with anything but the names of the columns."""
    return path.exists() and path.read_text(errors="replace") not in ("", to_csv([]))


def _clear(path: Path) -> None:
    """Delete what a run makes before its first row, and what its killed writes left; nothing else."""
    for each in path.iterdir():
        if each.name == VALIDATION and each.is_dir() and is_bare(each):
            _clear(each)
            each.rmdir()
        elif _is_temporary(each):
            each.unlink()
    for name in (ABOUT, ROWS):
        (path / name).unlink(missing_ok=True)


def make_folder(path: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VclError(f"cannot make {path} ({error.strerror}); give --out a folder that you may write.") from error
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
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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


def _occupied(path: Path) -> VclError:
    return VclError(f"{path} already holds results; give --out a folder that is new or empty. Nothing was changed.")


def _refused(path: Path, error: OSError) -> UnwritableError:
    return UnwritableError(f"cannot write to {path} ({error.strerror}); give --out a folder that you may write.")
