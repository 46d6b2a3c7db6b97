"""`vcl sweep`: which lambda is best, chosen without looking at the test set unless that is asked for by name.

``validation`` (the default) holds out a part of the training data, trains on the rest with every lambda, and learns the
whole training data with the best one. ``test`` chooses on the test set itself, as the paper did for its baselines: its
numbers are too good, and are labelled so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rich.console import Console

from vcl.errors import VclError, unknown
from vcl.lab.compute import Elsewhere, compute_all
from vcl.lab.console import say_on
from vcl.lab.estimate import check_methods
from vcl.lab.holding_out import hold_out
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan
from vcl.lab.results import Row
from vcl.lab.show import Choice, choose, sentence
from vcl.lab.store import Store
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.recursion import require_test_data

Select = Literal["validation", "test"]
SELECTS: tuple[Select, ...] = ("validation", "test")

WARNINGS: dict[Select, str] = {
    "validation": "lambda chosen on held-out training data; the test set took no part in the choice.",
    "test": "lambda CHOSEN ON THE TEST SET (the paper's practice): these numbers are too good.",
}


def check(plan: Plan, select: str, share: float) -> Select:
    """Raise one clear sentence unless this can be swept; returns ``select``, checked."""
    chosen = next((known for known in SELECTS if known == select), None)
    if chosen is None:
        raise unknown("way to select", select, SELECTS)
    if not 0 < share < 1:
        raise VclError(f"--validation is {share}; give the share of the training data to hold out, such as 0.1.")
    alone = [entry.name for entry in plan.methods if entry.name not in plan.grid]
    if alone:
        raise VclError(f"{alone[0]} takes no lambda, so there is nothing to sweep; leave it out, or use `vcl run`.")
    if chosen == "validation" and plan.experiment.makes_data:
        raise VclError(f"{plan.experiment.name} makes its own data, of which nothing is held out; give --select test.")
    return chosen


def check_tasks(plan: Plan, held: Arrays, share: float) -> None:
    """Raise one clear sentence unless every task has examples to train on and examples to choose by."""
    try:
        tasks = list(plan.stream(held, Rng((0,))))
    except VclError as error:  # a task that has lost a class
        raise VclError(
            f"holding out {share:g} of the training data leaves {len(held.train_y)} examples to train on and "
            f"{len(held.test_y)} to choose by, and {str(error).partition(';')[0]}; hold out another share."
        ) from error
    for task in tasks:
        for part, what, mend in ((task.train, "train on", "less"), (require_test_data(task), "choose by", "more")):
            if part.size == 0:
                raise VclError(
                    f"holding out {share:g} of the training data leaves task {task.name} no examples to {what}; hold "
                    f"out {mend}."
                )


def sweep(
    plan: Plan,
    data: Loaded,
    select: Select,
    share: float,
    store: Store,
    console: Console,
    jobs: int = 1,
    elsewhere: Elsewhere | None = None,
) -> dict[str, Choice]:
    """Try every lambda, choose, and compute the test results of what was chosen (or of all, if on test)."""
    check_methods(plan, data.arrays, jobs)
    if select == "test" or data.arrays is None:
        rows = _rows(plan, data, store, console, jobs, elsewhere)
        chosen = choose(rows, plan.experiment.evaluation.score.metric)
        tell(plan, chosen, select, console)
        return chosen
    rest = hold_out(data.arrays, share)
    check_tasks(plan, rest, share)
    held = Loaded(rest, data.origin, rest.digest())
    rows = _rows(replace(plan, validation=share), held, store, console, jobs, elsewhere)
    chosen = choose(rows, plan.experiment.evaluation.score.metric)
    tell(plan, chosen, select, console)
    best = replace(plan, grid={method: (choice.lam,) for method, choice in chosen.items()})
    _rows(best, data, store, console, jobs, elsewhere)
    return chosen


def _rows(
    plan: Plan, data: Loaded, store: Store, console: Console, jobs: int, elsewhere: Elsewhere | None
) -> list[Row]:
    parts = [Part(plan, entry, data) for entry in plan.methods]
    return [row for result in compute_all(parts, store, console, jobs, (), elsewhere) for row in result.rows]


def tell(plan: Plan, chosen: dict[str, Choice], select: Select, console: Console) -> None:
    """What was chosen, and a word where the grid was too narrow."""
    for method, choice in chosen.items():
        score = plan.experiment.evaluation.score
        say_on(console, sentence(method, choice, score, select == "validation"))
