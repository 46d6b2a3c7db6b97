from __future__ import annotations

from io import StringIO

import pytest
import torch
from lab_made import NOWHERE, triangle_rows
from rich.console import Console

from vcl.fitting.loop import Progress
from vcl.lab.classification import CLASSIFICATION
from vcl.lab.progress import Watch, summary_line, watching
from vcl.lab.runner import FinishedTask


@pytest.mark.parametrize("terminal", [True, False])
def test_a_note_of_a_finished_fit_is_told_once(terminal: bool) -> None:
    """The effective sample size of SMC, for one, which nobody would see otherwise."""
    out = StringIO()
    with watching(Console(file=out, force_terminal=terminal, width=120)) as watch:
        watch.begin("smc", 1)
        for percent in (40, 100):
            watch.epoch(
                Progress("SMC, effective sample size", percent, 100, torch.zeros(2), "at least 7 of 9 particles")
            )
    assert out.getvalue().count("SMC, effective sample size: at least 7 of 9 particles") == 1


def done(number: int, tasks: int = 4, seconds: float = 1.0, seeds: int = 2) -> FinishedTask:
    """Accuracy 0.9 - seed / 10 on every task so far."""
    values = {seed: [[0.9 - seed / 10] * n for n in range(1, number + 1)] for seed in range(seeds)}
    rows = [row for row in triangle_rows("vcl", values) if row.after == number]
    return FinishedTask("vcl", f"task {number}!", number, tasks, seconds, rows, NOWHERE, CLASSIFICATION.score)


def test_summary_line() -> None:
    # 90 and 80: mean 85, standard error 5.
    assert summary_line(done(2, seconds=1.26)) == (
        "vcl: task 2 of 4 (task 2!) in 1.3 s, average accuracy so far 85.0 ± 5.0 %"
    )
    assert summary_line(done(2, seeds=1)).endswith("average accuracy so far 90.0 %")


def test_the_summary_line_of_a_grid_is_that_of_its_best() -> None:
    rows = [
        row
        for name, values in (("ewc lambda=1", [0.7, 0.9]), ("ewc lambda=10", [0.8, 0.9]), ("ewc lambda=100", [0.2, 1]))
        for row in triangle_rows(name, {seed: [[value]] for seed, value in enumerate(values)})
    ]
    assert summary_line(FinishedTask("ewc", "0/1", 1, 2, 1.0, rows, NOWHERE, CLASSIFICATION.score)) == (
        "ewc: task 1 of 2 (0/1) in 1.0 s, average accuracy so far 85.0 ± 5.0 % with ewc lambda=10, the best of 3"
    )


def run_with(console: Console) -> None:
    watch: Watch
    with watching(console) as watch:
        watch.begin("vcl", 3)
        for number, seconds in enumerate([1.0, 3.0, 2.0], start=1):
            for epoch in (1, 2):
                watch.epoch(Progress("variational fit", epoch, 2, torch.zeros(2)))
            watch.task(done(number, tasks=3, seconds=seconds))


def test_plain_lines_where_there_is_no_terminal() -> None:
    out = StringIO()
    run_with(Console(file=out, width=40))  # narrow: a line is one line all the same
    start = "average accuracy so far 85.0 ± 5.0 %"
    assert out.getvalue().splitlines() == [
        f"vcl: task 1 of 3 (task 1!) in 1.0 s, {start}, about 2 s left",
        f"vcl: task 2 of 3 (task 2!) in 3.0 s, {start}, about 2 s left",
        f"vcl: task 3 of 3 (task 3!) in 2.0 s, {start}",
    ]


def test_the_time_left_starts_anew_with_each_method() -> None:
    out = StringIO()
    with watching(Console(file=out)) as watch:
        watch.begin("slow", 3)
        watch.task(done(1, tasks=3, seconds=1000.0))
        watch.begin("vcl", 3)
        watch.task(done(1, tasks=3, seconds=1.0))
    assert out.getvalue().splitlines()[1].endswith("about 2 s left")


def test_bars_on_a_terminal() -> None:
    out = StringIO()
    run_with(Console(file=out, force_terminal=True, width=120, color_system=None))
    text = out.getvalue()
    assert "vcl: tasks" in text
    assert "variational fit: epochs" in text
    assert "━" in text
    assert "3/3" in text
    assert "vcl: task 3 of 3 (task 3!) in 2.0 s, average accuracy so far 85.0 ± 5.0 %" in text
    assert "about" not in text, "the bars show the time left themselves"
