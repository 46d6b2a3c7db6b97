"""`vcl sweep`: which lambda is best, chosen without looking at the test set unless that is asked for by name.

Methods with a lambda are tuned by final average accuracy. ``validation`` (the default) holds out a part of the training
data, trains on the rest with every lambda, and learns the whole training data anew with the best one. ``test`` chooses
on the test set itself, as the paper did for its baselines; its numbers are then too good, and are labelled so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Any, Literal, NamedTuple

import torch
from rich.console import Console

from vcl.errors import VclError, unknown
from vcl.lab.estimate import check_methods
from vcl.lab.figures import lambda_grid
from vcl.lab.folder import VALIDATION, RunFolder
from vcl.lab.kind import Score
from vcl.lab.plan import Grid, Plan
from vcl.lab.results import Row, Summary, final_score, label, methods
from vcl.lab.runner import set_aside_in
from vcl.lab.session import describe, finished, run_methods, show
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.recursion import require_test_data

Select = Literal["validation", "test"]
SELECTS: tuple[Select, ...] = ("validation", "test")

WARNINGS: dict[Select, str] = {
    "validation": "lambda chosen on held-out training data; the test set took no part in the choice.",
    "test": "lambda CHOSEN ON THE TEST SET (the paper's practice): these numbers are too good.",
}


class Choice(NamedTuple):
    """The best lambda of a method, how good it was where it was chosen, and whether it ends its grid."""

    lam: float
    accuracy: Summary
    edge: bool


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
    return chosen


def hold_out(data: Arrays, share: float) -> Arrays:
    """The training data alone, a random part of it in the test data's place; the same part for every run."""
    size = data.train_x.shape[0]
    held = max(1, round(share * size))
    if held >= size:
        raise VclError(f"holding out {share:g} of {size} training examples leaves none to train on; hold out less.")
    (order,) = Rng((0,)).at("validation").per_run(lambda g: torch.randperm(size, generator=g))
    order = order.to(data.train_x.device)
    test, train = order[:held], order[held:].sort().values  # the rest in its old order
    return Arrays(data.train_x[train], data.train_y[train], data.train_x[test], data.train_y[test], data.classes)


def check_tasks(plan: Plan, held: Arrays, share: float) -> None:
    """Raise one clear sentence unless every task has examples to train on and examples to choose by."""
    try:
        tasks = list(plan.experiment.stream(held, plan.settings, Rng(plan.seeds[:1])))
    except VclError as error:
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


def choose(rows: Sequence[Row], grid: Grid, metric: str = "accuracy") -> dict[str, Choice]:
    """The lambda of each method with the best metric after the last task, over all tasks, meaned over seeds.

    A lambda all of whose runs were set aside has no rows, and cannot be the best.
    """
    chosen, there = {}, set(methods(rows))
    for method, lams in grid.items():
        ends = {lam: final_score(rows, name, metric) for lam in lams if (name := label(method, lam)) in there}
        best = max(ends, key=lambda lam: ends[lam].mean)
        chosen[method] = Choice(best, ends[best], best in (min(lams), max(lams)) and len(lams) > 1)
    return chosen


def sweep(
    plan: Plan, data: Arrays, origin: str, select: Select, share: float, folder: RunFolder, console: Console
) -> dict[str, Choice]:
    """Try every lambda, choose, and leave in ``folder`` the test results of what was chosen (or of all, if on test)."""
    check_methods(plan, data)
    score = plan.experiment.kind.score
    about = {
        **describe(plan, origin, data),
        "select": {"on": select, "validation": share if select == "validation" else None},
    }
    folder.describe(about)
    if select == "validation":
        rest = hold_out(data, share)
        check_tasks(plan, rest, share)
        held = folder.part(VALIDATION)
        seconds = run_methods(plan, rest, held, console)
        for line in set_aside_in(held.notes):
            folder.note(f"{VALIDATION}: {line}")
        chosen = choose(held.rows, plan.grid, score.metric)
        title = f"{plan.experiment.name}, on validation data"
        lambda_grid.draw(held.rows, title, {}, folder.path / "lambda", score=score)
        tell(chosen, select, score, console)
        plan = replace(plan, grid={method: (choice.lam,) for method, choice in chosen.items()})
        again = run_methods(plan, data, folder, console)
        seconds = {method: round(seconds[method] + again[method], 2) for method in seconds}
    else:
        seconds = run_methods(plan, data, folder, console)
        chosen = choose(folder.rows, plan.grid, score.metric)
        tell(chosen, select, score, console)
    total = sum(seconds.values())
    folder.describe({**about, "chosen": {m: _record(c) for m, c in chosen.items()}, **finished(seconds, total)})
    show(plan, about, total, folder, console, f"{WARNINGS[select]}\n\n{_markdown(chosen, score)}\n")
    console.print(WARNINGS[select], soft_wrap=True, highlight=False)
    return chosen


def tell(chosen: dict[str, Choice], select: Select, score: Score, console: Console) -> None:
    """What was chosen, and a word where the grid was too narrow."""
    for method, choice in chosen.items():
        edge = "; it is at the edge of the grid, so a wider one may hold a better" if choice.edge else ""
        value = score.text(choice.accuracy.mean, nan, 2)
        console.print(
            f"{method}: lambda={choice.lam:g} is best, {value} on {select} data{edge}.",
            soft_wrap=True,
            highlight=False,
        )


def _record(choice: Choice) -> dict[str, Any]:
    """For JSON, which has no NaN: a single seed has no error."""
    accuracy = choice.accuracy._asdict() | ({"error": None} if choice.accuracy.seeds == 1 else {})
    return {"lambda": choice.lam, "accuracy": accuracy, "edge": choice.edge}


def _markdown(chosen: dict[str, Choice], score: Score) -> str:
    lines: list[Any] = [f"| method | best lambda | {score.name}{score.unit} where chosen |", "| --- | ---: | ---: |"]
    lines += [f"| {m} | {c.lam:g} | {score.scale * c.accuracy.mean:.2f} |" for m, c in chosen.items()]
    return "\n".join(lines) + "\n"
