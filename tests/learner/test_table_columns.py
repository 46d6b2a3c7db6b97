"""Columns that look like numbers and are none."""

import numpy as np
import pytest

from vcl.errors import VclError
from vcl.learner.tables import Table


@pytest.mark.parametrize(
    "values", [np.array(["2024-06-01", "2024-07-01"], dtype="datetime64[D]"), np.array([1, 2], dtype="timedelta64[D]")]
)
def test_dates_are_refused(values: np.ndarray) -> None:
    with pytest.raises(VclError, match=r"column 'when' has dtype .*; give numbers or texts"):
        Table.of({"when": values})


def test_underscores_are_no_part_of_a_number() -> None:
    """Python reads 12_34 as 1234; people who write it mean a code."""
    table = Table.of({"code": np.array(["12_34", "12_35"], dtype=object)})
    assert table.outputs == ("code=12_34", "code=12_35")
    numbers = Table.of({"size": np.array([1.0, 2.0])})
    with pytest.raises(VclError, match="column 'size' is '1_0' in row 1"):
        numbers.numbers({"size": np.array(["10", "1_0"], dtype=object)})
