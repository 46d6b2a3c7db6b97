"""Shows all jobs: a bar for each that runs and one for all on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from vcl.lab.console import say_on
from vcl.lab.launching.job import Job
from vcl.lab.launching.work import How

EVERY = 60.0
"""Seconds between two lines on what runs."""


class Display(Protocol):
    """Receives what jobs do."""

    def job(self, job: Job, tasks: int) -> None:
        """A job that runs has finished so many tasks."""

    def lost(self, job: Job, why: str) -> None:
        """A job waits again."""

    def ended(self, job: Job, how: How) -> None:
        """A job has ended."""

    def say(self, line: str) -> None:
        """A line for the user."""

    def tick(self) -> None:
        """A moment has passed."""


@contextmanager
def displayed(console: Console, jobs: int) -> Iterator[Display]:
    """Bars if the console is a terminal, else lines."""
    if not console.is_terminal:
        yield _Lines(console, jobs)
        return
    columns = (TextColumn("{task.description:<44}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        yield _Bars(bars, jobs)


class _Lines:
    def __init__(self, console: Console, jobs: int) -> None:
        self.console, self.jobs, self.done, self.running = console, jobs, 0, dict[str, str]()
        self.last = monotonic()

    def job(self, job: Job, tasks: int) -> None:
        self.running[job.folder] = f"{job.name} ({tasks} of {job.tasks} tasks)"

    def lost(self, job: Job, why: str) -> None:
        self.running.pop(job.folder, None)
        self.say(f"{job.name}: {why}")

    def ended(self, job: Job, how: How) -> None:
        self.running.pop(job.folder, None)
        self.done += 1
        self.say(f"{job.name}: {how}; {self.done} of {self.jobs} jobs have ended")

    def say(self, line: str) -> None:
        say_on(self.console, line)

    def tick(self) -> None:
        if monotonic() - self.last >= EVERY:
            self.last = monotonic()
            self.say(f"{self.done} of {self.jobs} jobs have ended; running: {', '.join(self.running.values())}")


class _Bars:
    def __init__(self, bars: Progress, jobs: int) -> None:
        self.bars, self.all, self.running = bars, bars.add_task("jobs", total=jobs), dict[str, TaskID]()

    def job(self, job: Job, tasks: int) -> None:
        if job.folder not in self.running:
            self.running[job.folder] = self.bars.add_task(f"  {job.name}: tasks", total=job.tasks)
        self.bars.update(self.running[job.folder], completed=tasks)

    def lost(self, job: Job, why: str) -> None:
        self.bars.remove_task(self.running.pop(job.folder))
        self.say(f"{job.name}: {why}")

    def ended(self, job: Job, how: How) -> None:
        self.bars.remove_task(self.running.pop(job.folder))
        self.bars.advance(self.all)

    def say(self, line: str) -> None:
        say_on(self.bars.console, line)

    def tick(self) -> None:
        """The bars draw themselves."""
