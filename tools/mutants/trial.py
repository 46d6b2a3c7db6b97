"""Tests of mutants, each in a process of its own and in a worker's own copy of the tree."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from mutations import Mutant
from plan import Job, accepted, key


class Verdict(NamedTuple):
    """What became of a mutant: killed, timeout (as good), survived, accepted (survived, for a reason), not tried."""

    mutant: Mutant
    group: str
    outcome: str
    seconds: float


class Child(NamedTuple):
    """A process that tests a mutant, and the look at which it is given up."""

    job: Job
    tree: Path
    began: float
    last_look: float


LOOK = 0.05
"""Seconds between two looks at the processes. They are counted, because a clock goes on while a machine is held."""


def copies(tree: Path, names: Sequence[str], into: Path, count: int) -> list[Path]:
    """Whole copies of the tree, one for each worker."""
    made = [into / f"tree{number}" for number in range(count)]
    for copy in made:
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, copy / name)
    return made


def baselines(trees: list[Path], jobs: Sequence[Job]) -> dict[tuple[str, ...], float]:
    """Seconds of a core that each list of tests takes on the tree as it is; all must pass."""
    seconds: dict[tuple[str, ...], float] = {}
    left, free = sorted({job.tests for job in jobs}), list(trees)
    running: dict[int, tuple[tuple[str, ...], Path]] = {}
    while left or running:
        while left and free:
            tests, tree = left.pop(), free.pop()
            running[_run(tree, tests, keep_compiled=True)] = (tests, tree)
        pid, status, used = os.wait3(0)
        tests, tree = running.pop(pid)
        free.append(tree)
        if os.waitstatus_to_exitcode(status):
            text = _log(tree).read_text(encoding="utf-8", errors="replace")[-3000:]
            raise SystemExit(f"the tests do not pass on the tree as it is: {' '.join(tests)}\n{text}")
        seconds[tests] = used.ru_utime + used.ru_stime
    return seconds


def try_all(
    tree: Path, trees: list[Path], jobs: Sequence[Job], limits: dict[tuple[str, ...], float], deadline: float
) -> Iterator[Verdict]:
    """The verdict of each mutant as it comes; those that the time does not reach are not tried.

    ``limits`` are seconds of a core; a process that sleeps is given up after ten times as many by the clock.
    """
    reasons, left, free = accepted(), list(jobs)[::-1], list(trees)
    running: dict[int, Child] = {}
    look = 0

    def verdict(pid: int, status: int) -> Verdict:
        job, copy, began, _ = running.pop(pid)
        # The file as it was, its time too, so that the compiled code beside it is good again.
        shutil.copy2(tree / job.mutant.file, copy / job.mutant.file)
        free.append(copy)
        outcome = "timeout" if status == -signal.SIGXCPU else "survived" if status == 0 else "killed"
        if outcome == "survived" and key(job.mutant) in reasons:
            outcome = "accepted"
        return Verdict(job.mutant, job.group, outcome, time.monotonic() - began)

    while left or running:
        while left and free and time.monotonic() < deadline:
            job, copy = left.pop(), free.pop()
            (copy / job.mutant.file).write_bytes(job.mutant.applied((tree / job.mutant.file).read_bytes()))
            last = look + 10 * limits[job.tests] / LOOK
            running[_run(copy, job.tests, limits[job.tests])] = Child(job, copy, time.monotonic(), last)
        if not running:
            break
        done, status = os.waitpid(-1, os.WNOHANG)
        if done:
            yield verdict(done, os.waitstatus_to_exitcode(status))
            continue
        for pid, child in list(running.items()):
            if look > child.last_look:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                yield verdict(pid, -signal.SIGXCPU)
        time.sleep(LOOK)
        look += 1
    for job in reversed(left):
        yield Verdict(job.mutant, job.group, "not tried", 0.0)


def _log(tree: Path) -> Path:
    return tree.with_suffix(".log")


def _run(tree: Path, tests: Sequence[str], limit: float | None = None, keep_compiled: bool = False) -> int:
    """The process id of a child that runs these tests in ``tree``; its exit status is pytest's.

    A fork, so that what the parent has imported need not be imported again. Compiled files are written by the first
    runs alone: a mutant's must never be found by another.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.setsid()
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (ceil(limit), ceil(limit) + 5))
        out = os.open(_log(tree), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = not keep_compiled
        sys.path.insert(0, str(tree / "src"))
        import pytest

        status = int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(status)
