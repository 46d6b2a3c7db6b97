"""Follows folders of results that other processes write, and makes their page again when something has changed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import NamedTuple, final

from rich.console import Console

from vcl.errors import VclError
from vcl.lab.paper.published import items_in
from vcl.lab.report.folders import page_of
from vcl.lab.show import ROWS
from vcl.lab.store import PARTS
from vcl.pages import Page

READ = ("*.json", "*.csv", "pictures.safetensors")
"""The files that a page is made of."""

REST = 3.0
"""A page is not made again before this many times the time that it took have passed."""


class Seen(NamedTuple):
    """A page, what tells it from earlier ones, and a sentence where the newest state could not be read."""

    version: str
    page: Page
    fault: str = ""


@final
class Following:
    """The newest page of folders, which may not be there yet. Threads may share it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders, self.lock = tuple(folders), Lock()
        self.state, self.seen, self.rested = "", Seen("", _waiting(self.folders)), 0.0

    def now(self) -> Seen:
        """The page of what is on disk now; the last one that could be made, if a file cannot be read."""
        with self.lock:
            state = state_of(self.folders)
            if state != self.state and monotonic() >= self.rested:
                began = monotonic()
                self.seen, self.state = self._made(state), state
                self.rested = monotonic() + REST * (monotonic() - began)
            return self.seen

    def _made(self, state: str) -> Seen:
        there = [folder for folder in self.folders if _begun(folder)]
        if not there:
            return Seen(state, _waiting(self.folders))
        said = io.StringIO()
        try:
            page = page_of(there, Console(file=said, markup=False, emoji=False, width=10_000), live=True)
        except (VclError, OSError) as error:  # such as a part that was deleted meanwhile
            return Seen(state, self.seen.page, f"The folder cannot be read now: {error}")
        missing = [str(folder) for folder in self.folders if folder not in there]
        more = [f"Waiting for {' and '.join(missing)}."] if missing else []
        return Seen(state, replace(page, lead=" ".join([page.lead, *more, *said.getvalue().splitlines()])))


def state_of(folders: Sequence[Path]) -> str:
    """A digest that changes when a file changes that a page is made of."""
    found = [
        (str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
        for folder in folders
        for path in sorted(_files(folder))
        if (stat := _stat(path)) is not None
    ]
    return sha256(repr(found).encode()).hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    for inner in ("", "*/", f"{PARTS}/*/"):
        for name in READ:
            yield from folder.glob(inner + name)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # deleted meanwhile
        return None


def _begun(folder: Path) -> bool:
    """Whether there is something to show."""
    return any(folder.glob(f"{PARTS}/*/part.json")) or (folder / ROWS).is_file() or any(items_in(folder))


def _waiting(folders: Sequence[Path]) -> Page:
    names = " and ".join(str(folder) for folder in folders)
    return Page(
        title=f"Results: {', '.join(folder.name or str(folder) for folder in folders)}",
        lead=f"Nothing is in {names} yet. This page shows results as soon as a run writes there.",
        footer="Made by vcl watch.",
    )
