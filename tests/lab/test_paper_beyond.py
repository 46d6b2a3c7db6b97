"""The item `beyond`: what each line remembers, how large it is, and what was tried."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path
from typing import Any

import pytest
from lab_made import images

from vcl.lab.paper import beyond
from vcl.lab.paper.item import Context
from vcl.lab.part import Loaded
from vcl.lab.plan import make_plan
from vcl.lab.results import Row

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def context() -> Context:
    made = images()
    return Context("smoke", lambda name: Loaded(made, "digits", made.digest()))


def test_every_line_says_what_it_remembers_and_how_large_it_is(context: Context) -> None:
    made = {request.label: request.facts for request in beyond.requests(context)}
    assert len(made) == len(beyond.lines("smoke")), "labels are unique"
    first = made["Permuted MNIST: vcl-kron"]
    assert first["memory"] == "none"
    hidden, inputs = 20, images().train_x[0].numel()
    assert int(first["parameters"]) == hidden * (inputs + 1) + 10 * (hidden + 1)
    assert made["Permuted MNIST: vcl-kron-random"]["memory"].endswith(" a task")
    assert made["Split MNIST: lp-kron-random"]["memory"].endswith(" a task")
    assert made["Permuted MNIST: vcl"]["tried"] == "1"
    two = made["Split MNIST: vcl-kron"], made["Split MNIST, one head: vcl-kron"]
    assert int(two[0]["parameters"]) == hidden * (inputs + 1) + 2 * 2 * (hidden + 1), "a head of two for both tasks"
    assert int(two[1]["parameters"]) == hidden * (inputs + 1) + 10 * (hidden + 1)


def test_what_was_tried_are_the_cells_of_the_decisions_table(context: Context) -> None:
    shown = {(line.title, line.method): line.tried for line in beyond.lines("paper")}
    assert shown["Permuted MNIST", "lp-kron"] == 6
    assert shown["Permuted MNIST, 50 tasks", "lp-kron"] == 1
    assert shown["Permuted MNIST, 50 tasks", "vcl-kron"] == 8
    assert shown["Split MNIST, two shared outputs", "lp-kron"] == 8
    assert {(line.experiment, line.changes, line.method) for line in beyond.lines("paper")} >= set(beyond.TRIED)


def test_long_streams_and_one_head_have_mean_field_beside_them() -> None:
    shown = {(line.title, line.method) for line in beyond.lines("paper")}
    assert {("Permuted MNIST, 50 tasks", "vcl"), ("Split MNIST, one head", "vcl")} <= shown
    for line in beyond.lines("paper"):
        make_plan(line.experiment, line.method, "paper", None, "cpu", line.changes)


def test_the_table_has_the_last_tasks_measures() -> None:
    def row(seed: int, after: int, on: int, metric: str, value: float) -> Row:
        return Row("A stream: vcl", seed, after, on, metric, value)

    values = {"accuracy": 0.25, "log predictive": -1.0, "calibration error": 0.01}
    rows = [
        row(seed, after, on, metric, value * after + seed)
        for seed in range(2) for after in (1, 2) for on in range(1, after + 1) for metric, value in values.items()
    ]  # fmt: skip
    facts: dict[str, Any] = {"A stream: vcl": {"memory": "none", "parameters": "7", "tried": "3"}}
    (line,) = csv.DictReader(beyond.table(rows, facts).splitlines())
    assert line == {
        "stream": "A stream", "method": "vcl", "memory": "none", "parameters": "7", "tried": "3",
        "accuracy": "100.000 ± 50.000", "log predictive": "-1.500 ± 0.500", "calibration error": "0.520 ± 0.500",
        "seeds": "2",
    }  # fmt: skip


def test_published_rows_belong_to_lines_of_the_item() -> None:
    script = runpy.run_path(str(RESULTS / "beyond.py"))
    labels = {f"{line.title}{beyond.SEPARATOR}{line.label or line.method}" for line in beyond.lines("paper")}
    assert script["SOURCES"].keys() <= labels
    for label, source in script["SOURCES"].items():
        rows = script["published"](label, *source)
        assert {row.method for row in rows} == {label}
        assert max(row.after for row in rows) in {5, 10, 50}
    with (RESULTS / "beyond" / "lines.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 1 + len(script["SOURCES"]), "run results/beyond.py again"
