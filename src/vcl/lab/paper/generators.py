"""Generators (section 6.2): the methods to run, the rows and metrics to show, and the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcl.lab.figures import generator_metrics, sample_grid
from vcl.lab.figures.style import save
from vcl.lab.generative.quality import LIKELIHOOD, UNCERTAINTY
from vcl.lab.paper.item import (
    PAPER_GRID,
    TUNED,
    Measured,
    Request,
    Shown,
    best_of_grids,
    first_one_later,
    first_when_learned,
    kept_since_learned,
    late_when_learned,
    when_learned,
)
from vcl.lab.results import Row, methods
from vcl.lab.results import shown as label_shown

GENERATORS = ("vcl", "vcl-random", "naive")


def generators(name: str) -> list[Request]:
    """Requests for VCL with and without a coreset, the naive online VAE, and the tuned baselines."""
    plain = [Request(name, method) for method in GENERATORS]
    return plain + [Request(name, method, grid=PAPER_GRID) for method in TUNED]


def best_generators(rows: Sequence[Row]) -> list[Row]:
    """Rows with only the best lambda of every grid, by test log-likelihood."""
    return best_of_grids(rows, LIKELIHOOD)


def draw_generators(rows: Sequence[Row], shown: Shown) -> list[Path]:
    """Draw a figure per metric, and each method's samples after every task; returns the files."""
    tasks = shown.tasks
    first, second = (generator_metrics.picture(rows, shown.title, each, tasks) for each in generator_metrics.MEASURES)
    made = save(first, shown.path) + save(second, shown.path.with_name(f"{shown.path.name}-uncertainty"))
    for name in [name for name in methods(rows) if name in shown.pictures]:
        path = shown.path.with_name(f"{shown.path.name}-samples-{name.replace(' ', '-')}")
        images = [step[:, 0] for step in shown.pictures[name]]
        made += sample_grid.draw(images, tasks, f"{shown.path.name}: {label_shown(name)}", path)
    return made


MEASURES = (
    Measured(LIKELIHOOD),
    Measured(LIKELIHOOD, " when learned", take=when_learned),
    Measured(UNCERTAINTY, " uncertainty"),
    Measured(LIKELIHOOD, " kept since learned", take=kept_since_learned, listed=False),
    Measured(LIKELIHOOD, " on the first task when learned", take=first_when_learned, listed=False),
    Measured(LIKELIHOOD, " on the first task one later", take=first_one_later, listed=False),
    Measured(LIKELIHOOD, " from the eighth task on when learned", take=late_when_learned, listed=False),
)
