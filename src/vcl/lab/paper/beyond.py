"""The item `beyond`: posteriors that hold, on the paper's streams and on harder ones.

Every line has the default lambda = 1, which is Bayes' rule: no setting of it was chosen on test data. Mean-field VCL is
beside it on streams that the paper does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vcl.lab.experiments.experiment import Preset
from vcl.lab.figures import average_accuracy, variants
from vcl.lab.paper.item import ACCURACY, Context, Measured, Request, Shown
from vcl.lab.results import Row, methods

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


FEW = 3
LONG: dict[Preset, int] = {"paper": 50, "quick": 10, "smoke": 3}
"""The tasks of the long stream."""


def lines(preset: Preset) -> list[Line]:
    """All lines of the table."""
    tasks, few = LONG[preset], FEW if preset == "paper" else None

    def each(title: str, name: str, methods: Sequence[str], *changes: str, seeds: int | None = None) -> list[Line]:
        return [Line(title, name, method, changes, seeds=seeds) for method in methods]

    generators, one_head = "MNIST, a class a task: generators", "MNIST, a class a task: one head"
    letters = "notMNIST (small), a class a task: generators"
    return [
        *each("Permuted MNIST", "permuted-mnist", ("vcl", "vcl-restart", *KRONECKER, "vcl-kron-random")),
        *each(f"Permuted MNIST, {tasks} tasks", "permuted-mnist", ("lp-kron", "vcl-kron"), f"tasks={tasks}", seeds=few),
        *each("Split MNIST", "split-mnist", ("vcl", *KRONECKER, "vcl-kron-random")),
        *each("Split MNIST, two shared outputs", "split-mnist", ("vcl", *KRONECKER), "heads=shared"),
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
            f"{line.title}{SEPARATOR}{line.label or line.method}", line.seeds,
        )
        for line in lines(context.preset)
    ]  # fmt: skip


def draw(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw one row per method and stream, and for every stream its accuracy against tasks."""
    groups: dict[str, list[str]] = {}
    for name in methods(rows):
        groups.setdefault(name.rpartition(SEPARATOR)[0], []).append(name)
    figures = variants.draw(rows, shown.title, shown.paper, shown.path, groups=groups)
    for number, (title, names) in enumerate(groups.items(), start=1):
        mine = [
            row._replace(method=row.method.rpartition(SEPARATOR)[2]) for row in rows if row.method in names
        ]  # fmt: skip
        figures += average_accuracy.draw(mine, title, {}, shown.path.with_name(f"{shown.path.name}-{number}"))
    return figures
