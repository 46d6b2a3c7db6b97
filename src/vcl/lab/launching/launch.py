"""Runs jobs to their end: those that are lost are started again, and continue from what they had saved."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, final

from rich.console import Console

from vcl.errors import VclError
from vcl.lab.compute import Elsewhere
from vcl.lab.launching.display import Display, displayed
from vcl.lab.launching.job import Job, jobs_of
from vcl.lab.launching.launcher import Launcher
from vcl.lab.launching.work import End
from vcl.lab.part import Part
from vcl.lab.reading import read_part
from vcl.lab.remote.mirror import Mirror
from vcl.lab.store import PART, Store
from vcl.learner.generations import Generations

TRIES = 3
"""How often a job may be lost in a row without getting further."""

AGAIN = "again"

PAUSE = 0.1
"""Seconds between two looks at the jobs."""


@final
@dataclass
class Standing:
    """A job and how it stands."""

    job: Job
    folder: Path
    mirror: Mirror | None = None
    lost: int = 0
    """How often in a row, without getting further."""
    reached: tuple[int, int] = (0, 0)
    handle: Any = None

    def look(self) -> tuple[int, int]:
        """Finished tasks, and the last save within the next one."""
        path = self.folder / PART
        numbers = Generations(self.folder, "").numbers()
        tasks = len(read_part(path).get("tasks", ())) if path.exists() else 0
        here = (tasks, numbers[0] if numbers else 0)
        there = None if self.mirror is None else self.mirror.standings().get(self.folder.name)
        return here if there is None else max(here, (there.tasks, there.journal))


def launched(launcher: Callable[[str], Launcher], data: Path | None, most: int | None) -> Elsewhere:
    """Computes parts as jobs of a launcher, each of up to ``most`` runs; ``data`` is the folder of --data.

    The launcher is made for the kind of device of the parts.
    """
    return partial(_launched, launcher, data, most)


def _launched(
    make: Callable[[str], Launcher], data: Path | None, most: int | None,
    parts: Sequence[Part], store: Store, console: Console, names: Sequence[str],
) -> None:  # fmt: skip
    if not parts:
        return
    with _closing(make(parts[0].plan.device.type)) as launcher:
        jobs = jobs_of(parts, store, names, data, launcher.slots, most)
        if jobs:
            launch(jobs, launcher, store, console)


@contextmanager
def _closing(launcher: Launcher) -> Iterator[Launcher]:
    try:
        yield launcher
    finally:
        launcher.close()


def launch(jobs: Sequence[Job], launcher: Launcher, store: Store, console: Console) -> None:
    """Run all jobs. One that fails does not stop the others; all failures are raised together at the end."""
    waiting = deque(Standing(job, store.root / job.folder, store.mirror) for job in jobs)
    running, failures = list[Standing](), list[str]()
    with displayed(console, len(jobs)) as display:
        try:
            while waiting or running:
                while waiting and len(running) < launcher.slots:
                    standing = waiting.popleft()
                    standing.handle = launcher.start(standing.job)
                    running.append(standing)
                for standing in list(running):
                    end, reached = launcher.end(standing.handle), standing.look()
                    display.job(standing.job, reached[0])
                    if end is None:
                        continue
                    running.remove(standing)
                    if (failure := _ended(standing, end, reached, display)) == AGAIN:
                        waiting.append(standing)
                    elif failure:
                        failures.append(failure)
                display.tick()
                sleep(PAUSE)
        finally:
            launcher.stop([standing.handle for standing in running])
    if failures:
        raise VclError(
            f"{len(failures)} of {len(jobs)} jobs failed, and what the others did is kept. {' '.join(failures)}"
        )


def _ended(standing: Standing, end: End, reached: tuple[int, int], display: Display) -> str:
    """Why a job failed; nothing if it is done, and :data:`AGAIN` if it is to be started again."""
    job = standing.job
    for line in end.said:
        display.say(line)
    if end.how == "lost":
        standing.lost = 1 if reached > standing.reached else standing.lost + 1
        standing.reached = reached
        if standing.lost < TRIES:
            display.lost(job, f"lost after {reached[0]} of {job.tasks} tasks, for {end.why}; it is started again")
            return AGAIN
    display.ended(job, end.how)
    if end.how == "done":
        return ""
    times = f"lost {TRIES} times in a row: " if end.how == "lost" else ""
    return f"{job.name}: {times}{end.why.rstrip('.')}."
