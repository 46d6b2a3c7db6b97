"""Errors for users. Each message is one sentence: what was given, what is accepted, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class VclError(Exception):
    """An error the user can fix. The command line prints its message without a traceback."""


class InputError(VclError):
    """A network does not take the inputs that it is given."""


class NonFiniteError(VclError):
    """Training became non-finite.

    ``runs`` are the positions of the affected runs in the stack (empty if unknown). ``reason`` is the message without
    those runs.
    """

    def __init__(self, message: str, runs: Iterable[int] = (), reason: str | None = None) -> None:
        super().__init__(message)
        self.runs, self.reason = tuple(runs), message if reason is None else reason


class OutOfMemoryError(VclError):
    """An allocation failed. :mod:`vcl.ops.out_of_memory` raises it; what was known before is as it was."""


class LaterFormatError(VclError):
    """A file was written by a later version of vcl.

    ``fault`` is the message without the name of the file, for callers that know it.
    """

    def __init__(self, what: str, made: int, reads: int) -> None:
        self.fault = f"has format {made}, and this version of vcl reads up to {reads}; install a newer version of vcl."
        super().__init__(f"{what} {self.fault}")


def too_fast(lr: float) -> str:
    """The advice for training that began finite and then became non-finite."""
    return f"the learning rate {lr:g} is probably too large for this data; lower it, or scale the inputs."


def unknown(kind: str, name: str, accepted: Iterable[str]) -> VclError:
    """The error for an unknown name, with the closest accepted one.

    >>> str(unknown("method", "vlc", ["vcl", "mle"]))
    "unknown method 'vlc': did you mean 'vcl'? Accepted: mle, vcl."
    >>> str(unknown("task", "7", ["0", "1"]))
    "unknown task '7'; accepted: 0, 1."
    """
    names = sorted(accepted)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}? Accepted" if near else "; accepted"
    return VclError(f"unknown {kind} {name!r}{hint}: {', '.join(names)}.")
