"""Runs that leave the finite numbers, from `vcl run`, `sweep` and `paper`: rows of the others, and a word on why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import among_digits, call, known, part_folder, shown_rows

from vcl.beliefs.mean_field import MeanField
from vcl.errors import NonFiniteError
from vcl.fitting.loop import Report
from vcl.lab import learning, runner
from vcl.lab.results import Row, read_csv
from vcl.lab.show import choose
from vcl.ops.rng import Rng
from vcl.recursion import State, Task, learn, set_runs_aside

SMOKE = "run split-digits --preset smoke --method {} --set epochs=2 --device cpu --out {}"
"""On a CPU, where a run ends at the same bits whatever stands beside it."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return among_digits(tmp_path, monkeypatch)


Spoil = Callable[[int, int], None]


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """In some task, one of the runs that the stream began with leaves the finite numbers."""

    def now(run: int, t: int) -> None:
        def spoiled(
            state: State[Any], tasks: list[Task], model: Any, method: Any, rng: Rng, report: Report
        ) -> Iterator[State[Any]]:
            if state.t + 1 == t:
                error = NonFiniteError("seed so-and-so is infinite.", [state.alive.index(run)], "it is infinite.")
                state = set_runs_aside(state, error, t, method, rng)
            return learn(state, tasks, model, method, rng, report)

        monkeypatch.setattr(runner, "learn", spoiled)

    return now


def of_seed(rows: list[Row], seed: int) -> list[Row]:
    return [row for row in rows if row.seed == seed]


def test_a_run_writes_the_rows_of_the_others_and_says_whom_it_is_without(here: Path, spoil: Spoil) -> None:
    assert call(SMOKE.format("vcl", "whole")).exit_code == 0
    spoil(1, 2)
    result = call(SMOKE.format("vcl", "out"))
    assert result.exit_code == 0, result.exception
    whole, rows = (shown_rows(here / name) for name in ("whole", "out"))
    assert {row.seed for row in rows} == {0}
    assert rows == of_seed(whole, 0), "bit for bit"
    line = "vcl: 1 of 2 runs set aside: seed 1 in task 2: it is infinite."
    assert result.output.count(line) == 2, "when it happens, and with the table"
    assert line in (here / "out" / "table.md").read_text()
    about = known(here / "out", "split-digits-vcl")
    (note,) = about["notes"]
    assert note.startswith(line)
    assert [(each["run"], each["task"]) for each in about["set_aside"]] == [(1, 2)]
    kept = read_csv(part_folder(here / "out", "split-digits-vcl") / "rows.csv")
    assert [row for row in kept if row.seed == 1] == [row for row in whole if row.seed == 1 and row.after == 1]
    # What is said belongs to the numbers, whenever they are shown.
    for again in (SMOKE.format("vcl", "out"), "show out"):
        result = call(again)
        assert result.exit_code == 0, result.exception
        assert result.output.count(line) == 1
        assert shown_rows(here / "out") == rows


def test_predictions_that_are_not_finite_set_a_run_aside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(state: State[Any], tasks: list[Task], *rest: Any) -> Iterator[State[Any]]:
        for after in learn(state, tasks, *rest):
            q = after.propagated
            if after.t < 2:
                yield after
                continue
            mean = q.mean.clone()
            mean[0] = torch.nan
            q = MeanField(q.layout, mean, q.log_var)
            yield after._replace(propagated=q, predictive=dict.fromkeys(after.predictive, q))

    monkeypatch.setattr(runner, "learn", spoiled)
    result = call(SMOKE.format("vcl", "out"))
    assert result.exit_code == 0, result.exception
    assert "1 of 2 runs set aside: seed 0 in task 2: the predictions on task 1 (0/1) are not finite" in result.output
    assert {row.seed for row in shown_rows(here / "out")} == {1}


def test_no_run_left_is_an_error_as_before(here: Path) -> None:
    result = call(SMOKE.format("vcl --set lr=1e30", "out"))
    assert isinstance(result.exception, NonFiniteError)
    assert "(seed 0, 1)" in str(result.exception)


@pytest.mark.parametrize("select", ["validation", "test"])
def test_a_lambda_without_runs_is_never_the_best(here: Path, spoil: Spoil, select: str) -> None:
    """Two lambdas with one seed each: the first is gone in task 2."""
    spoil(0, 2)
    line = f"sweep split-digits --preset smoke --seeds 1 --grid lambda=1,100 --select {select} --out out"
    result = call(line)
    assert result.exit_code == (0 if select == "test" else 1), "the best one alone diverges too on all training data"
    assert "ewc: 1 of 2 runs set aside: seed 0 (lambda 1) in task 2: " in result.output
    assert "ewc: lambda=100 is best" in result.output
    if select == "test":
        assert {row.method for row in shown_rows(here / "out")} == {"ewc lambda=100"}
        assert "seed 0 (lambda 1) in task 2" in (here / "out" / "table.md").read_text()


def test_a_sweep_records_what_was_set_aside_on_validation_data(here: Path, spoil: Spoil) -> None:
    spoil(1, 2)  # of four runs at first (two lambdas and two seeds), of two at the end
    result = call("sweep split-digits --preset smoke --seeds 2 --grid lambda=1,100 --out out")
    assert result.exit_code == 0, result.exception
    chosen = choose(shown_rows(here / "out", "split-digits-validation"), "accuracy")["ewc"]
    parts = {json.loads(path.read_text())["validation"]: path for path in (here / "out").glob("parts/*/part.json")}
    wanted = {
        0.1: "ewc: 1 of 4 runs set aside: seed 1 (lambda 1)",
        None: f"ewc: 1 of 2 runs set aside: seed 1 (lambda {chosen.lam:g})",
    }
    table = (here / "out" / "table.md").read_text()
    for share, line in wanted.items():
        (note,) = json.loads(parts[share].read_text())["notes"]
        assert note.startswith(f"{line} in task 2")
        assert note in table


def test_items_of_the_paper_are_of_the_others_and_say_so_again_when_they_are_kept(here: Path, spoil: Spoil) -> None:
    spoil(1, 2)
    item = "paper fig4 --preset smoke --seeds 2 --out out"
    first = call(item)
    assert first.exit_code == 0, first.exception
    second = call(item)
    assert second.exit_code == 0, second.exception
    line = "vcl: 1 of 2 runs set aside: seed 1 in task 2: "
    for result in (first, second):
        assert line in result.output
        assert "(1 seeds)" in result.output
    document = (here / "out" / "table.md").read_text()
    assert "Numbers are without the runs that left the finite numbers:" in document
    assert line in document
    rows = read_csv(here / "out" / "fig4" / "rows.csv")
    assert {row.seed for row in rows if row.method == "vcl"} == {0}, "a grid may choose a lambda that lost no run"


@pytest.mark.parametrize("item", ["fig4", "generative-mnist"])
def test_a_part_that_was_stopped_goes_on_without_the_run(
    here: Path, spoil: Spoil, monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    """Rows and pictures of the time when it was there are on disk, and are left out."""
    spoil(1, 2)
    line = f"paper {item} --preset smoke --seeds 2 --set tasks=3 --out "
    assert call(line + "whole").exit_code == 0
    real = learning.run_method

    def stopped(*args: Any) -> Iterator[Any]:
        for done in real(*args):
            yield done
            if done.number == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(learning, "run_method", stopped)
    call(line + "out")
    monkeypatch.setattr(learning, "run_method", real)
    result = call(line + "out")
    assert result.exit_code == 0, result.exception
    assert "continues after task 2" in result.output
    assert read_csv(here / "out" / item / "rows.csv") == read_csv(here / "whole" / item / "rows.csv")
