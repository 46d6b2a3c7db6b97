"""What `vcl bench` measures, and what it makes of it."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import torch

from vcl import __version__
from vcl.lab.bench import peers, work
from vcl.lab.bench.timing import Job, Timing, take_turns
from vcl.lab.provenance import device_name

DRAWS, RUNS = (1, 10), (1, 10)

GENERAL = ", the general way"
"""Behind the name of an estimator whose network is not recognised."""


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    images: int
    center: int


FULL, QUICK = Size(10, 10_000, 60_000), Size(2, 500, 2_000)


class Line(NamedTuple):
    """One job: its time, and how many times another job's it is, by that job's name."""

    group: str
    name: str
    timing: Timing
    ratios: dict[str, float]


def run(device: torch.device, size: Size, say: Callable[[str], None]) -> list[Line]:
    """Every group in turn; within a group the jobs take turns."""
    standard = work.standard(device)
    lines: list[Line] = []
    for runs in RUNS:
        for draws in DRAWS:
            say(f"training step, {runs} x {draws} (runs x draws)")
            lines += _steps(standard, draws, runs, size)
    say(f"prediction, {size.images:,} images, 100 draws")
    lines += _predictions(standard, size)
    say("K-center, Fisher information, import")
    lines += _others(standard, size)
    return lines


def _steps(standard: work.Standard, draws: int, runs: int, size: Size) -> list[Line]:
    jobs: dict[str, Job] = {
        "matrix products alone": work.floor(standard, draws, runs),
        "local": work.step(standard, "local", draws, runs),
        "weights": work.step(standard, "weights", draws, runs),
        f"local{GENERAL}": work.step(standard, "local", draws, runs, general=True),
        f"weights{GENERAL}": work.step(standard, "weights", draws, runs, general=True),
    }
    against = {"floor": "matrix products alone"}
    if runs == 1:
        jobs["deterministic network"] = work.deterministic(standard)
        jobs |= {peer.name: peers.step(standard, peer, draws) for peer in peers.installed()}
        against["deterministic"] = "deterministic network"
    timed = take_turns(jobs, size.rounds, 10, standard.device)
    rivals = [peer.name for peer in peers.installed() if peer.name in timed]
    if rivals:
        against["fastest other"] = min(rivals, key=lambda name: timed[name].least)
    return _lines(f"step, {runs} runs x {draws} draws", timed, against)


def _predictions(standard: work.Standard, size: Size) -> list[Line]:
    images = standard.x.repeat(-(-size.images // len(standard.x)), 1, 1)[: size.images]
    draws = 100
    jobs: dict[str, Job] = {
        "local": work.prediction(images, draws, "local"),
        "weights": work.prediction(images, draws, "weights"),
        **{peer.name: peers.prediction(images, peer, draws) for peer in peers.installed()},
    }
    timed = take_turns(jobs, max(1, size.rounds // 5), 1, standard.device)
    rivals = [peer.name for peer in peers.installed()]
    against = {"fastest other": min(rivals, key=lambda name: timed[name].least)} if rivals else {}
    return _lines(f"prediction, {size.images} images x {draws} draws", timed, against)


def _others(standard: work.Standard, size: Size) -> list[Line]:
    images = standard.x.repeat(-(-size.center // len(standard.x)), 1, 1)[: size.center]
    timed = take_turns({"K-center, 200 points": work.k_center(images, 200)}, 1, 1, standard.device)
    timed |= take_turns({"Fisher, 600 examples": work.fisher(standard, 600)}, size.rounds, 3, standard.device)
    lines = _lines(f"coreset of {size.center} and curvature", timed, {})
    imports = {name: _import(name) for name in ("torch", "vcl", "vcl.lab.cli")}
    return lines + _lines("import", imports, {"torch": "torch"})


def _import(name: str) -> Timing:
    """In a new process, less the start of Python itself."""

    def seconds(code: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return perf_counter() - began

    taken = [seconds(f"import {name}") - seconds("pass") for _ in range(3)]
    return Timing(max(min(taken), 0.0), max(sorted(taken)[1], 0.0), len(taken))


def _lines(group: str, timed: dict[str, Timing], against: dict[str, str]) -> list[Line]:
    lines = []
    for name, timing in timed.items():
        others = {**against, "fast way": name.removesuffix(GENERAL)} if name.endswith(GENERAL) else against
        ratios = {what: timing.least / timed[other].least for what, other in others.items() if timed[other].least > 0}
        lines.append(Line(group, name, timing, ratios))
    return lines


def record(lines: list[Line], device: torch.device, size: Size, matmul: str) -> dict[str, Any]:
    """All of it for machines."""
    return {
        "vcl": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(device),
        "matmul": matmul,
        "size": size._asdict(),
        "peers": [peer.name for peer in peers.installed()],
        "lines": [
            {
                "group": line.group,
                "name": line.name,
                "least_ms": round(1e3 * line.timing.least, 4),
                "median_ms": round(1e3 * line.timing.middle, 4),
                "calls": line.timing.calls,
                "ratios": {what: round(value, 3) for what, value in line.ratios.items()},
            }
            for line in lines
        ],
    }
