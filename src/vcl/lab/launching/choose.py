"""From the options of the command line to what computes parts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from vcl.errors import VclError, unknown
from vcl.lab.compute import Elsewhere
from vcl.lab.launching import on_ray
from vcl.lab.launching.launch import launched
from vcl.lab.launching.launcher import Launcher
from vcl.lab.launching.processes import Processes, cores

LAUNCHERS = ("local", "processes", "ray")


class Options(NamedTuple):
    """What was given on the command line."""

    launcher: str
    jobs: int | None
    address: str | None
    cpus: int | None
    gpus: float | None
    runs_per_job: int | None

    def launcher_on(self, device: str) -> Launcher:
        """The launcher, for jobs on this kind of device."""
        if self.launcher == "ray":
            gpus = float(device == "cuda") if self.gpus is None else self.gpus
            return on_ray.OnRay(self.address, self.jobs, self.cpus or 1, gpus)
        count = max(1, cores() // (self.cpus or 1)) if self.jobs is None else self.jobs
        return Processes(count, self.cpus or max(1, cores() // count))


def elsewhere(given: Options, data: Path | None) -> Elsewhere | None:
    """What computes parts in other processes; None for ``local``. Wrong options are one clear sentence."""
    launcher = given.launcher
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    users = {
        "--address": (given.address, ("ray",)),
        "--cpus": (given.cpus, ("processes", "ray")),
        "--gpus": (given.gpus, ("ray",)),
        "--runs-per-job": (given.runs_per_job, ("processes", "ray")),
    }
    for option, (value, used_by) in users.items():
        if value is not None and launcher not in used_by:
            raise VclError(f"{option} is {value}, which --launcher {launcher} has no use for; leave it out.")
    for option, least in (("--cpus", given.cpus), ("--runs-per-job", given.runs_per_job)):
        if least is not None and least < 1:
            raise VclError(f"{option} is {least}; give at least 1.")
    if given.gpus is not None and not (0 < given.gpus < 1 or (given.gpus >= 0 and given.gpus == int(given.gpus))):
        raise VclError(f"--gpus is {given.gpus:g}; give a share of one GPU, such as 0.25, or a whole number.")
    if launcher == "ray":
        on_ray.check(given.address)
    return None if launcher == "local" else launched(given.launcher_on, data, given.runs_per_job)
