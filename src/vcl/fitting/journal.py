"""What is done of one task, so that learning it again goes on where it stopped.

A fit is a function of its parameters, its data and the purpose of its randomness: nothing else is remembered between
fits. So it is enough to keep, by that purpose, the results of finished stages and the standing of a fit in progress.
Learning the task again then walks through the finished stages, which return what they returned and report what they
reported, and arrives at the fit in progress with the same bits.

A journal travels with the report that every fit is given. It knows no files: :attr:`Journal.write` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, final, runtime_checkable

from torch import Tensor

from vcl.fitting.progress import Progress, Report
from vcl.ops.rng import Rng


class Entry(NamedTuple):
    """One stage: its tensors by name, what it reported, and whether it is finished."""

    tensors: Mapping[str, Tensor]
    told: tuple[Progress, ...] = ()
    done: bool = True


Write = Callable[[Mapping[str, Entry]], None]


def never() -> bool:
    """No stage is ever saved."""
    return False


def nowhere(entries: Mapping[str, Entry]) -> None:
    """Keep nothing."""


@final
class Journal:
    """The stages of a task by name; ``due`` says when ``write`` saves them."""

    def __init__(
        self, entries: Mapping[str, Entry] | None = None, due: Callable[[], bool] = never, write: Write = nowhere
    ) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})
        self.due, self.write = due, write
        self.met: dict[str, int] = {}
        self.in_fit = False
        """Whether a fit is between its first step and its end, and will look at ``due`` after its next step."""

    def stage(self, what: str, rng: Rng) -> Stage:
        """The next stage of this name and purpose; the same in every run of the same task."""
        name = "/".join((*rng.purpose, what, *map(str, rng.seeds)))
        self.met[name] = self.met.get(name, 0) + 1
        return Stage(self, f"{name}#{self.met[name]}")


@final
class Stage:
    """A place in a journal."""

    def __init__(self, journal: Journal, name: str) -> None:
        self.journal, self.name = journal, name
        self.told: list[Progress] = []

    @property
    def entry(self) -> Entry | None:
        """What is known of it, from this process or an earlier one."""
        return self.journal.entries.get(self.name)

    def again(self, report: Report) -> None:
        """Report what an earlier process reported of it."""
        entry = self.entry
        for progress in () if entry is None else entry.told:
            self.told.append(progress)
            report(progress)

    def finish(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep its result, which nobody may write to afterwards; it is saved with the next stage that is."""
        self.journal.entries[self.name] = Entry(tensors, tuple(self.told))
        self.journal.in_fit = False
        if self.journal.due():
            self.journal.write(self.journal.entries)

    def tick(self, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """After each step: save where it stands if that is due."""
        self.journal.in_fit = True
        if self.journal.due():
            self._save(tensors)

    def tell(self, report: Report, progress: Progress, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """Report; whoever stops the work from within the report finds it saved."""
        self.told.append(progress)
        try:
            report(progress)
        except BaseException:
            with suppress(Exception):  # the reason to stop matters more
                self._save(tensors)
            raise

    def _save(self, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        now = Entry(tensors(), tuple(self.told), done=False)
        self.journal.write({**self.journal.entries, self.name: now})


@runtime_checkable
class Journalled(Protocol):
    """A report that carries a journal."""

    @property
    def journal(self) -> Journal:
        """Where stages of the task in progress are kept."""
        ...

    def __call__(self, progress: Progress) -> None:
        """Report."""
        ...


def journal_of(report: Report) -> Journal:
    """The journal that a report carries; else a new one, which is never saved."""
    return report.journal if isinstance(report, Journalled) else Journal()


def kept(
    report: Report, what: str, rng: Rng, like: Tensor, compute: Callable[[], Mapping[str, Tensor]]
) -> Mapping[str, Tensor]:
    """The tensors of a stage that reports nothing: from the journal, or computed and kept there; on the device of
    ``like``."""
    stage = journal_of(report).stage(what, rng)
    if stage.entry is None:
        # Contiguous, as they are when they are read: other strides may give products other bits.
        stage.finish({name: value.contiguous() for name, value in compute().items()})
    assert stage.entry is not None
    return {name: value.to(like.device) for name, value in stage.entry.tensors.items()}
