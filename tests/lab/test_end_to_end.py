"""The paper's claims, on real digits through the command line.

VCL forgets far less than fine-tuning, and with a coreset least; EWC, LP and SI need a lambda, and at the best of a grid
forget far less than fine-tuning too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vcl.lab.cli import app
from vcl.lab.results import Row, Summary, final, label, matrix, read_csv

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


POINTS = ("tasks", "hidden", "epochs", "batch", "lr")
"""The settings that methods without draws and coresets use."""


def run(out: Path, *rest: str, keys: Iterable[str] = SETTINGS) -> list[Row]:
    line = ["run", "permuted-digits", "--preset", "quick", "--seeds", "3", "--device", "cpu", "--out", str(out), *rest]
    for key in keys:
        line += ["--set", f"{key}={SETTINGS[key]}"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.exception
    return read_csv(out / "permuted-digits" / "rows.csv")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return run(tmp_path_factory.mktemp("end") / "run", "--method", ",".join(METHODS))


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


# Methods that must be told how much the past weighs.

TUNED = ("ewc", "lp", "si")
LAMBDAS = (1.0, 10.0, 100.0, 1000.0)

# Measured with the same settings over 15 seeds, in the same five groups of three, each group with its best lambda by
# average accuracy (mean over 15, range of the groups), in %; mle and vcl are above:
#         best lambda           forgetting      average accuracy
#   ewc   1000 (once 100)       19 (14 to 29)   79 (73 to 85)
#   lp      10                  27 (24 to 34)   77 (73 to 79)
#   si       1                  18 (10 to 25)   77 (73 to 82)
# So in every group each of them stands at least 31 below mle's forgetting and 19 above its accuracy. The standard
# errors of a mean of three seeds are up to 9 in forgetting and 5 in accuracy; the margins leave 13 and 9.


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    grid = "lambda=" + ",".join(f"{lam:g}" for lam in LAMBDAS)
    return run(tmp_path_factory.mktemp("end") / "tuned", "--method", ",".join(TUNED), "--grid", grid, keys=POINTS)


@pytest.mark.parametrize("method", TUNED)
def test_at_its_best_lambda_it_forgets_far_less_than_fine_tuning(
    rows: list[Row], tuned: list[Row], method: str
) -> None:
    ends = {lam: final(tuned, label(method, lam)) for lam in LAMBDAS}
    best = max(ends.values(), key=lambda end: end["average accuracy"].mean)
    mle = final(rows, "mle")
    assert mle["forgetting"].mean > 0.50
    assert best["forgetting"].mean < mle["forgetting"].mean - 0.18
    assert best["average accuracy"].mean > mle["average accuracy"].mean + 0.10


@pytest.mark.parametrize(("method", "margin"), [("ewc", 0.1), ("lp", 0.2), ("si", 0.0)])
def test_a_larger_lambda_forgets_less_and_learns_less(tuned: list[Row], method: str, margin: float) -> None:
    # Measured over the five groups, lambda = 1000 against 1: forgetting lower by 24 to 47 % (ewc), 46 to 55 % (lp) and
    # 4 to 15 % (si), accuracy on the last task just learned lower by 12 to 18 % (ewc) and by 60 % or more (lp, si).
    least, most = label(method, LAMBDAS[0]), label(method, LAMBDAS[-1])
    assert final(tuned, most)["forgetting"].mean < final(tuned, least)["forgetting"].mean - margin
    learned = {name: float(matrix(tuned, name)[:, -1, -1].mean()) for name in (least, most)}
    assert learned[most] < learned[least] - 0.05
