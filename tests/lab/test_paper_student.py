"""Student's t distribution against a printed table and against what is known in closed form."""

from __future__ import annotations

from math import atan, inf, pi, sqrt

import pytest

from vcl.errors import VclError
from vcl.lab.paper.student import LEVEL, p_value, t_value, threshold

# Two-sided thresholds from a printed table: degrees of freedom, 10 %, 5 %, 1 %.
TABLE = [
    (1, 6.314, 12.706, 63.657),
    (2, 2.920, 4.303, 9.925),
    (3, 2.353, 3.182, 5.841),
    (4, 2.132, 2.776, 4.604),
    (5, 2.015, 2.571, 4.032),
    (9, 1.833, 2.262, 3.250),
    (10, 1.812, 2.228, 3.169),
    (29, 1.699, 2.045, 2.756),
    (120, 1.658, 1.980, 2.617),
]


@pytest.mark.parametrize(("degrees", "ten", "five", "one"), TABLE)
def test_thresholds_are_those_of_the_table(degrees: int, ten: float, five: float, one: float) -> None:
    assert [round(threshold(degrees, level), 3) for level in (0.1, 0.05, 0.01)] == [ten, five, one]
    assert threshold(degrees) == threshold(degrees, 0.05)


def test_the_level_is_five_percent() -> None:
    assert LEVEL == 0.05


@pytest.mark.parametrize("t", [0.0, 0.3, 1.7, 4.3, 50.0])
def test_p_values_of_one_and_two_degrees_have_closed_forms(t: float) -> None:
    assert p_value(t, 1) == pytest.approx(1 - 2 / pi * atan(t), abs=1e-14)
    assert p_value(-t, 2) == pytest.approx(1 - t / sqrt(2 + t * t), abs=1e-14)


@pytest.mark.parametrize("degrees", [1, 2, 7, 8])
def test_p_values_fall_from_one_to_zero_and_thresholds_give_their_level(degrees: int) -> None:
    values = [p_value(t, degrees) for t in (0.0, 0.5, 1.0, 3.0, 10.0, 1e6, inf)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1
    assert values[-1] == pytest.approx(0, abs=1e-15)
    for level in (0.5, 0.05, 0.001):
        assert p_value(threshold(degrees, level), degrees) == pytest.approx(level, rel=1e-9)


def test_a_difference_without_error_is_certain() -> None:
    assert (t_value(1.0, 0.5), t_value(0.0, 0.0), t_value(1.0, 0.0), t_value(-1.0, 0.0)) == (2.0, 0.0, inf, -inf)


def test_one_seed_and_no_level_are_refused() -> None:
    with pytest.raises(VclError, match="degrees is 0"):
        p_value(1.0, 0)
    with pytest.raises(VclError, match="level is 1"):
        threshold(2, 1.0)
