"""Student's t distribution, needed for few seeds: with three, the 5 % threshold is 4.30 standard errors, not 2."""

from __future__ import annotations

from functools import cache
from math import atan, cos, inf, pi, sin, sqrt

from vcl.errors import VclError

LEVEL = 0.05
"""The two-sided significance level of every claim and every comparison of runs."""


def p_value(t: float, degrees: int) -> float:
    """P(|T| >= |t|) for T of Student's t distribution with ``degrees`` degrees of freedom.

    By the finite series for integer degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4), with theta =
    atan(|t| / sqrt(degrees)):

        odd:   P(|T| < t) = 2/pi (theta + sin(theta) (cos(theta) + 2/3 cos^3(theta) + ... up to cos^(degrees - 2)))
        even:  P(|T| < t) = sin(theta) (1 + 1/2 cos^2(theta) + 1*3/(2*4) cos^4(theta) + ... up to cos^(degrees - 2))

    >>> round(p_value(2.262, 9), 4), p_value(0.0, 3)
    (0.05, 1.0)
    """
    if degrees < 1:
        raise VclError(f"degrees is {degrees}; a t distribution has at least 1: give at least two seeds.")
    theta = atan(abs(t) / sqrt(degrees))
    odd = degrees % 2
    term, total = (cos(theta), 0.0) if odd else (1.0, 0.0)
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cos(theta) ** 2 * (power + 1) / (power + 2)
    inside = 2 / pi * (theta + sin(theta) * total) if odd else sin(theta) * total
    return max(0.0, 1.0 - inside)


@cache
def threshold(degrees: int, level: float = LEVEL) -> float:
    """The t with P(|T| >= t) = ``level``, by bisection.

    >>> round(threshold(2), 2), round(threshold(9), 2)
    (4.3, 2.26)
    """
    if not 0 < level < 1:
        raise VclError(f"level is {level}; it is a probability between 0 and 1.")
    low, high = 0.0, 1.0
    while p_value(high, degrees) > level:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if p_value(middle, degrees) > level:
            low = middle
        else:
            high = middle
    return high


def t_value(mean: float, error: float) -> float:
    """``mean`` in standard errors: 0 if both are 0, infinite if only the error is 0.

    >>> t_value(3.0, 1.5), t_value(0.0, 0.0), t_value(-1.0, 0.0)
    (2.0, 0.0, -inf)
    """
    if error > 0:
        return mean / error
    return 0.0 if mean == 0 else (inf if mean > 0 else -inf)
