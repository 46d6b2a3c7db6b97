"""The items of `vcl paper` in the paper's order, followed by items beyond the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path

from vcl.errors import unknown
from vcl.lab.experiments.experiment import Preset
from vcl.lab.figures import (
    average_accuracy,
    coreset_sizes,
    lambda_grid,
    per_task,
    variants,
)
from vcl.lab.figures import linear_memory as linear_memory_figure
from vcl.lab.figures import toy2d as toy2d_figure
from vcl.lab.paper import beyond, linear_memory, toy2d
from vcl.lab.paper.generators import MEASURES, best_generators, draw_generators, generators
from vcl.lab.paper.item import (
    PAPER_GRID,
    TUNED,
    Context,
    Item,
    Request,
    Shown,
    StreamItem,
    TableItem,
    best_of_grids,
    everything,
)
from vcl.lab.paper.ordering import orders
from vcl.lab.results import Row, label, methods

VCL = ("vcl", "vcl-random", "vcl-kcenter", "random-only", "kcenter-only")


def comparison(name: str, *more: str) -> list[Request]:
    """Requests for VCL with and without coresets, coresets alone, and the tuned baselines."""
    plain = [Request(name, method) for method in (*VCL, *more)]
    return plain + [Request(name, method, grid=PAPER_GRID) for method in TUNED]


def draw_average(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw figure 2."""
    return average_accuracy.draw(rows, shown.title, shown.paper, shown.path)


def draw_per_task(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw figures 4 and 5."""
    return per_task.draw(rows, shown.title, shown.paper, shown.path, shown.tasks)


def draw_lambda(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw the appendix's tuning figures."""
    several = any(name.partition(" lambda=")[0].endswith("single-head") for name in methods(rows))

    def group(method: str) -> str:
        return ("single-head" if method.endswith("single-head") else "multi-head") if several else ""

    return lambda_grid.draw(rows, shown.title, shown.paper, shown.path, group)


SIZES: Mapping[Preset, tuple[int, ...]] = {
    "paper": (200, 400, 1000, 2500, 5000),
    "quick": (200, 400, 1000),
    "smoke": (10, 20),
}


def sizes(context: Context) -> list[Request]:
    """Requests of figure 3: VCL + random coresets of growing size, and the coresets alone."""
    made = [Request("permuted-mnist", "vcl")]
    for size in SIZES[context.preset]:
        for method in ("vcl-random", "random-only"):
            named = label(method, size, "coreset")
            seeds = FEW if size >= LARGE else None
            made.append(Request("permuted-mnist", method, (f"coreset={size}",), label=named, seeds=seeds))
    return made


def draw_sizes(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw figure 3."""
    return coreset_sizes.draw(rows, shown.title, shown.paper, shown.path)


def lambdas(name: str, single_head: bool) -> list[Request]:
    """Requests for the paper's grids; with ``single_head`` also EWC and SI with a single head."""
    made = [Request(name, method, grid=PAPER_GRID) for method in TUNED]
    if single_head:
        for method in ("ewc", "si"):
            made.append(Request(name, method, ("heads=single",), PAPER_GRID, f"{method} single-head"))
    return made


LARGE = 2500
"""Coresets of at least this size get fewer seeds, since their cost grows with size."""

FEW = 5
"""Seeds of large coresets, and, in the paper preset, of variants that are in no figure of the paper."""

INIT_VARS: Mapping[Preset, tuple[float, ...]] = {
    "paper": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
    "quick": (1e-6, 1e-4, 1e-2, 1.0),
    "smoke": (1e-6, 1.0),
}
ESTIMATORS = ("weights", "local")
SCHEDULES = ("constant", "cosine")


def estimators(context: Context) -> list[Request]:
    """Requests for ways to estimate and maximise the lower bound (Permuted), and for initial variances (Split)."""
    few = FEW if context.preset == "paper" else None

    def permuted(named: str, method: str, *changes: str, seeds: int | None = few) -> Request:
        return Request("permuted-mnist", method, changes, None, named, seeds)

    made = [permuted("weights, constant rate", "vcl", "estimator=weights", "schedule=constant", seeds=None)]
    made += [
        permuted(f"{how}, {rate} rate", "vcl", f"estimator={how}", f"schedule={rate}")
        for how in ESTIMATORS
        for rate in SCHEDULES
        if (how, rate) != ("weights", "constant")
    ]
    made += [
        permuted("vcl-restart", "vcl-restart", "estimator=weights", seeds=None),
        permuted("vcl-restart, local", "vcl-restart", "estimator=local"),
        permuted("vcl-restart, init_var=e^-6", "vcl-restart", "estimator=weights", f"init_var={exp(-6)!r}"),
        permuted(
            "vcl-restart, constant rate, averaged",
            "vcl-restart",
            "estimator=weights",
            "schedule=constant",
            "average=0.5",
        ),
        permuted("vcl-restart + random coreset", "vcl-restart-random", "estimator=weights", seeds=None),
    ]
    made += [
        Request("split-mnist", "vcl", (f"estimator={how}", f"init_var={var:g}"), None, f"{how}, init_var={var:g}")
        for how in ESTIMATORS
        for var in INIT_VARS[context.preset]
    ]
    return made


def draw_estimators(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw one row per variant, Permuted above Split."""
    named = methods(rows)
    split = [name for name in named if "init_var" in name and "restart" not in name]
    groups = {"Permuted MNIST": [name for name in named if name not in split], "Split MNIST": split}
    return variants.draw(rows, shown.title, shown.paper, shown.path, groups=groups)


def draw_variants(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw one row per variant."""
    return variants.draw(rows, shown.title, shown.paper, shown.path)


ITEMS: tuple[Item, ...] = (
    StreamItem(
        "fig2",
        "Permuted MNIST: average accuracy against tasks, all methods",
        "section 6.1, figure 2",
        lambda context: comparison("permuted-mnist"),
        best_of_grids,
        draw_average,
    ),
    StreamItem(
        "fig3",
        "Permuted MNIST: the size of the coreset",
        "section 6.1, figure 3",
        sizes,
        everything,
        draw_sizes,
    ),
    StreamItem(
        "fig4",
        "Split MNIST: accuracy on each task, all methods and batch VI",
        "section 6.1, figure 4",
        lambda context: comparison("split-mnist", "batch-vi"),
        best_of_grids,
        draw_per_task,
    ),
    StreamItem(
        "fig5",
        "Split notMNIST (the small set, where the paper had 400,000 images): accuracy on each task",
        "section 6.1, figure 5",
        lambda context: comparison("split-notmnist", "batch-vi"),
        best_of_grids,
        draw_per_task,
    ),
    StreamItem(
        "generative-mnist",
        "generators of one MNIST digit a task: test log-likelihood and classifier uncertainty",
        "section 6.2, figures 6 and 7",
        lambda context: generators("generative-mnist"),
        best_generators,
        draw_generators,
        MEASURES,
    ),
    StreamItem(
        "generative-notmnist",
        "generators of one notMNIST letter a task (the small set)",
        "section 6.2, figures 6 and 7",
        lambda context: generators("generative-notmnist"),
        best_generators,
        draw_generators,
        MEASURES,
    ),
    StreamItem(
        "lambda-permuted",
        "Permuted MNIST: lambda of SI, EWC and LP",
        "appendix A",
        lambda context: lambdas("permuted-mnist", single_head=False),
        everything,
        draw_lambda,
    ),
    StreamItem(
        "lambda-split",
        "Split MNIST: lambda of SI, EWC and LP, multi-head and single-head",
        "appendix B",
        lambda context: lambdas("split-mnist", single_head=True),
        everything,
        draw_lambda,
    ),
    StreamItem(
        "lambda-notmnist",
        "Split notMNIST: lambda of SI, EWC and LP, multi-head and single-head",
        "appendix C",
        lambda context: lambdas("split-notmnist", single_head=True),
        everything,
        draw_lambda,
    ),
    TableItem(
        "toy2d",
        "two tasks of 2-D Gaussians: probability contours of VCL and EWC",
        "appendix D",
        toy2d.SETTINGS,
        toy2d.compute,
        toy2d.measures,
        toy2d.by_seed,
        toy2d_figure.draw,
    ),
    TableItem(
        "linear-memory",
        "the memory of linear regression for random patterns, with its theory",
        "appendix F",
        linear_memory.SETTINGS,
        linear_memory.compute,
        linear_memory.measures,
        linear_memory.by_seed,
        linear_memory_figure.draw,
    ),
    StreamItem(
        "estimators",
        "local or drawn weights, initial variance, starts and rates: what the text says and what the code did",
        "beyond the paper",
        estimators,
        everything,
        draw_estimators,
    ),
    StreamItem(
        "ordering",
        "Split MNIST with each task as different from the last as can be, against random orders",
        "beyond the paper, which leaves it to future work (section 6.2)",
        orders,
        everything,
        draw_variants,
    ),
    StreamItem(
        "beyond",
        "Kronecker-factored posteriors and generators that classify, on harder streams",
        "beyond the paper",
        beyond.requests,
        everything,
        beyond.draw,
        beyond.MEASURES,
    ),
)


def item(name: str) -> Item:
    """The item of this name."""
    for entry in ITEMS:
        if entry.name == name:
            return entry
    raise unknown("item", name, [entry.name for entry in ITEMS])
