"""Tells other processes where a fit stands: a small file in the part's folder while it is computed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, final

from vcl.fitting.progress import Progress
from vcl.lab.folder import NOW, write_atomic
from vcl.lab.progress import Watch
from vcl.lab.provenance import now
from vcl.lab.runner import FinishedTask
from vcl.learner.bounded import read_bounded

EVERY = 2.0
"""Seconds between two writes."""

MOST = 2**16
"""The most bytes that are read."""


@final
class _Pulse:
    def __init__(self, folder: Path, begun: int) -> None:
        self.folder, self.number, self.tasks, self.last = folder, begun + 1, 0, monotonic()

    def begin(self, method: str, tasks: int) -> None:
        self.tasks = tasks

    def epoch(self, epoch: Progress) -> None:
        if monotonic() - self.last < EVERY:
            return
        self.last = monotonic()
        known = {
            "task": self.number,
            "tasks": self.tasks,
            "fit": epoch.what,
            "epoch": epoch.epoch,
            "epochs": epoch.epochs,
            "written": now(),
        }
        write_atomic(self.folder / NOW, json.dumps(known) + "\n")

    def task(self, done: FinishedTask) -> None:
        self.number = done.number + 1


@contextmanager
def pulse(folder: Path, begun: int) -> Iterator[Watch]:
    """Write where a stack stands that has learned ``begun`` tasks, every few seconds; removed at the end."""
    try:
        yield _Pulse(folder, begun)
    finally:
        (folder / NOW).unlink(missing_ok=True)


def read_now(folder: Path) -> Mapping[str, Any]:
    """What the process that computes a part wrote last; empty where there is nothing that can be read."""
    try:
        found = json.loads(read_bounded(folder / NOW, MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    kinds = {"task": int, "tasks": int, "fit": str, "epoch": int, "epochs": int, "written": str}
    fine = isinstance(found, dict) and all(type(found.get(name)) is kind for name, kind in kinds.items())
    return found if fine else {}
