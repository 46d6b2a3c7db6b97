"""Columns that look like numbers and are none."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from own_data import classifier, regressor, same, small_net, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier
from vcl.learner.tables import Table


@pytest.mark.parametrize(
    "values", [np.array(["2024-06-01", "2024-07-01"], dtype="datetime64[D]"), np.array([1, 2], dtype="timedelta64[D]")]
)
def test_dates_are_refused(values: np.ndarray) -> None:
    with pytest.raises(VclError, match=r"column 'when' has dtype .*; give numbers or texts"):
        Table.of({"when": values})


@pytest.mark.parametrize(
    "days", [["2024-01-05", "2024-12-31"], ["5.1.2024", "", "31.12.2024"], ["1/31/2024 9:30", "12/1/2024 10:00:05"],
             ["2024-01-05T00:00:00+00:00"], [datetime.date(2024, 1, 5), None]],
)  # fmt: skip
def test_dates_as_texts_are_refused(days: list[Any]) -> None:
    with pytest.raises(
        VclError, match=r"column 'when' has dates, such as .*; give numbers, such as days since a start"
    ):
        Table.of({"when": np.array(days, dtype=object)})


@pytest.mark.parametrize("codes", [["2024-01-05", "late"], ["2024-13-05"], ["12-34-56"], ["1-2/2024"]])
def test_texts_that_are_no_dates_are_categories(codes: list[str]) -> None:
    assert Table.of({"code": codes}).outputs == tuple(f"code={each}" for each in sorted(codes))


def test_underscores_are_no_part_of_a_number() -> None:
    """Python reads 12_34 as 1234; people who write it mean a code."""
    table = Table.of({"code": np.array(["12_34", "12_35"], dtype=object)})
    assert table.outputs == ("code=12_34", "code=12_35")
    numbers = Table.of({"size": np.array([1.0, 2.0])})
    with pytest.raises(VclError, match="column 'size' is '1_0' in row 1"):
        numbers.numbers({"size": np.array(["10", "1_0"], dtype=object)})


def test_large_numbers_that_are_close_together_stay_apart() -> None:
    """Seconds since 1970 differ by 128 in float32; scaling comes first, in float64."""
    seconds = 1.7e9 + np.arange(40) * 0.5
    assert Table.of({"t": seconds}).numbers({"t": seconds})[:, 0].tolist() == seconds.tolist()
    y = np.arange(40) % 2
    table = classifier(small_net(width=1)).update({"t": seconds}, y)
    array = classifier(small_net(width=1)).update(seconds[:, None], y)
    assert same({**tensors(table), "table": ""}, {**tensors(array), "table": ""})
    assert len(np.unique(table.predict_proba({"t": seconds})[:, 0])) == 40


@pytest.mark.parametrize("head", ["new", "own"])
def test_a_network_of_another_width_is_told_which_columns_became_which_inputs(head: str) -> None:
    columns = {"area": [1.0, 2.0, 3.0], "age": [None, 1.0, 2.0], "town": ["Rome", "Oslo", "Oslo"]}
    said = (
        r"does not take .* shape .*[^.]; 3 columns became 5 inputs \(area, age, age missing, town=Oslo, town=Rome\); "
        r"use vcl\.mlp\(5, \.\.\.\), or another network for 5\.$"
    )
    with pytest.raises(VclError, match=said):
        regressor(nn.Linear(3, 1), head=head).update(columns, [0.0, 1.0, 2.0])
    wide = {f"c{place}": [1.0, 2.0] for place in range(12)}
    with pytest.raises(VclError, match=r"12 columns became 12 inputs \(c0, .*, c7, \.\.\.\); use"):
        classifier(small_net(width=3)).update(wide, [0, 1])


def test_a_saved_table_says_so_too(tmp_path: Path) -> None:
    classifier(small_net(width=1)).update({"a": [1.0, 2.0]}, [0, 1]).save(tmp_path)
    with pytest.raises(VclError, match=r"1 column became 1 input \(a\); use vcl\.mlp\(1, "):
        ContinualClassifier.load(tmp_path, small_net(width=2))
