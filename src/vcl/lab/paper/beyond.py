"""The item `beyond`: posteriors that hold, on the paper's streams and on harder ones.

Methods with Kronecker factors have lambda = 1, which is Bayes' rule; EWC and LP of generators have the preset's lambda.
No setting of a line was chosen here. ``tried`` is what was tried for a method on a stream before, on held-out data, as
docs/decisions/0020 and 0021 report; settings of the paper's authors count as one. Mean-field VCL is beside them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from vcl.lab.experiments.experiment import Preset
from vcl.lab.figures import average_accuracy, variants
from vcl.lab.folder import write_atomic
from vcl.lab.paper.item import ACCURACY, Context, Measured, Request, Shown, measure
from vcl.lab.plan import make_plan
from vcl.lab.results import Row, methods, summarise
from vcl.lab.settings import values_of
from vcl.ops.rng import Rng

KRONECKER = ("lp-kron", "ewc-kron", "vcl-kron")
MEASURES = (
    ACCURACY,
    Measured("log predictive", " log predictive"),
    Measured("calibration error", " calibration"),
)
SEPARATOR = ": "


class Line(NamedTuple):
    """A method on a stream: the stream's title, its experiment, the method, changed settings, and a label."""

    title: str
    experiment: str
    method: str
    changes: tuple[str, ...] = ()
    label: str | None = None
    seeds: int | None = None
    """Fewer seeds than the preset's, for a long stream."""
    tried: int = 1
    """The settings tried on this stream."""


FEW = 3
TRIED = {
    ("permuted-mnist", (), "lp-kron"): 6, ("permuted-mnist", (), "vcl-kron"): 2,
    ("permuted-mnist", ("tasks=50",), "vcl-kron"): 8,
    ("split-mnist", (), "lp-kron"): 8, ("split-mnist", (), "vcl-kron"): 2,
    ("split-mnist", ("heads=shared",), "lp-kron"): 8, ("split-mnist", ("heads=shared",), "vcl-kron"): 2,
}  # fmt: skip
"""Settings tried by stream and method, where there were several: the cells of the tables in docs/decisions/0020."""

LONG: dict[Preset, int] = {"paper": 50, "quick": 10, "smoke": 3}
"""The tasks of the long stream."""


def lines(preset: Preset) -> list[Line]:
    """All lines of the table."""
    tasks, few = LONG[preset], FEW if preset == "paper" else None

    def each(title: str, name: str, methods: Sequence[str], *changes: str, seeds: int | None = None) -> list[Line]:
        found = [TRIED.get((name, changes, method), 1) for method in methods]
        made = zip(methods, found, strict=True)
        return [Line(title, name, method, changes, seeds=seeds, tried=tried) for method, tried in made]

    generators, one_head = "MNIST, a class a task: generators", "MNIST, a class a task: one head"
    letters = "notMNIST (small), a class a task: generators"
    return [
        *each("Permuted MNIST", "permuted-mnist", ("vcl", "vcl-restart", *KRONECKER, "vcl-kron-random")),
        *each(
            f"Permuted MNIST, {tasks} tasks",
            "permuted-mnist",
            ("vcl", "vcl-restart", "lp-kron", "vcl-kron"),
            f"tasks={tasks}",
            seeds=few,
        ),
        *each("Split MNIST", "split-mnist", ("vcl", *KRONECKER, "lp-kron-random", "vcl-kron-random")),
        *each("Split MNIST, two shared outputs", "split-mnist", ("vcl", *KRONECKER), "heads=shared"),
        *each("Split MNIST, one head", "split-mnist", ("vcl", "lp-kron", "vcl-kron"), "heads=single"),
        *each("Split MNIST, convolutions", "split-mnist-conv", ("vcl", "ewc", "lp-kron", "vcl-kron")),
        *each("Split notMNIST (small)", "split-notmnist", ("vcl", *KRONECKER)),
        *each(generators, "class-incremental-mnist", ("vcl",)),
        *each(generators, "class-incremental-mnist", ("naive", "ewc", "lp"), seeds=few),
        Line(generators, "class-incremental-mnist", "naive", ("private=both",), "independent VAEs", few),
        Line(generators, "class-incremental-mnist", "vcl", ("encoder=shared",), "vcl, shared encoder", few),
        *each(one_head, "single-head-mnist", ("vcl", "vcl-random", "random-only", "lp-kron"), seeds=few),
        *each(letters, "class-incremental-notmnist", ("vcl",), seeds=few),
    ]


def requests(context: Context) -> list[Request]:
    """One part for each line."""
    return [
        Request(
            line.experiment, line.method, line.changes, None,
            f"{line.title}{SEPARATOR}{line.label or line.method}", line.seeds, facts(line, context),
        )
        for line in lines(context.preset)
    ]  # fmt: skip


def facts(line: Line, context: Context) -> dict[str, str]:
    """The points remembered of a task, the network's parameters after the last task, and the settings tried."""
    plan = make_plan(line.experiment, line.method, context.preset, None, "cpu", line.changes)
    entry, stream = plan.methods[0], plan.stream(context.load(line.experiment).arrays, Rng((0,)))
    heads = dict(stream.make(0).heads)
    if stream.size > 1 and stream.make(1).heads != heads:  # otherwise all tasks share them
        heads |= {head: units for task in range(1, stream.size) for head, units in stream.make(task).heads.items()}
    with torch.device("meta"):  # shapes alone
        parameters = plan.model(stream.shape).layout(heads).size
    kept = values_of(plan.settings_of(entry)).get("coreset", 0)
    return {"memory": f"{kept} a task" if kept else "none", "parameters": str(parameters), "tried": str(line.tried)}


def table(rows: Sequence[Row], known: Mapping[str, Mapping[str, str]]) -> str:
    """A line for each method on a stream, as CSV: the measures after the last task, and what else is known of it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("stream", "method", "memory", "parameters", "tried", *(each.metric for each in MEASURES), "seeds"))
    for name in methods(rows):
        title, _, method = name.rpartition(SEPARATOR)
        found = [summarise(torch.tensor([*measure(rows, name, each).values()])) for each in MEASURES]
        shown = [one.text() for one in found]
        writer.writerow((title, method, *known[name].values(), *shown, found[0].seeds))
    return out.getvalue()


def draw(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Write the table of lines; draw one row per method and stream, and every stream's accuracy against tasks."""
    groups: dict[str, list[str]] = {}
    write_atomic(shown.path.with_name("lines.csv"), table(rows, shown.facts))
    for name in methods(rows):
        groups.setdefault(name.rpartition(SEPARATOR)[0], []).append(name)
    figures = variants.draw(rows, shown.title, shown.paper, shown.path, groups=groups)
    for number, (title, names) in enumerate(groups.items(), start=1):
        mine = [
            row._replace(method=row.method.rpartition(SEPARATOR)[2]) for row in rows if row.method in names
        ]  # fmt: skip
        figures += average_accuracy.draw(mine, title, {}, shown.path.with_name(f"{shown.path.name}-{number}"))
    return figures
