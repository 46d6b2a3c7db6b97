"""The arithmetic of verdicts and claims, against hand-made rows; and the file of the paper's numbers."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest
from lab_made import triangle_rows

from vcl.lab.paper import table
from vcl.lab.paper.item import (
    ACCURACY,
    Measured,
    best_of_grids,
    first_one_later,
    first_when_learned,
    late_when_learned,
    measure,
    when_learned,
)
from vcl.lab.paper.numbers import Claim, Number, claims, numbers
from vcl.lab.results import Summary, methods

TAKES = (first_when_learned, first_one_later, late_when_learned)
NINETY = Number("fig2", "vcl", 90.0, 1.5, "section 6.1")


@pytest.mark.parametrize(
    ("ours", "verdict"), [(90.0, "within"), (88.5, "within"), (91.5, "within"), (88.4, "worse"), (91.6, "better")]
)
def test_a_verdict_is_by_the_tolerance_alone(ours: float, verdict: str) -> None:
    assert table.verdict(ours, NINETY) == verdict


def test_a_line_holds_both_numbers_and_where_the_papers_is_from() -> None:
    line = table.line("fig2", "vcl", Summary(88.861, 0.642, 5), NINETY, 12.34)
    assert line == ("fig2", "vcl", "90", "88.86", "0.64", 5, "within", 12.3, "section 6.1")
    assert table.line("fig2", "mle", Summary(30.0, float("nan"), 1), None, 1.0)[2:7] == ("", "30.00", "", 1, "")


def test_ends_are_the_average_over_tasks_after_the_last_in_percent() -> None:
    rows = triangle_rows("vcl", {0: [[0.9], [0.7, 0.8]], 3: [[0.5], [0.8, 0.6]]})
    assert measure(rows, "vcl", ACCURACY) == pytest.approx({0: 75.0, 3: 70.0})


def test_what_was_learned_is_the_average_over_tasks_each_right_after_it() -> None:
    rows = triangle_rows("vcl", {0: [[-1.0], [-7.0, -2.0]], 3: [[-3.0], [-9.0, -5.0]]})
    learned = Measured("accuracy", " when learned", take=when_learned)
    assert measure(rows, "vcl", learned) == pytest.approx({0: -1.5, 3: -4.0})


def test_what_was_learned_first_and_what_late() -> None:
    course = [[-1.0], [-7.0, -2.0], *([-9.0] * after + [-float(after)] for after in range(2, 10))]
    rows = triangle_rows("vcl", {0: course})
    taken = {take: measure(rows, "vcl", Measured("accuracy", take=take))[0] for take in TAKES}
    assert taken == pytest.approx({first_when_learned: -1.0, first_one_later: -7.0, late_when_learned: -8.0})
    alone = triangle_rows("vcl", {0: [[-1.0]]})
    for take in (first_one_later, late_when_learned):
        assert isnan(measure(alone, "vcl", Measured("accuracy", take=take))[0])


def test_a_claim_about_what_did_not_happen_is_not_judged() -> None:
    assert table.judge(CLAIM, {"a": {0: 1.0, 1: 2.0}, "b": {0: float("nan"), 1: float("nan")}}) is None


CLAIM = Claim("fig2", "a is better", "a", "b", "somewhere")


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 80.0, 1: 81.5, 2: 81.5}, ("10.00", "0.29", 3, "true")),
        ({0: 80.0, 1: 81.5, 2: 81.5}, {0: 90.0, 1: 91.0, 2: 92.0}, ("-10.00", "0.29", 3, "false")),
        ({0: 90.0, 1: 91.0}, {0: 89.0, 1: 92.0}, ("0.00", "1.00", 2, "undecided")),
        ({0: 90.0}, {0: 80.0, 1: 81.5}, ("10.00", "", 1, "undecided (one seed)")),
    ],
)
def test_a_claim_is_judged_by_paired_differences(
    a: dict[int, float], b: dict[int, float], found: tuple[str, str, int, str]
) -> None:
    seen = table.judge(CLAIM, {"a": a, "b": b})
    assert seen is not None
    assert seen[2:6] == found


def test_pairs_are_by_seed_and_not_by_place() -> None:
    seen = table.judge(CLAIM, {"a": {1: 60.0, 0: 50.0, 9: 0.0}, "b": {0: 49.0, 1: 59.0, 8: 100.0}})
    assert seen is not None
    assert (seen.difference, seen.seeds) == ("1.00", 2)


def test_a_margin_must_be_passed() -> None:
    values = {"a": {0: 90.0, 1: 90.2}, "b": {0: 89.0, 1: 89.1}}
    assert table.judge(CLAIM._replace(margin=0.5), values)[5] == "true"  # type: ignore[index]
    assert table.judge(CLAIM._replace(margin=2.0), values)[5] == "false"  # type: ignore[index]


def test_a_claim_about_what_was_not_run_is_left_out() -> None:
    assert table.judge(CLAIM, {"a": {0: 1.0}}) is None
    assert table.judge(CLAIM, {"a": {0: 1.0}, "b": {1: 1.0}}) is None


def test_lines_and_claims_come_back_from_their_files(tmp_path: Path) -> None:
    lines = [
        table.line("fig2", "vcl", Summary(88.9, 0.6, 5), NINETY, 12.0),
        table.line("fig2", "ewc lambda=100", Summary(81.3, 0.9, 10), None, 3.5),
    ]
    seen = [table.judge(CLAIM, {"a": {0: 2.0, 1: 3.0}, "b": {0: 1.0, 1: 1.5}})]
    (tmp_path / "l.csv").write_text(table.write(lines))
    (tmp_path / "c.csv").write_text(table.write([one for one in seen if one]))
    assert table.read_lines(tmp_path / "l.csv") == lines
    assert table.read_seen(tmp_path / "c.csv") == seen
    assert table.read_lines(tmp_path / "none.csv") == []
    text = table.markdown(lines, table.read_seen(tmp_path / "c.csv"))
    assert "| fig2 | vcl | 90 | 88.90 ± 0.60 | 5 | within | 12 |" in text
    assert "| fig2 | ewc lambda=100 | - | 81.30 ± 0.90 | 10 | - | 4 |" in text
    assert "| fig2 | a is better | 1.25 ± 0.25 | 2 | true | somewhere |" in text


def test_of_each_grid_the_lambda_that_ends_best_is_kept() -> None:
    rows = [
        *triangle_rows("vcl", {0: [[0.5]]}),
        *triangle_rows("ewc lambda=1", {0: [[0.5]], 1: [[0.6]]}),
        *triangle_rows("ewc lambda=10", {0: [[0.9]], 1: [[0.4]]}),
        *triangle_rows("si lambda=0.1", {0: [[0.7]]}),
        *triangle_rows("si lambda=0.5", {0: [[0.2]]}),
    ]
    assert methods(best_of_grids(rows)) == ["vcl", "ewc lambda=10", "si lambda=0.1"]


def test_the_papers_numbers_are_those_of_the_text() -> None:
    fig2, fig4, fig5 = (numbers(item) for item in ("fig2", "fig4", "fig5"))
    assert {name: number.value for name, number in fig2.items()} == {
        "vcl": 90.0, "vcl-random": 93.0, "vcl-kcenter": 93.0, "ewc": 84.0, "si": 86.0, "lp": 82.0,
    }  # fmt: skip
    assert {name: fig4[name].value for name in ("vcl", "ewc", "si", "lp")} == {
        "vcl": 97.0, "ewc": 63.1, "si": 98.9, "lp": 61.2,
    }  # fmt: skip
    assert {name: fig5[name].value for name in ("vcl", "vcl-random", "ewc", "si", "lp")} == {
        "vcl": 92.0, "vcl-random": 96.0, "ewc": 71.0, "si": 94.0, "lp": 63.0,
    }  # fmt: skip
    assert numbers("fig3")["vcl-random coreset=5000"].value == 95.5
    assert len(claims("fig2")) >= 6
    assert numbers("ordering") == {}
