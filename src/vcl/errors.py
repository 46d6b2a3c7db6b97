"""The errors that speak to a user: one sentence that says what was given, what is accepted and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class VclError(Exception):
    """Any mistake that a user can mend. The command line prints its sentence and no traceback."""


class NonFiniteError(VclError):
    """Training left the finite numbers.

    ``runs`` are the positions of those that did in the stack of runs (empty if unknown), and ``reason`` says
    what happened without naming them.
    """

    def __init__(self, message: str, runs: Iterable[int] = (), reason: str | None = None) -> None:
        super().__init__(message)
        self.runs, self.reason = tuple(runs), message if reason is None else reason


def too_fast(lr: float) -> str:
    """What is said where training was finite at its start and then left the finite numbers."""
    return f"the learning rate {lr:g} is probably too large for this data; lower it, or scale the inputs."


def unknown(kind: str, name: str, accepted: Iterable[str]) -> VclError:
    """The error for a name that is not on a list, with the nearest one that is.

    >>> str(unknown("method", "vlc", ["vcl", "mle"]))
    "unknown method 'vlc': did you mean 'vcl'? Accepted: mle, vcl."
    """
    names = sorted(accepted)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return VclError(f"unknown {kind} {name!r}: {hint}Accepted: {', '.join(names)}.")
