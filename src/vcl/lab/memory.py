"""The memory that a plan needs, counted without making any of it, and what the device has.

What is counted is what is held at once for certain, so a plan is refused only if it cannot fit:

    beliefs      q_{t-1} and q_t, and those for prediction where they are others
    fit          the largest: of a task or of a coreset (:mod:`vcl.lab.fit_memory`), with its batch
    evaluation   the weights that are drawn at once, and what the kind of experiment says
    data         a task's training data, the coreset, the test data of every task
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import standard_normal
from vcl.data import Data
from vcl.errors import VclError
from vcl.lab.fit_memory import fit_values
from vcl.lab.kind import MethodEntry
from vcl.lab.largest import Largest, largest_fits
from vcl.lab.plan import Plan
from vcl.lab.streams import Arrays
from vcl.ops.devices import limits
from vcl.ops.rng import Rng
from vcl.predicting.prediction import WEIGHTS_IN_FLIGHT

FLOAT, LABEL = 4, 8
"""Bytes of a number, and of a label or a place."""

LISTED = 100_000
ONE = standard_normal(Layout(("w",), ((1,),)))
"""A prior of one parameter: what a belief makes of it, it makes of every parameter."""

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
    tests: int = 0
    """Test examples of a task."""


def look(plan: Plan, settings: Any, data: Arrays) -> Tasks:
    """The first task, made for one run and for two: what grows by the second is what each run has of its own."""
    one, two = (plan.experiment.stream(data, settings, Rng(seeds)) for seeds in ((0,), (0, 1)))
    task, pair = one.make(0), two.make(0)
    last = one.make(one.size - 1).heads if one.size > 1 else task.heads
    once, twice = ((_bytes(each.train), _bytes(each.test)) for each in (task, pair))
    each = twice[0] - once[0], twice[1] - once[1]
    shared = once[0] - each[0], once[1] - each[1]
    return Tasks(
        one.shape,
        task.train.size,
        dict(task.heads),
        set(last) != set(task.heads),
        shared,
        each,
        0 if task.test is None else task.test.size,
    )


def gigabytes(plan: Plan, entry: MethodEntry, tasks: Tasks, settings: Any, lams: int) -> float:
    """What a method holds at its peak with these settings and so many lambdas, in GB."""
    kind, runs, method = plan.experiment.kind, settings.seeds * lams, entry.build(settings)
    with torch.device("meta"):  # shapes alone
        model = kind.model(settings, tasks.shape)
    moments = len(method.project.initial(ONE)) - 1
    made = largest_fits(method, settings.tasks, tasks.examples)
    held = Held(plan, model, tasks, settings, runs, moments, made)
    most = max([held.fit(fit) for fit in made], default=0)
    most = max(most, held.prediction(entry), kind.evaluation(settings, tasks.shape, runs))
    data = tasks.shared[0] + runs * tasks.each[0] + settings.tasks * (tasks.shared[1] + runs * tasks.each[1])
    return float(most + held.beliefs + held.points + data) / 1e9


class Held:
    """Bytes that a method holds."""

    def __init__(
        self, plan: Plan, model: Any, tasks: Tasks, settings: Any, runs: int, moments: int, fits: Sequence[Largest]
    ) -> None:
        self.device, self.model, self.tasks, self.settings, self.runs = plan.device, model, tasks, settings, runs
        self.moments, self.size, self.shared = moments, model.layout(tasks.heads).size, model.layout({}).size
        self.example = sum(part[0] for part in (tasks.shared, tasks.each)) / max(1, tasks.examples)
        self.kept = max((fit.kept for fit in fits), default=0)
        self.coreset = any(fit.what == "coreset" for fit in fits)

    @property
    def beliefs(self) -> int:
        """q_{t-1}, q_t and the part of it that a fit is about; those for prediction where they are others."""
        own, tasks = self.tasks.own_heads, self.settings.tasks
        every = self.shared + (self.size - self.shared) * (tasks if own else 1)
        values = every * (2 if own or self.coreset else 1) + (self.size if own else 0)
        if self.settings.predictive == "per-head":
            values += self.size * (tasks - 1 + (tasks if self.coreset else 0))
        elif self.coreset:
            values += 2 * every
        found: int = FLOAT * self.runs * self.moments * values
        return found

    @property
    def points(self) -> int:
        """C_{t-1} and C_t, and the rest of a task, each with labels and sources of its own for every run."""
        rest = self.tasks.examples if self.kept else 0
        return int(self.runs * (2 * self.kept + rest) * (self.example + LABEL))

    def fit(self, fit: Largest) -> int:
        """A fit and its batch, or the curvature that is taken where it ends."""
        examples, runs, project, tasks = fit.examples, self.runs, fit.project, self.tasks
        if not hasattr(project, "ascent"):  # particles, or a gradient for each example of a batch
            copies: int = getattr(project, "particles", min(getattr(project, "batch", 1), examples))
            return int(FLOAT * runs * self.size * 6 * copies)
        heads = tasks.heads
        if fit.tasks > 1 and tasks.own_heads:
            heads = {f"{head} {n}": units for head, units in heads.items() for n in range(fit.tasks)}
        values = fit_values(project, self.model, heads, self.device.type == "cuda", runs, examples)
        batch = min(project.ascent.batch or examples, examples)
        if batch == examples:  # inputs as the network sees them, once if runs share them
            copies = runs if self.coreset or any(tasks.each) else 1
            held = FLOAT * copies * examples * prod(tasks.shape)
        else:  # one batch, and the order of all examples
            held = int(runs * (batch * self.example + 2 * LABEL * examples))
        return max(FLOAT * values + held, FLOAT * self.curvature(project))

    def curvature(self, project: Any) -> int:
        """The noise of the latent variables of the examples whose gradients are squared."""
        how = getattr(project, "curvature", None)
        if how is None:
            return 0
        samples = min(how.samples or self.tasks.examples, self.tasks.examples)
        return int(self.runs * samples * how.draws * self.model.latent)

    def prediction(self, entry: MethodEntry) -> int:
        """The weights that are drawn at once, and the rows that pass through the layers."""
        if self.model.latent:
            return 0
        draws, runs, most = self.settings.predict_draws if entry.draws else 1, self.runs, limits(self.device).rows
        at_once = max(1, min(draws, WEIGHTS_IN_FLIGHT // (runs * self.size), most // runs))
        matrices = [shape for shape in self.model.layout(self.tasks.heads).shapes if len(shape) == 2]
        # Draws share the inputs, so of the first layer what goes out is counted alone.
        widest = max(matrices[0][0], *(sum(shape) for shape in matrices[1:]))
        # Noise, its product with the deviations, and their sum with the means.
        rows, drawn = min(max(most, runs * at_once), runs * at_once * self.tasks.tests), 3 * self.size
        if entry.draws and self.settings.predict_estimator == "local":  # one run's rows; no first layer, no product
            rows, drawn = rows // runs, 2 * (self.size - prod(matrices[0]))
        found: int = FLOAT * (runs * at_once * drawn + rows * widest)
        return found


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
        elif name == "coreset_batch" and value is None:
            yield "coreset_batch=none (all points at once)", (replace(settings, coreset_batch=1), lams)
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
