"""The memory that a plan needs, counted without making any of it, and what the device has.

What is counted is what is held at once for certain, so a plan is refused only if it cannot fit:

    beliefs      q_{t-1}, the fit, its gradient and Adam's two moments, and q_t (by head, if predictions are)
    draws        the noise of all runs, and the drawn weights and activations of those that are at work at once
    evaluation   what the kind of experiment says
    data         the training data twice (as it is and as a batch of it), the test data of every task
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vcl.data import Data
from vcl.engines.structure import Opaque
from vcl.errors import VclError
from vcl.lab.kind import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.streams import Arrays
from vcl.models.base import spread
from vcl.ops.rng import Rng

FLOAT = 4
LISTED = 100_000
MEMINFO, LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


class Tasks(NamedTuple):
    """What is known of all tasks from looking at one."""

    shape: tuple[int, ...]
    examples: int
    heads: dict[str, int]
    own_heads: bool
    """Whether every task brings a head of its own."""
    shared: tuple[int, int]
    """Bytes of training and test data of a task that all runs share."""
    each: tuple[int, int]
    """And of those that each run has."""


def look(plan: Plan, settings: Any, data: Arrays) -> Tasks:
    """The first task, made for one run and for two: what grows by the second is what each run has of its own."""
    one, two = (plan.experiment.stream(data, settings, Rng(seeds)) for seeds in ((0,), (0, 1)))
    task, pair = one.make(0), two.make(0)
    last = one.make(one.size - 1).heads if one.size > 1 else task.heads
    once, twice = ((_bytes(each.train), _bytes(each.test)) for each in (task, pair))
    each = twice[0] - once[0], twice[1] - once[1]
    shared = once[0] - each[0], once[1] - each[1]
    return Tasks(one.shape, task.train.size, dict(task.heads), set(last) != set(task.heads), shared, each)


def gigabytes(
    plan: Plan, entry: MethodEntry, tasks: Tasks, settings: Any, lams: int, batch: int | None = None
) -> float:
    """What a method holds at its peak with these settings and so many lambdas, in GB; ``batch`` is its largest."""
    kind, runs = plan.experiment.kind, settings.seeds * lams
    project: Any = entry.build(settings).project
    with torch.device("meta"):  # shapes alone
        model = kind.model(settings, tasks.shape)
    layout, shared = model.layout(tasks.heads), model.layout({}).size
    size, drawn = layout.size, spread(model, layout).size
    every = shared + (size - shared) * (settings.tasks if tasks.own_heads else 1)
    examples, climbs = tasks.examples, hasattr(project, "ascent")
    given = project.ascent.batch if climbs else getattr(project, "batch", 1)
    batch = batch or min(given or examples, examples)

    moments = 2 if entry.draws else 1
    kept = size * settings.tasks if settings.predictive == "per-head" else every
    beliefs = runs * moments * (every + kept + (4 * size if climbs else 0))

    # On a CPU the layered engine takes one run after another.
    on_cpu = plan.device.type == "cpu"
    opaque = isinstance(model.structure(("a",)), Opaque)
    at_once = 1 if on_cpu and not opaque else runs
    estimator = getattr(project, "estimator", None)
    draws = project.draws if model.latent or estimator is not None else 1
    units = draws * batch * kind.units(settings)
    fit = at_once * units * 2
    if estimator == "weights":
        fit += draws * drawn * (2 * at_once + (runs if on_cpu else 0))
    elif estimator == "local":
        fit += units * (runs + 3 * at_once)
    if not climbs:  # particles, or a gradient for each example of a batch
        fit = runs * size * 6 * getattr(project, "particles", batch)
    curvature = getattr(project, "curvature", None)
    if model.latent and curvature is not None:
        fit = max(fit, runs * min(curvature.samples or examples, examples) * curvature.draws * model.latent)

    held = tuple(all_runs + runs * own for all_runs, own in zip(tasks.shared, tasks.each, strict=True))
    most = max(FLOAT * fit, kind.evaluation(settings, tasks.shape, runs))
    total: int = FLOAT * beliefs + most + 2 * held[0] + settings.tasks * held[1]
    return total / 1e9


def available(device: torch.device) -> float:
    """GB that can be had there now: of a GPU what is free or held unused; else the system's memory and swap."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(free + unused) / 1e9
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
        there = 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError, IndexError):
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # where there is no limit, it is the word "max"
        there = min(there, int(LIMIT.read_text()))
    return there / 1e9


def check_memory(plan: Plan, data: Arrays, jobs: int = 1) -> None:
    """Raise one clear sentence unless the plan's methods, ``jobs`` of them at once, fit into the device's memory."""
    there, all_needed = available(plan.device), []
    for entry in plan.methods:
        settings, lams = plan.settings_of(entry), len(plan.grid.get(entry.name, (None,)))
        tasks = look(plan, settings, data)
        need = gigabytes(plan, entry, tasks, settings, lams)
        all_needed.append(need)
        if need > there:
            least = {what: gigabytes(plan, entry, tasks, *other) for what, other in _less(settings, lams, tasks)}
            cause = min(least, key=lambda what: least[what])
            raise VclError(
                f"{entry.name} needs about {amount(need)} of memory, and {plan.device} has {amount(there)}; most of it "
                f"is for {cause}: give less of that."
            )
    together = sum(sorted(all_needed)[-jobs:])
    if together > there:
        raise VclError(
            f"{min(jobs, len(all_needed))} methods at once need about {amount(together)} of memory, and {plan.device} "
            f"has {amount(there)}; give fewer --jobs."
        )


def check_listed(plan: Plan, data: Arrays) -> None:
    """Raise one clear sentence if there are too many runs to name one by one, which is how what is kept is known."""
    runs = max(plan.settings_of(entry).seeds * len(plan.grid.get(entry.name, (None,))) for entry in plan.methods)
    if runs > LISTED:
        check_memory(plan, data)
        raise VclError(f"there are {runs:,} runs at once; give at most {LISTED:,}, by fewer seeds or lambdas.")


def _less(settings: Any, lams: int, tasks: Tasks) -> Iterator[tuple[str, tuple[Any, int]]]:
    """Every setting that is a count, in words, with the settings in which it is 1; and the lambdas."""
    for name, value in vars(settings).items():
        if name == "batch" and value is None:
            yield f"batch=none (all {tasks.examples} examples at once)", (replace(settings, batch=1), lams)
        elif name == "hidden" and isinstance(value, tuple):
            yield f"hidden={','.join(map(str, value))}", (replace(settings, hidden=(1,) * len(value)), lams)
        elif isinstance(value, int):
            yield f"{name}={value}", (replace(settings, **{name: 1}), lams)
    if lams > 1:
        yield f"the grid of {lams} lambdas", (settings, 1)


def amount(number: float) -> str:
    """GB for people.

    >>> amount(0.002), amount(2.34), amount(1234567.8)
    ('0.002 GB', '2.3 GB', '1,234,568 GB')
    """
    return f"{number:,.0f} GB" if number >= 100 else f"{number:.2g} GB"


def _bytes(data: Data | None) -> int:
    return 0 if data is None else sum(part.untyped_storage().nbytes() for part in (data.x, data.y))
