"""What became of one trial: the value that every family of faults yields."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Result(StrEnum):
    """How a trial ended. Only the last is bad."""

    SURVIVED = "survived"
    """The exact continuation, or the exact answer."""
    FELL_BACK = "fell back"
    """To an earlier good state, which was said; the end was exact again."""
    REFUSED = "refused"
    """One clear sentence and a non-zero exit, and what was on disk is as it was."""
    LOST = "LOST"
    """A wrong number, a lost finished task, a traceback, a hang."""


class Outcome(NamedTuple):
    """One trial, or ``times`` alike."""

    fault: str
    """The row of the table that it counts in."""
    result: Result
    note: str = ""
    """What was seen, in one line; listed below the table."""
    times: int = 1
