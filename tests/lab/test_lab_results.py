from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from lab_made import one_seed, triangle_rows, two_seeds
from rich.console import Console

from vcl.errors import VclError
from vcl.lab import tables
from vcl.lab.results import Row, Written, final, label, matrix, methods, read_csv, split_label, summarise, to_csv

NAN = math.nan


def test_rows_come_back_from_csv_exactly(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1 / 3, 5e-324, 1e308, -math.pi, 0.0, 1.0, -math.inf]
    rows = [Row("vcl-random", n, 2, 1, 'log "p", nats', value) for n, value in enumerate(values)]
    path = tmp_path / "rows.csv"
    path.write_text(to_csv(rows))
    assert read_csv(path) == rows


def test_csv_of_no_rows_is_a_header(tmp_path: Path) -> None:
    assert to_csv([]) == "method,seed,after,on,metric,value\n"
    (tmp_path / "rows.csv").write_text(to_csv([]))
    assert read_csv(tmp_path / "rows.csv") == []


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "method,seed,after,on,metric,value\nvcl,zero,1,1,accuracy,0.5\n",
        "method,seed,after,on,metric,value\nvcl,0,1\n",
        "method,seed,after,on,metric,value\nvcl,0,1,1,accuracy,high\n",
    ],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(VclError, match=r"other\.csv holds no vcl rows .*give the rows\.csv of a run"):
        read_csv(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VclError, match=r"nowhere\.csv holds no vcl rows"):
        read_csv(tmp_path / "nowhere.csv")


def test_methods_stand_in_order_of_appearance() -> None:
    assert methods([*two_seeds("mle"), *two_seeds("batch-vi"), *two_seeds("mle")]) == ["mle", "batch-vi"]


def test_matrix_has_after_down_and_on_across() -> None:
    rows = [
        Row("vcl", 7, 1, 1, "accuracy", 0.1),
        Row("vcl", 7, 2, 1, "accuracy", 0.2),
        Row("vcl", 7, 2, 2, "accuracy", 0.3),
        Row("vcl", 7, 2, 2, "Brier score", 9.0),
        Row("mle", 7, 2, 2, "accuracy", 9.0),
    ]
    wanted = torch.tensor([[[0.1, NAN], [0.2, 0.3]]], dtype=torch.float64)
    torch.testing.assert_close(matrix(rows, "vcl"), wanted, rtol=0, atol=0, equal_nan=True)


def test_matrix_has_one_layer_a_seed_whatever_the_order_of_the_rows() -> None:
    rows = triangle_rows("vcl", {3: [[0.3]], 1: [[0.1]]})
    assert matrix(rows, "vcl").flatten().tolist() == [0.1, 0.3]
    assert matrix(rows[::-1], "vcl").flatten().tolist() == [0.1, 0.3]


def test_summary_is_mean_and_standard_error() -> None:
    # Deviations from 3 are -2, 0, 2: the variance is 8 / 2 = 4 and the error 2 / sqrt(3).
    mean, error, seeds = summarise(torch.tensor([1.0, 3.0, 5.0]))
    assert (mean, seeds) == (3.0, 3)
    assert error == pytest.approx(2 / math.sqrt(3))
    assert math.isnan(summarise(torch.tensor([1.0])).error)


def test_final_measures_by_hand() -> None:
    measures = final(two_seeds(), "vcl")
    # The standard error of two values is half their distance.
    by_hand = {
        "average accuracy": ((2 / 3 + 0.7) / 2, (0.7 - 2 / 3) / 2),
        # Seed 0: ((0.9 - 0.6) + (0.8 - 0.9)) / 2; seed 1: ((0.8 - 0.7) + (0.6 - 0.6)) / 2.
        "forgetting": ((0.1 + 0.05) / 2, 0.025),
        # Seed 0: ((0.6 - 0.9) + (0.9 - 0.8)) / 2; seed 1: ((0.7 - 0.5) + (0.6 - 0.6)) / 2.
        "backward transfer": ((-0.1 + 0.1) / 2, 0.1),
        "log predictive": ((-0.3 - 0.5) / 2, 0.1),
        "calibration error": ((0.1 + 0.2) / 2, 0.05),
        "Brier score": ((0.4 + 0.6) / 2, 0.1),
    }
    assert set(measures) == set(by_hand)
    for name, (mean, error) in by_hand.items():
        assert measures[name].mean == pytest.approx(mean, abs=1e-12), name
        assert measures[name].error == pytest.approx(error, abs=1e-12), name
        assert measures[name].seeds == 2


def test_table_cells_by_hand() -> None:
    rows = [*two_seeds("vcl"), *one_seed("mle")]
    assert tables.cells(rows, {"vcl": 90.0, "batch-vi": 1.0}) == [
        ("vcl", "68.33 ± 1.67", "90.0", "7.50 ± 2.50", "-0.400 ± 0.100", "0.150 ± 0.050"),
        # One seed: no spread is made up.
        ("mle", "66.67", "-", "10.00", "-0.300", "0.100"),
    ]


def test_markdown_table() -> None:
    lines = tables.cells(one_seed("mle"), {})
    assert tables.markdown(lines) == (
        "| method | accuracy % | paper | forgetting % | log predictive | calibration |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| mle | 66.67 | - | 10.00 | -0.300 | 0.100 |\n"
    )


def test_the_note_counts_seeds_and_speaks_of_the_paper_only_where_it_has_numbers() -> None:
    rows = [*two_seeds("vcl"), *one_seed("mle")]
    assert tables.explain(rows, {"vcl": 90.0}).startswith("Mean ± standard error over 1 or 2 seeds")
    assert "paper" in tables.explain(rows, {"vcl": 90.0})
    assert "paper" not in tables.explain(rows, {"batch-vi": 90.0})


def test_every_column_of_the_table_has_a_unit_in_its_head_or_in_the_note() -> None:
    note = tables.explain(two_seeds("vcl"), {"vcl": 90.0})
    in_the_note = {"paper": "accuracies in %", "log predictive": "in nats", "calibration": "from 0 to 1"}
    for column in tables.COLUMNS[1:]:
        assert column.endswith(" %") or in_the_note[column] in note, column


def test_terminal_table_shows_every_cell_at_eighty_columns() -> None:
    console = Console(width=80)
    lines = tables.cells([*two_seeds("vcl"), *one_seed("mle")], {"vcl": 90.0})
    with console.capture() as captured:
        console.print(tables.terminal("split, after 3 tasks", lines))
    text = captured.get()
    assert "split, after 3 tasks" in text
    assert all(cell in text for cell in (*tables.COLUMNS, *lines[0], *lines[1]))


@pytest.mark.parametrize("lam", [0.0, 0.1, 1.0, 100.0, 1e4, 1e-9, 1 / 3, 1234567.0, 1234568.0])
def test_a_label_holds_its_lambda_exactly(lam: float) -> None:
    assert split_label(label("ewc", lam)) == ("ewc", lam)


def test_labels_are_short_where_they_can_be() -> None:
    assert [label("si", lam) for lam in (1.0, 0.5, 10000.0)] == ["si lambda=1", "si lambda=0.5", "si lambda=10000"]
    assert split_label("vcl-random") == ("vcl-random", None)


@pytest.mark.parametrize("name", ["mine lambda=abc", "mine lambda=", "mine lambda=abc lambda=3", "mine lambda= 3"])
def test_a_label_whose_lambda_is_no_number_is_all_name(name: str) -> None:
    assert split_label(name) == (name, None)


def test_a_table_at_eighty_columns_has_room_for_a_grid() -> None:
    console = Console(width=80)
    lines = tables.cells([*two_seeds("ewc lambda=0.01"), *two_seeds("ewc lambda=10000")], {"ewc lambda=0.01": 84.0})
    assert [line[0] for line in lines] == ["ewc lambda=0.01", "ewc lambda=10000"]
    with console.capture() as captured:
        console.print(tables.terminal("title", lines))
    text = captured.get()
    assert [text.count(word) for word in (" ewc λ=0.01 ", " ewc λ=10000 ", " 84.0 ", "…")] == [1, 1, 1, 0]
    assert all(cell in text for cell in lines[0][1:])


@pytest.mark.parametrize("width", [8, 20, 30, 40, 60, 80, 200])
def test_a_narrow_terminal_keeps_names_and_whole_numbers(width: int) -> None:
    console = Console(width=width)
    lines = tables.cells([*two_seeds("vcl-restart-random"), *two_seeds("kcenter-only")], {})
    with console.capture() as captured:
        tables.show(console, "a title", lines)
    text = captured.get()
    assert "…" not in text
    assert all(line[0] in text and line[1] in text for line in lines), "the name and its first number"
    _, _, told = text.partition("No room here for: ")
    left = [name for name in told.partition(". The whole table is in table.md.")[0].split(", ") if name]
    assert list(tables.COLUMNS[len(tables.COLUMNS) - len(left) :]) == left
    shown = [place for place, name in enumerate(tables.COLUMNS) if name not in left]
    assert all(line[place] in text for line in lines for place in shown)
    assert (left == []) == (width == 200)


def test_lines_that_are_added_give_the_text_of_all_of_them() -> None:
    rows = [Row("a, b", seed, after, 1, "accuracy", 0.1 + seed) for after in (1, 2, 3) for seed in (0, 1)]
    written = Written(Row._fields, rows[:2])
    assert written.text() == to_csv(rows[:2])
    for start in (2, 4):
        written.add(rows[start : start + 2])
        assert written.text() == to_csv(rows[: start + 2])
    written.add([])
    assert written.text() == to_csv(rows)
