"""From the options of the command line to what computes parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from vcl.errors import VclError, unknown
from vcl.lab.compute import Elsewhere
from vcl.lab.launching.launch import launched
from vcl.lab.launching.launcher import Launcher
from vcl.lab.launching.processes import Processes, cores

LAUNCHERS = ("local", "processes")


def elsewhere(
    launcher: str, jobs: int | None, cpus: int | None, runs_per_job: int | None, data: Path | None
) -> Elsewhere | None:
    """What computes parts in other processes; None for ``local``. Wrong options are one clear sentence."""
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    given = {"--cpus": cpus, "--runs-per-job": runs_per_job}
    for option, value in given.items():
        if value is not None and launcher == "local":
            raise VclError(f"{option} is {value}, which --launcher local has no use for; leave it out.")
        if value is not None and value < 1:
            raise VclError(f"{option} is {value}; give at least 1.")
    if launcher == "local":
        return None
    return launched(_processes(jobs, cpus), data, runs_per_job)


def _processes(jobs: int | None, cpus: int | None) -> Callable[[], Launcher]:
    count = max(1, cores() // (cpus or 1)) if jobs is None else jobs
    return partial(Processes, count, cpus or max(1, cores() // count))
