"""Kills processes at random instants, or at a certain change of a file, and lets the same work go on."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import sleep
from typing import Any, NamedTuple

from runs import Child, Ended, Undisturbed, Work, run, start

TASK = re.compile(r"^(\S+): task (\d+) of (\d+)", re.MULTILINE)
"""What a process says when a task is finished and kept."""

CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link"})
ROOM = frozenset({"os.rename", "os.mkdir", "os.link"})
"""Those that a full disk can refuse, beside opening for writing and flushing."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
OPERATIONS = "operations"
"""A file beside the results: how many changes of files there were."""

TICK = 0.01
"""What the seconds of work are counted in."""

Strike = Callable[[int], object]
"""Kills a process, or some of its own."""


class Killed(NamedTuple):
    """Work that was killed some times and then brought to its end."""

    kills: int
    said: tuple[str, ...]
    """What each process said."""
    end: Ended
    """The last process's."""

    def lost(self, wanted: Undisturbed) -> str:
        """The finished tasks that were learned again, in one line. The last task is kept with the end of its part."""
        once, found = Counter(TASK.findall(wanted.said)), Counter(TASK.findall("\n".join(self.said)))
        again = [each for each, count in found.items() if count > max(1, once[each]) and each[1] != each[2]]
        return ", ".join(f"{method} learned task {task} again" for method, task, _ in again)

    def places(self) -> Counter[str]:
        """Where the processes that followed a kill went on, of those that lived to say it."""
        found = Counter[str]()
        for said in self.said[1:]:
            if "goes on within task" in said:
                found["within a task"] += 1
            elif "continues after task" in said:
                found["between tasks"] += 1
            elif "task 1 of" in said:
                found["at the start"] += 1
            elif "s in all" in said:
                found["after the last task"] += 1
        return found


def kill(pid: int) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def killed(
    work: Work, worked: float, folder: Path, rng: Random, most: int,
    strike: Strike = kill, after: Callable[[], object] = lambda: None, drawn: bool = False,
    first: Callable[[], object] | None = None,
) -> Killed:  # fmt: skip
    """Do work, killed up to ``most`` times at random instants, and then to its end.

    Instants are within the first ``worked`` seconds of work, as :attr:`runs.Child.worked` counts them.

    ``after`` is called after each kill, and ``first`` in each process before its work.
    """
    kills, said = 0, list[str]()
    while kills < most:
        child = start(work, folder, first, drawn)
        until(child, rng.uniform(0, worked))
        sleep(rng.uniform(0, TICK))
        struck = child.code is None
        if struck:
            strike(child.pid)
        end = child.wait()
        said.append(end.said)
        kills += struck
        if end.code not in (0, -signal.SIGKILL) or end.wrong:
            return Killed(kills, tuple(said), end)
        if end.code == 0:
            break
        after()
    end = run(work, folder, first, drawn=drawn)
    return Killed(kills, (*said, end.said), end)


def until(child: Child, worked: float) -> None:
    """Wait until a process has worked so long, or has ended."""
    while child.code is None and child.worked < worked:
        sleep(TICK / 4)


def kill_at(number: int) -> None:
    """From now on, kill this process before its n-th change of a file in the current folder."""
    at_changes(lambda count: kill(os.getpid()) if count == number else None)


def at_changes(act: Callable[[int], object], takes_room: bool = False) -> None:
    """From now on, call ``act`` with a number before each change of a file in the current folder; it may raise.

    Changes are: to open for writing, to flush to the disk, to rename, to remove, to make or remove a folder. With
    ``takes_room``, they are those which a full disk can refuse.
    """
    here, count = str(Path.cwd()), 0
    told = os.open(OPERATIONS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    changes = ROOM if takes_room else CHANGES

    def change() -> None:
        nonlocal count
        count += 1
        os.pwrite(told, b"%d" % count, 0)
        act(count)

    def heard(event: str, of: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(of[2], int) and of[2] & WRITING
        if (opened or event in changes) and isinstance(of[0], str | Path):
            path = os.path.join(here, of[0])  # noqa: PTH118 (an audit hook does as little as it can)
            if path.startswith(here + os.sep):
                change()

    sys.addaudithook(heard)
    sync = os.fsync

    def flushed(handle: int) -> None:
        change()
        sync(handle)

    os.fsync = flushed


def summary(all_killed: Sequence[Killed]) -> str:
    """How many kills, and where work went on."""
    places = sum((each.places() for each in all_killed), Counter[str]())
    kills = sum(each.kills for each in all_killed)
    went_on = ", ".join(f"{count} {place}" for place, count in places.most_common())
    return f"{kills} kills in {len(all_killed)} runs; the next process went on: {went_on}"
