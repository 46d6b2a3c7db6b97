"""A clock that jumps by days at every look, and files whose times lie years ahead or back.

The rows must be the same, and saves must still happen: time between two of them is counted by a clock that only runs
forward. A trial whose clock did not jump is an error of this file.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC
from functools import partial
from pathlib import Path
from random import Random

from killing import killed
from outcome import Outcome, Result
from runs import OUT, Child, Undisturbed, line_of, run, start, undisturbed

DAY = 86400.0
WAYS = {"forward": (0.0, 400.0), "back": (-400.0, 0.0), "either way": (-400.0, 400.0)}
"""Between which days each look at the clock is moved from the last."""
LONG = line_of("vcl-random", "split-digits", "--save-every 0.05").replace("epochs=3", "epochs=60")
"""Long enough for saves by time."""
KILLS = 3


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """Jumps in a run, over kills, and of the times of files."""
    rng = Random(seed)
    line = line_of("vcl-random", "split-digits", "--save-every 0")
    wanted = undisturbed(line, folder / "whole")
    for way in ("back",) if short else WAYS:
        yield from jumps(way, line, wanted, folder / way, rng, short)
    if short:
        return
    long = undisturbed(LONG, folder / "whole, long")
    for way in WAYS:
        yield saves(way, long, folder / f"{way}, long", rng)
    for years in (30, -30):
        yield moved_files(years, line, wanted, folder / f"{years} years", rng)


def jumps(way: str, line: str, wanted: Undisturbed, folder: Path, rng: Random, short: bool) -> Iterator[Outcome]:
    """A whole run under such a clock, and one that is killed and goes on."""
    fault = f"a clock that jumps, {way}"
    first = partial(jumping, WAYS[way], rng.random())
    end = run(line, folder / "run", first, drawn=False)
    check_jumped(folder / "run" / OUT)
    yield wanted.judged(fault, end, folder / "run")
    if not short:
        of_trial = killed(line, wanted.worked, folder / "killed", rng, KILLS, first=first)
        yield wanted.judged(f"{fault}, with SIGKILL", of_trial.end, folder / "killed")


def saves(way: str, wanted: Undisturbed, folder: Path, rng: Random) -> Outcome:
    """A run that saves by time under such a clock: it does, and not at every step."""
    fault = f"saves by time under a clock that jumps, {way}"
    child = start(LONG, folder, partial(jumping, WAYS[way], rng.random()), drawn=False)
    count = highest(child, folder / OUT)
    outcome = wanted.judged(fault, child.wait(), folder, f"{count} saves")
    return outcome if count else outcome._replace(result=Result.LOST, note="nothing was saved within a task")


def highest(child: Child, out: Path) -> int:
    """The highest number of a save within a task that was seen while a process lived."""
    seen = 0
    while child.code is None:
        numbers = [int(path.stem.removeprefix("journal-")) for path in out.glob("parts/*/journal-*.json")]
        seen = max([seen, *numbers])
        time.sleep(0.005)
    return seen


def moved_files(years: int, line: str, wanted: Undisturbed, folder: Path, rng: Random) -> Outcome:
    """After each kill, the times of all files are moved by years."""
    fault = f"times of files {abs(years)} years {'ahead' if years > 0 else 'back'}, with SIGKILL"

    def move() -> None:
        there = time.time() + years * 365 * DAY
        for path in (folder / OUT).rglob("*"):
            os.utime(path, (there, there))

    of_trial = killed(line, wanted.worked, folder, rng, KILLS, after=move)
    return wanted.judged(fault, of_trial.end, folder)


def jumping(days: tuple[float, float], seed: float) -> None:
    """From now on, each look at the clock is days away from the last."""
    rng, true, moved = Random(seed), time.time, 0.0

    def shifted() -> float:
        nonlocal moved
        moved += rng.uniform(*days) * DAY
        return true() + max(-50 * 365 * DAY, min(moved, 50 * 365 * DAY))

    class Jumping(datetime.datetime):
        """A datetime of the clock that jumps."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Jumping:
            """The time by the clock that jumps."""
            return cls.fromtimestamp(shifted(), tz)

    replace_everywhere(time.time, shifted)
    replace_everywhere(datetime.datetime, Jumping)
    time.time, datetime.datetime = shifted, Jumping  # type: ignore[misc]


def replace_everywhere(value: object, by: object) -> None:
    """Replace a value in all modules of vcl that have imported it."""
    for name, module in list(sys.modules.items()):
        if name == "vcl" or name.startswith("vcl."):
            for each in [each for each, there in vars(module).items() if there is value]:
                setattr(module, each, by)


def check_jumped(out: Path) -> None:
    """Raise RuntimeError unless what was written has the time of a clock that jumped."""
    (path,) = out.glob("parts/*/part.json")
    known = json.loads(path.read_text())
    begun, written = (datetime.datetime.fromisoformat(known[name]) for name in ("started", "written"))
    if abs(written - begun) < datetime.timedelta(days=1) or written.tzinfo is not UTC:
        raise RuntimeError(f"the clock did not jump: {begun}, {written}")
