"""Two hundred tasks in one run on digits, with SIGKILL at random instants all through it.

Two methods: one keeps a coreset, one Kronecker factors. The rows and all else that is kept must be the undisturbed
run's, byte for byte, no finished task may be learned again, and memory must stay flat: what a process holds grows by
the coreset, the test data of old tasks (which every evaluation needs) and the rows, and not by more than ``FLAT``.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import sleep
from typing import NamedTuple

from killing import TASK, kill, until
from outcome import Outcome, Result
from runs import OUT, Child, Undisturbed, kept, line_of, run, start

TASKS, KILLS = 200, 12
SHORT_TASKS, SHORT_KILLS = 8, 2
LONG = 2_400.0
"""Seconds after which a process is taken to hang."""
SETTLED = 10
"""The task after which a process has loaded all that it ever loads."""
FLAT = 64 * 2**20
"""The most bytes that a process may grow by from then on."""
OWN = {
    "vcl-random": "--set coreset=2 --set coreset_epochs=1",
    "ewc-kron": "",
}


class Soaked(NamedTuple):
    """An undisturbed run, and the bytes that its process held after each task."""

    wanted: Undisturbed
    held: list[int]


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """Each method, undisturbed and killed again and again."""
    rng = Random(seed)
    tasks, kills = (SHORT_TASKS, SHORT_KILLS) if short else (TASKS, KILLS)
    for method in list(OWN)[:1] if short else OWN:
        line = line_of(method, "permuted-digits", OWN[method])
        for old, new in (("--seeds 2", "--seeds 1"), ("tasks=2", f"tasks={tasks}"), ("epochs=3", "epochs=1")):
            line = line.replace(old, new)
        line = line.replace("batch=8", "batch=20")
        soaked = undisturbed(line, folder / method / "whole")
        yield flat(method, soaked.held, tasks)
        yield from disturbed(method, line, soaked.wanted, kills, folder / method / "killed", rng)


def undisturbed(line: str, folder: Path) -> Soaked:
    """The run, looked at while it works."""
    child, held, worked, latest = start(line, folder, drawn=False), list[int](), 0.0, 0
    while child.code is None:
        worked, latest = max(worked, child.worked), resident(child) or latest
        done = len(TASK.findall(child.said()))
        held += [latest] * (done - len(held))
        sleep(0.02)
    end = child.wait(1.0)
    held += [latest] * (len(TASK.findall(end.said)) - len(held))  # it may end before the last task was seen
    if end.code:
        raise RuntimeError(f"the undisturbed run ended with {end.code}: {end.said[-2000:]}")
    return Soaked(Undisturbed(kept(folder / OUT), worked, end.said), held)


def resident(child: Child) -> int:
    """The bytes of memory that a process holds; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def flat(method: str, held: list[int], tasks: int) -> Outcome:
    """Whether memory is flat from the tenth task (in short, the first) on."""
    fault = f"memory over {tasks} tasks"
    begun = min(SETTLED, len(held) // 2) - 1
    grown = max(held[begun:]) - held[begun]
    shown = sorted({begun + 1, len(held) // 4, len(held) // 2, 3 * len(held) // 4, len(held)})
    told = ", ".join(f"{held[task - 1] / 2**20:.0f} MiB after task {task}" for task in shown if task)
    return Outcome(fault, Result.LOST if grown > FLAT else Result.SURVIVED, f"{method}: {told}")


def disturbed(method: str, line: str, wanted: Undisturbed, kills: int, folder: Path, rng: Random) -> Iterator[Outcome]:
    """The same run, killed so often, and then brought to its end."""
    fault, said, done = f"SIGKILL through {line.partition('tasks=')[2].split()[0]} tasks", list[str](), 0
    for _ in range(kills):
        child = start(line, folder, drawn=False)
        until(child, rng.uniform(0, 1.5 * wanted.worked / kills))
        alive = child.code is None
        if alive:
            kill(child.pid)
        end = child.wait(LONG)
        said.append(end.said)
        done += alive
        if end.code not in (0, -signal.SIGKILL) or end.wrong:
            break
    else:
        end = run(line, folder, limit=LONG, drawn=False)
        said.append(end.said)
    outcome = wanted.judged(fault, end, folder, f"{method}, {done} kills")
    again = [number for (_, number, _), count in Counter(TASK.findall("\n".join(said))).items() if count > 1]
    if outcome.result is not Result.LOST and again:
        outcome = Outcome(fault, Result.LOST, f"{method}: tasks {', '.join(again)} were learned again")
    first = [TASK.findall(each)[:1] for each in said[1:]]
    went = ", ".join(f"task {each[0][1]}" for each in first if each)
    yield (
        outcome
        if outcome.result is Result.LOST
        else outcome._replace(note=f"{outcome.note}; processes went on with {went}", times=max(1, done))
    )
