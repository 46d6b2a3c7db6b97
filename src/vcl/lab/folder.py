"""A run's folder: settings as JSON, rows as CSV, every file written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from vcl.errors import VclError
from vcl.lab.results import Row, to_csv

ABOUT = "run.json"
ROWS = "rows.csv"


class RunFolder:
    """The one place that writes a run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shares: dict[int, list[Row]] = {}
        self.parts: list[RunFolder] = []
        self.notes: list[str] = []
        self.made = False
        self.adding = Lock()

    @property
    def rows(self) -> list[Row]:
        """All rows so far, those of one place after those of another."""
        return [row for place in sorted(self.shares) for row in self.shares[place]]

    def create(self) -> None:
        """Make the folder, refusing one that holds anything, before any work starts."""
        try:
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise VclError(
                    f"{self.path} already holds other results; give --out a folder that is new or empty. "
                    "Nothing was changed."
                )
            self.made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _refused(self.path, error) from error
        write_atomic(self.path / ROWS, to_csv([]))

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
                for name in (ROWS, ABOUT):
                    (self.path / name).unlink(missing_ok=True)
                if self.made:
                    self.path.rmdir()

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

    def add(self, rows: list[Row], place: int = 0) -> None:
        """Add the rows of one finished task; several at work at once have places, by which rows are ordered."""
        with self.adding:
            self.shares.setdefault(place, []).extend(rows)
            write_atomic(self.path / ROWS, to_csv(self.rows))


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


def _refused(path: Path, error: OSError) -> VclError:
    return VclError(f"cannot write to {path} ({error.strerror}); give --out a folder that you may write.")
