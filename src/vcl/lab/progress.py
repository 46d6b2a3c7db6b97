"""Progress reports: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vcl.fitting.loop import Progress as Epoch
from vcl.fitting.loop import Report
from vcl.lab.results import final_score, methods
from vcl.lab.runner import FinishedTask


class Watch(Protocol):
    """Receives the progress of a running method."""

    def begin(self, method: str, tasks: int) -> None:
        """A method starts."""
        ...

    def epoch(self, epoch: Epoch) -> None:
        """An epoch of a fit has ended."""
        ...

    def task(self, done: FinishedTask) -> None:
        """A task has been learned and evaluated."""
        ...


@contextmanager
def watching(console: Console, lines: bool = False) -> Iterator[Watch]:
    """Bars if the console is a terminal; lines otherwise, or if ``lines`` is set because several methods run."""
    if lines or not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description:<34}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


class _Lines:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: list[float] = []

    def begin(self, method: str, tasks: int) -> None:
        self.seconds = []

    def epoch(self, epoch: Epoch) -> None:
        if epoch.note and epoch.epoch == epoch.epochs:
            self.console.print(f"{epoch.what}: {epoch.note}", highlight=False, soft_wrap=True)

    def task(self, done: FinishedTask) -> None:
        self.seconds.append(done.seconds)
        left = sum(self.seconds) / len(self.seconds) * (done.tasks - done.number)
        tail = f", about {left:.0f} s left" if done.number < done.tasks else ""
        self.console.print(f"{summary_line(done)}{tail}", highlight=False, soft_wrap=True)


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.method = bars.add_task("", total=1, visible=False)
        self.fit = bars.add_task("", total=1, visible=False)
        self.what = ""

    def begin(self, method: str, tasks: int) -> None:
        self.bars.reset(self.method, total=tasks, description=f"{method}: tasks", visible=True)

    def epoch(self, epoch: Epoch) -> None:
        if epoch.epoch == 1 or epoch.what != self.what:
            self.what = epoch.what
            self.bars.reset(self.fit, total=epoch.epochs, description=f"  {epoch.what}: epochs", visible=True)
        self.bars.update(self.fit, completed=epoch.epoch)
        if epoch.note and epoch.epoch == epoch.epochs:
            self.bars.console.print(f"{epoch.what}: {epoch.note}", highlight=False, soft_wrap=True)

    def task(self, done: FinishedTask) -> None:
        self.bars.update(self.method, completed=done.number)
        self.bars.console.print(summary_line(done), highlight=False, soft_wrap=True)


@final
class Together:
    """Several that watch one method."""

    def __init__(self, *watches: Watch) -> None:
        self.watches = watches

    def begin(self, method: str, tasks: int) -> None:
        """A method starts."""
        for each in self.watches:
            each.begin(method, tasks)

    def epoch(self, epoch: Epoch) -> None:
        """An epoch of a fit has ended."""
        for each in self.watches:
            each.epoch(epoch)

    def task(self, done: FinishedTask) -> None:
        """A task has been learned and evaluated."""
        for each in self.watches:
            each.task(done)


def both(one: Report, other: Report) -> Report:
    """A report that calls two others."""

    def report(epoch: Epoch) -> None:
        one(epoch)
        other(epoch)

    return report


def summary_line(done: FinishedTask) -> str:
    """One line for a finished task; for a grid of lambdas, with the best so far."""
    score = done.score
    if not done.rows:
        return f"{done.method}: task {done.number} of {done.tasks} ({done.task}) in {done.seconds:.1f} s, no test data"
    now = {name: final_score(done.rows, name, score.metric) for name in methods(done.rows)}
    best = max(now, key=lambda name: now[name].mean)
    which = f" with {best}, the best of {len(now)}" if len(now) > 1 else ""
    return (
        f"{done.method}: task {done.number} of {done.tasks} ({done.task}) in {done.seconds:.1f} s, "
        f"{score.name} so far {score.text(now[best].mean, now[best].error)}{which}"
    )
