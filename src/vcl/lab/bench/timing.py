"""Times jobs in alternation, so that the machine's load affects all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch


class Timing(NamedTuple):
    """Seconds per call: the least (what the machine can do), the median, and the number of timed calls."""

    least: float
    middle: float
    calls: int


Job = Callable[[], object]


def take_turns(
    jobs: Mapping[str, Job], rounds: int, calls: int, device: torch.device, warm_up: int | None = None
) -> dict[str, Timing]:
    """Time each job ``calls`` times in a row, job after job, for ``rounds`` rounds, after ``warm_up`` calls of each.

    The first call in a row is not counted, since the caches then hold another job's data.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():  # setup on first use is not part of the work
        for _ in range(WARM_UP if warm_up is None else warm_up):
            job()
    for _ in range(rounds):
        for name, job in jobs.items():
            for call in range(calls + 1):
                finish(device)
                began = perf_counter()
                job()
                finish(device)
                if call:
                    seconds[name].append(perf_counter() - began)
    return {name: Timing(min(taken), median(taken), len(taken)) for name, taken in seconds.items()}


WARM_UP = 5
"""Untimed calls: a captured step runs its first three calls eagerly."""


def finish(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
