"""Saves a journal every few minutes, and when a signal ends the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import final

from vcl.errors import NonFiniteError, OutOfMemoryError, VclError
from vcl.fitting.journal import Entry, Journal
from vcl.fitting.progress import Progress, Report
from vcl.learner.generations import Generations
from vcl.learner.interrupts import Stop, delayed

EVERY = 180.0
"""Seconds between two saves."""

SHARE = 0.01
"""The most of the time that goes into saving, unless every step is saved."""


def nothing() -> None:
    """Do nothing."""


@final
class Saver:
    """Makes the journals of a series of tasks, one after another, in one folder."""

    def __init__(
        self, folder: Path, every: float, say: Callable[[str], None], after: Callable[[], None] = nothing
    ) -> None:
        """``after`` is called after each save, and its time counts as the save's."""
        check_every(every)
        self.folder, self.every, self.say, self.after = folder, every, say, after
        self.files = Generations(folder, "")
        self.journal = Journal()
        self.stop = Stop(lambda: False)
        self.last, self.wait = monotonic(), every
        self.saved: set[str] = set()
        """The finished stages on disk."""

    def begin(self, identity: str) -> Journal:
        """The journal of a task, with what an earlier process did of it."""
        self.files = Generations(self.folder, identity)
        found = self.files.read()
        for line in found.damaged:
            self.say(line)
        self.journal = Journal(found.entries, self.due, self.write)
        self.saved = finished(found.entries)
        return self.journal

    def due(self) -> bool:
        """Whether it is time to save."""
        return self.stop.asked is not None or monotonic() - self.last >= self.wait

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Save, and then stop if a signal asked for it. Work goes on where the disk takes no more, which is said."""
        began = monotonic()
        try:
            self.files.write(entries)
            self.saved = finished(entries)
        except OSError as error:
            self.say(f"cannot save to {self.folder} ({error.strerror}): the work goes on, and what was saved is kept")
        else:
            self.after()
        self.last = monotonic()
        self.wait = max(self.every, (self.last - began) / SHARE) if self.every else 0.0
        self.stop.now()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Within, signals wait for the end of a step, and finished stages are saved where they do not."""
        with delayed(lambda: self.journal.in_fit) as self.stop:
            try:
                yield
            except (KeyboardInterrupt, SystemExit):
                # A fit that was left within a step has no standing; what was last saved of it is better than nothing.
                entries = self.journal.entries
                if not self.journal.in_fit and not finished(entries) <= self.saved:
                    self.write(entries)
                raise
            except OutOfMemoryError:
                if not finished(self.journal.entries) <= self.saved:
                    with suppress(MemoryError, RuntimeError):  # saving takes memory too
                        self.write(self.journal.entries)
                raise
            except NonFiniteError:
                # What is saved of the task may hold what diverged; the last good state is the one before the task.
                with suppress(OSError):
                    self.files.drop()
                raise


@final
class JournalledReport:
    """A report that carries the journal of the task in progress."""

    def __init__(self, report: Report, saver: Saver) -> None:
        self.report, self.saver = report, saver

    @property
    def journal(self) -> Journal:
        """The saver's."""
        return self.saver.journal

    def __call__(self, progress: Progress) -> None:
        """Report."""
        self.report(progress)


def as_folder(path: str | PathLike[str]) -> Path:
    """A folder for a journal: new, or any that is there; VclError for a file."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise VclError(f"checkpoint is {folder}, which is a file; give a folder.")
    return folder


def finished(entries: Mapping[str, Entry]) -> set[str]:
    """The names of those that are finished."""
    return {name for name, entry in entries.items() if entry.done}


def check_every(every: float) -> None:
    """Raise VclError unless ``every`` is a number of seconds."""
    if not 0 <= every < inf:
        raise VclError(f"the seconds between two saves are {every}; give 0 (after every step) or more, such as 180.")
