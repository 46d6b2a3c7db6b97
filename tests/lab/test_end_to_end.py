"""The paper's claim, on real digits through the command line: VCL forgets far less, and with a coreset least."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vcl.lab.cli import app
from vcl.lab.results import Row, Summary, final, matrix, read_csv

METHODS = ("mle", "vcl", "vcl-random")
SETTINGS = {
    "tasks": "3",
    "hidden": "100",
    "epochs": "30",
    "batch": "128",
    "lr": "0.01",
    "draws": "1",
    "estimator": "local",
    "coreset": "40",
    "coreset_epochs": "60",
}

# Measured with these settings over 15 seeds, in five groups of three (mean over 15, range of the groups), in %:
#               forgetting      average accuracy
#   mle         67 (66 to 69)   53 (52 to 54)
#   vcl         22 (17 to 27)   80 (77 to 83)
#   vcl-random   8 ( 7 to  9)   89 (88 to 90)
# For each single one of the 15 seeds the three stand in this order in both measures. The seeds' standard
# deviations are about 6, 6 and 2 in forgetting and 4, 4 and 1.5 in accuracy, so that a mean of three seeds moves by
# about 3.6, 3.7 and 1.3, and 2.3, 2.4 and 0.9. Every margin below leaves at least two and a half such errors of room.


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    out: Path = tmp_path_factory.mktemp("end") / "run"
    line = ["run", "permuted-digits", "--preset", "quick", "--seeds", "3", "--device", "cpu", "--out", str(out)]
    line += ["--method", ",".join(METHODS)]
    for key, value in SETTINGS.items():
        line += ["--set", f"{key}={value}"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.exception
    return read_csv(out / "rows.csv")


def measured(rows: list[Row], name: str) -> dict[str, float]:
    summaries: dict[str, Summary] = {method: final(rows, method)[name] for method in METHODS}
    return {method: 100 * summary.mean for method, summary in summaries.items()}


def test_every_method_learns_each_task_when_it_meets_it(rows: list[Row]) -> None:
    # Otherwise there would be nothing to forget. Measured: 92 % or more on average over 15 seeds on each task just
    # learned, and no seed below 89 %; chance is 10 %.
    for method in METHODS:
        assert float(matrix(rows, method).diagonal(dim1=1, dim2=2).mean(0).min()) > 0.85, method


def test_fine_tuning_forgets_and_vcl_far_less_and_with_a_coreset_least(rows: list[Row]) -> None:
    forgetting = measured(rows, "forgetting")
    assert forgetting["mle"] > 50
    assert forgetting["vcl"] < forgetting["mle"] - 25
    assert forgetting["vcl-random"] < forgetting["vcl"] - 3
    assert forgetting["vcl-random"] < 15


def test_what_is_not_forgotten_shows_in_the_average_accuracy(rows: list[Row]) -> None:
    average = measured(rows, "average accuracy")
    assert average["mle"] < 65
    assert average["vcl"] > average["mle"] + 14
    assert average["vcl-random"] > average["vcl"] + 2
    assert average["vcl-random"] > 83


def test_vcl_knows_what_it_does_not_know(rows: list[Row]) -> None:
    # Measured over the five groups, nats an example: mle -3.9 to -3.1, vcl -0.68 to -0.54, vcl-random -0.43 to -0.40.
    log_predictive = {method: final(rows, method)["log predictive"].mean for method in METHODS}
    assert log_predictive["mle"] < -1.5
    assert log_predictive["vcl"] > -1.0
    assert log_predictive["vcl-random"] > log_predictive["vcl"]
