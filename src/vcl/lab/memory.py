"""The memory that a plan needs, computed without allocating it, and the memory that the device has.

The count is a lower bound on the peak, so a plan is rejected only if it cannot fit:

    beliefs      q_{t-1} and q_t, and separate beliefs for prediction if there are any
    fit          the largest fit, to a task or a coreset (:mod:`vcl.lab.fit_memory`), with its batch
    evaluation   the weights drawn at once, and the memory of the experiment's metrics
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
from vcl.lab.largest import Largest, largest_fits
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.settings import text_of, values_of, with_values
from vcl.lab.streams import Arrays
from vcl.ops.devices import limits
from vcl.ops.rng import Rng
from vcl.predicting.prediction import WEIGHTS_IN_FLIGHT

FLOAT, LABEL = 4, 8
"""Bytes of a float, and of a label or an index."""

LISTED = 100_000
ONE = standard_normal(Layout(("w",), ((1,),)))
"""A prior of one parameter, which shows how many values a belief has per parameter."""

MEMINFO, LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


class Tasks(NamedTuple):
    """The sizes of all tasks, taken from the first."""

    shape: tuple[int, ...]
    examples: int
    heads: dict[str, int]
    own_heads: bool
    """Whether each task has its own head."""
    shared: tuple[int, int]
    """Bytes of a task's training and test data that all runs share."""
    each: tuple[int, int]
    """Bytes of a task's training and test data per run."""
    tests: int = 0
    """Test examples per task."""
    number: int = 1
    """The number of tasks."""


def look(plan: Plan, data: Arrays | None) -> Tasks:
    """The sizes of the tasks. The first task is made for one run and for two; the growth is the data per run."""
    one, two = (plan.stream(data, Rng(seeds)) for seeds in ((0,), (0, 1)))
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
        one.size,
    )


def gigabytes(plan: Plan, entry: MethodEntry, tasks: Tasks, lams: int) -> float:
    """A method's peak memory with ``lams`` lambdas, in GB."""
    runs, method = plan.setup.run.seeds * lams, entry.made(plan.settings_of(entry))
    with torch.device("meta"):  # only shapes are needed
        model = plan.model(tasks.shape)
    moments = len(method.project.initial(ONE)) - 1
    made = largest_fits(method, tasks.number, tasks.examples)
    held = Held(plan, model, tasks, method.predictive, runs, moments, made)
    most = max([held.fit(fit) for fit in made], default=0)
    most = max(
        most, held.prediction(entry), plan.experiment.evaluation.memory(plan.setup.prediction, tasks.shape, runs)
    )
    data = tasks.shared[0] + runs * tasks.each[0] + tasks.number * (tasks.shared[1] + runs * tasks.each[1])
    return float(most + held.beliefs + held.points + data) / 1e9


class Held:
    """Bytes that a method holds."""

    def __init__(
        self, plan: Plan, model: Any, tasks: Tasks, predictive: str, runs: int, moments: int, fits: Sequence[Largest]
    ) -> None:
        self.device, self.model, self.tasks, self.predictive, self.runs = plan.device, model, tasks, predictive, runs
        self.values = values_of(plan.setup.prediction)
        self.moments, self.size, self.shared = moments, model.layout(tasks.heads).size, model.layout({}).size
        self.example = sum(part[0] for part in (tasks.shared, tasks.each)) / max(1, tasks.examples)
        self.kept = max((fit.kept for fit in fits), default=0)
        self.coreset = any(fit.what == "coreset" for fit in fits)

    @property
    def beliefs(self) -> int:
        """q_{t-1}, q_t, the part of q_t in a fit, and separate beliefs for prediction."""
        own, tasks = self.tasks.own_heads, self.tasks.number
        every = self.shared + (self.size - self.shared) * (tasks if own else 1)
        values = every * (2 if own or self.coreset else 1) + (self.size if own else 0)
        if self.predictive == "per-head":
            values += self.size * (tasks - 1 + (tasks if self.coreset else 0))
        elif self.coreset:
            values += 2 * every
        found: int = FLOAT * self.runs * self.moments * values
        return found

    @property
    def points(self) -> int:
        """C_{t-1}, C_t and the rest of a task, with labels and sources, for every run."""
        rest = self.tasks.examples if self.kept else 0
        return int(self.runs * (2 * self.kept + rest) * (self.example + LABEL))

    def fit(self, fit: Largest) -> int:
        """A fit with its batch, or the curvature after it, if larger."""
        examples, runs, project, tasks = fit.examples, self.runs, fit.project, self.tasks
        if not hasattr(project, "ascent"):  # particles, or per-example gradients
            copies: int = getattr(project, "particles", min(getattr(project, "batch", 1), examples))
            return int(FLOAT * runs * self.size * 6 * copies)
        heads = tasks.heads
        if fit.tasks > 1 and tasks.own_heads:
            heads = {f"{head} {n}": units for head, units in heads.items() for n in range(fit.tasks)}
        values = fit_values(project, self.model, heads, self.device.type == "cuda", runs, examples)
        batch = min(project.ascent.batch or examples, examples)
        if batch == examples:  # inputs as float32; one copy if runs share them
            copies = runs if self.coreset or any(tasks.each) else 1
            held = FLOAT * copies * examples * prod(tasks.shape)
        else:  # one batch, and the permutation of all examples
            held = int(runs * (batch * self.example + 2 * LABEL * examples))
        return max(FLOAT * values + held, FLOAT * self.curvature(project))

    def curvature(self, project: Any) -> int:
        """The noise of the latent variables, for the examples whose gradients are squared."""
        how = getattr(project, "curvature", None)
        if how is None:
            return 0
        samples = min(how.samples or self.tasks.examples, self.tasks.examples)
        return int(self.runs * samples * how.draws * self.model.latent)

    def prediction(self, entry: MethodEntry) -> int:
        """The weights drawn at once, and the rows that pass through the layers."""
        if self.model.latent:
            return 0
        draws, runs = self.values.get("predict_draws", 1) if entry.draws else 1, self.runs
        most = limits(self.device).rows
        at_once = max(1, min(draws, WEIGHTS_IN_FLIGHT // (runs * self.size), most // runs))
        matrices = [shape for shape in self.model.layout(self.tasks.heads).shapes if len(shape) > 1]
        # Draws share the inputs, so only the outputs of the first layer count.
        widest = max(matrices[0][0], *(shape[0] + prod(shape[1:]) for shape in matrices[1:]))
        # Three copies: noise, noise times deviations, and that plus the means.
        rows, drawn = min(max(most, runs * at_once), runs * at_once * self.tasks.tests), 3 * self.size
        if (
            entry.draws and self.values.get("predict_estimator") == "local"
        ):  # one run's rows; no first layer; two copies
            rows, drawn = rows // runs, 2 * (self.size - prod(matrices[0]))
        found: int = FLOAT * (runs * at_once * drawn + rows * widest)
        return found


def available(device: torch.device) -> float:
    """GB available now: on a GPU, memory that is free or cached but unused; otherwise system memory and swap."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(free + unused) / 1e9
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
        there = 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError, IndexError):
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # without a limit the file says "max"
        there = min(there, int(LIMIT.read_text()))
    return there / 1e9


def check_memory(plan: Plan, data: Arrays | None, jobs: int = 1) -> None:
    """Raise VclError unless the plan's methods, ``jobs`` at once, fit into the device's memory."""
    there, all_needed = available(plan.device), []
    for entry in plan.methods:
        lams, tasks = len(plan.grid.get(entry.name, (None,))), look(plan, data)
        need = gigabytes(plan, entry, tasks, lams)
        all_needed.append(need)
        if need > there:
            least = {
                what: gigabytes(other, entry, tasks._replace(number=count), fewer)
                for what, other, count, fewer in _less(plan, entry, lams, tasks)
            }
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


def check_listed(plan: Plan, data: Arrays | None) -> None:
    """Raise VclError if there are too many runs, since the store lists each run by name."""
    runs = plan.setup.run.seeds * max(len(plan.grid.get(entry.name, (None,))) for entry in plan.methods)
    if runs > LISTED:
        check_memory(plan, data)
        raise VclError(f"there are {runs:,} runs at once; give at most {LISTED:,}, by fewer seeds or lambdas.")


def _less(plan: Plan, entry: MethodEntry, lams: int, tasks: Tasks) -> Iterator[tuple[str, Plan, int, int]]:
    """For every setting that is a count: its text, the plan with it set to 1, and the numbers of tasks and lambdas."""
    setup, own = plan.setup, values_of(plan.settings_of(entry))
    for part in ("stream", "network", "prediction", "run"):
        mine = getattr(setup, part)
        for name, value in values_of(mine).items():
            if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, tuple) and value):
                one = with_values(mine, {name: (1,) * len(value) if isinstance(value, tuple) else 1})
                count = 1 if name == "tasks" else tasks.number
                yield f"{name}={text_of(value)}", replace(plan, setup=replace(setup, **{part: one})), count, lams
    for name, value in own.items():
        less = replace(plan, own={**plan.own, entry.name: {**plan.own.get(entry.name, {}), name: 1}})
        if value is None and name.endswith("batch"):
            every = f"all {tasks.examples} examples" if name == "batch" else "all points"
            yield f"{name}=none ({every} at once)", less, tasks.number, lams
        elif isinstance(value, int):
            yield f"{name}={value}", less, tasks.number, lams
    if lams > 1:
        yield f"the grid of {lams} lambdas", plan, tasks.number, 1


def amount(number: float) -> str:
    """A number of GB as text.

    >>> amount(0.002), amount(2.34), amount(1234567.8)
    ('0.002 GB', '2.3 GB', '1,234,568 GB')
    """
    return f"{number:,.0f} GB" if number >= 100 else f"{number:.2g} GB"


def _bytes(data: Data | None) -> int:
    return 0 if data is None else sum(part.untyped_storage().nbytes() for part in (data.x, data.y))
