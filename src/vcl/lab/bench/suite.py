"""The measurements of `vcl bench`, and their record."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch

from vcl import __version__
from vcl.engines.usage import ESTIMATORS
from vcl.lab.bench import classes, floors, peers, penalties, shapes, work
from vcl.lab.bench.timing import Job, Timing, take_turns
from vcl.lab.provenance import device_name

DRAWS, RUNS = (1, 10), (1, 10)
IMPORTS = 3
"""How often each module is imported."""

GENERAL = ", the general way"
"""Suffix of an estimator's name where the network is not recognised and the general engine computes it."""

PRODUCTS, BYTES, COPY = "matrix products alone", "bytes over bandwidth", "a large copy"
"""Two lower bounds of a step, and the job that measures bandwidth."""

BYTES_OF = "bytes, "
"""Prefix of an estimator's name, if a group has several: the bytes of its step over bandwidth."""


CLASSIFIED = (
    (("class-incremental-digits", 8, 360),),
    (("class-incremental-digits", 8, 360), ("class-incremental-mnist", 28, 10_000)),
)
"""On a CPU and on a GPU: experiments whose generators classify, the side of an image and the number of images."""


class Size(NamedTuple):
    """The amount of work to measure."""

    rounds: int
    images: int
    center: int
    task: int | None
    """The most examples in a task of a published network; None takes the paper's number."""


FULL, QUICK = Size(10, 10_000, 60_000, None), Size(2, 500, 2_000, 100)


class Line(NamedTuple):
    """One job: its time, and the ratio of this time to that of each reference, by name."""

    group: str
    name: str
    timing: Timing
    ratios: dict[str, float]


def run(device: torch.device, size: Size, say: Callable[[str], None]) -> list[Line]:
    """Measure one group after another; within a group the jobs alternate. Returns one line per job."""
    standard = work.standard(device)
    lines: list[Line] = []
    for runs in RUNS:
        for draws in DRAWS:
            say(f"training step, {runs} x {draws} (runs x draws)")
            lines += _steps(standard, draws, runs, size)
    for runs in RUNS:
        say(f"step under the penalty of earlier tasks, {runs} runs")
        timed = take_turns(penalties.steps(standard, runs), size.rounds, 10, device)
        lines += _lines(f"step after a task, {runs} runs", timed, {penalties.DIAGONAL: penalties.DIAGONAL})
    for shape in shapes.published(size.task):
        for runs in shape.runs:
            if shape.fits(runs, device):
                say(f"training step of {shape.name}, {runs} x {shape.draws} (runs x draws)")
                lines += _published(shape, runs, device, size)
            else:
                say(f"left out, too large for this device: training step of {shape.name}, {runs} x {shape.draws}")
    say(f"prediction, {size.images:,} images, 100 draws")
    lines += _predictions(standard, size)
    for name, side, most in CLASSIFIED[device.type == "cuda"]:
        say(f"classification by generators, {name}")
        lines += _classes(name, side, min(size.images, most), standard, size)
    say("K-center, Fisher information, import")
    lines += _others(standard, size)
    return lines


def _steps(standard: work.Standard, draws: int, runs: int, size: Size) -> list[Line]:
    copy = floors.copy(standard.device)
    jobs: dict[str, Job] = {
        PRODUCTS: work.floor(standard, draws, runs),
        COPY: copy.job,
        "local": work.step(standard, "local", draws, runs),
        "weights": work.step(standard, "weights", draws, runs),
        f"local{GENERAL}": work.step(standard, "local", draws, runs, general=True),
        f"weights{GENERAL}": work.step(standard, "weights", draws, runs, general=True),
    }
    against = {"floor": PRODUCTS}
    if runs == 1:
        jobs["deterministic network"] = work.deterministic(standard)
        jobs |= {peer.name: peers.step(standard, peer, draws) for peer in peers.installed()}
        against["deterministic"] = "deterministic network"
    timed = take_turns(jobs, size.rounds, 10, standard.device)
    copied = timed.pop(COPY)
    least: dict[str, Timing] = {
        f"{BYTES_OF}{estimator}": copy.time(copied, work.moved(estimator, draws, runs)) for estimator in ESTIMATORS
    }
    timed = {PRODUCTS: timed.pop(PRODUCTS), **least, **timed}
    rivals = [peer.name for peer in peers.installed() if peer.name in timed]
    if rivals:
        against["fastest other"] = min(rivals, key=lambda name: timed[name].least)
    return _lines(f"step, {runs} runs x {draws} draws", timed, against)


def _published(shape: shapes.Shape, runs: int, device: torch.device, size: Size) -> list[Line]:
    step, copy = shapes.step(shape, runs, device), floors.copy(device)
    jobs: dict[str, Job] = {PRODUCTS: step.floor, COPY: copy.job, shape.estimator: step.job}
    if device.type == "cuda":
        timed = take_turns(jobs, size.rounds, 10, device)
    else:  # large steps take seconds
        calls = max(1, min(10, int(shapes.LIGHT / shape.multiplications(runs))))
        timed = take_turns(jobs, min(size.rounds, 3), calls, device, warm_up=1)
    timed[BYTES] = copy.time(timed.pop(COPY), step.moved)
    order = PRODUCTS, BYTES, shape.estimator
    group = f"step of {shape.name}, {shape.sizes}, batch {shape.rows}, {runs} runs x {shape.draws} draws"
    return _lines(group, {name: timed[name] for name in order}, {"floor": PRODUCTS, "bytes": BYTES})


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


def _classes(name: str, side: int, images: int, standard: work.Standard, size: Size) -> list[Line]:
    made = classes.classification(name, side, images, standard.device)
    jobs: dict[str, Job] = {PRODUCTS: made.floor, "generators": made.job}
    timed = take_turns(jobs, max(1, size.rounds // 5), 1, standard.device, warm_up=1)
    return _lines(made.group, timed, {"floor": PRODUCTS})


def _others(standard: work.Standard, size: Size) -> list[Line]:
    images = standard.x.repeat(-(-size.center // len(standard.x)), 1, 1)[: size.center]
    timed = take_turns({"K-center, 200 points": work.k_center(images, 200)}, 1, 1, standard.device)
    timed |= take_turns({"Fisher, 600 examples": work.fisher(standard, 600)}, size.rounds, 3, standard.device)
    lines = _lines(f"coreset of {size.center} and curvature", timed, {})
    imports = {name: _import(name) for name in ("torch", "vcl", "vcl.lab.cli")}
    return lines + _lines("import", imports, {"torch": "torch"})


def _import(name: str) -> Timing:
    """The time to import a module in a new process, less the start of Python."""

    def seconds(code: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return perf_counter() - began

    taken = [seconds(f"import {name}") - seconds("pass") for _ in range(IMPORTS)]
    return Timing(max(min(taken), 0.0), max(median(taken), 0.0), len(taken))


def _lines(group: str, timed: dict[str, Timing], against: dict[str, str]) -> list[Line]:
    lines = []
    for name, timing in timed.items():
        others, layered = dict(against), name.removesuffix(GENERAL)
        if f"{BYTES_OF}{layered}" in timed:
            others["bytes"] = f"{BYTES_OF}{layered}"
        if layered != name:
            others["fast way"] = layered
        ratios = {what: timing.least / timed[other].least for what, other in others.items() if timed[other].least > 0}
        lines.append(Line(group, name, timing, ratios))
    return lines


def record(lines: list[Line], device: torch.device, size: Size, matmul: str) -> dict[str, Any]:
    """The measurements, versions and device as an object for JSON."""
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
