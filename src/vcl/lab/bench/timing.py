"""Timing of jobs that take turns, so that all of them see the same machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch


class Timing(NamedTuple):
    """Seconds of one call: the least (what the machine can do), the median, and how many were taken."""

    least: float
    middle: float
    calls: int


Job = Callable[[], object]


def take_turns(
    jobs: Mapping[str, Job], rounds: int, calls: int, device: torch.device, warm_up: int | None = None
) -> dict[str, Timing]:
    """Each job ``calls`` times in a row, job after job, ``rounds`` times over, after ``warm_up`` calls of each.

    The first call of every row is left out: it finds the caches full of another job's numbers.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():  # what is made on first use is not part of the work
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
"""Calls before timing: a captured step runs its first three eagerly."""


def finish(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
