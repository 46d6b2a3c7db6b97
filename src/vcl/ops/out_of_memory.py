"""The one place that turns a failed allocation into a sentence.

torch raises a RuntimeError on a CPU and torch.OutOfMemoryError, which is one too, on a GPU; Python and numpy raise a
MemoryError. What asked for the memory says what was computed, and which of its settings makes it smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOMEM

from vcl.errors import OutOfMemoryError

SIGNS = (
    "can't allocate memory", "cannot allocate memory", "out of memory", "not enough memory", "unable to allocate",
    "alloc_failed", "bad_alloc", "failed to map segment",
)  # fmt: skip
"""Parts of messages of failed allocations, in small letters: of torch, CUDA, cuBLAS, numpy, C++ and the
system, which maps libraries too."""

ASKED = re.compile(r"to allocate ([0-9.]+) ?(bytes|[kmgtpe]i?b)", re.IGNORECASE)
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

FIT = "take a smaller batch, fewer draws a step, fewer runs (seeds x lambdas) at once, or a smaller network"
CURVATURE = "take fewer runs (seeds x lambdas) at once, or a network with narrower layers"
PREDICTION = "predict for fewer examples at once, by fewer draws, or for fewer runs (seeds x lambdas)"
TASK = "take fewer examples, fewer runs (seeds x lambdas) at once, or a smaller network"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM):
        return True
    return isinstance(error, RuntimeError | ImportError) and any(sign in str(error).lower() for sign in SIGNS)


def asked(error: BaseException) -> str:
    """How much memory was asked for, such as "20.0 GiB"; nothing if the error does not say."""
    found = ASKED.search(str(error))
    if found is None:
        return ""
    number, unit = float(found[1].rstrip(".")), found[2].lower().replace("ib", "b")
    place = [each.lower().replace("ib", "b") for each in UNITS].index(unit)
    while number >= 1024 and place < len(UNITS) - 1:
        number, place = number / 1024, place + 1
    return f"{number:.0f} bytes" if not place else f"{number:.1f} {UNITS[place]}"


def sentence(error: BaseException, what: str, less: str) -> str:
    """What is said of a failed allocation."""
    more, where = asked(error), "the GPU's memory" if "cuda" in str(error).lower() else "memory"
    return f"{where} ran out in {what}{f', which asked for {more} more' if more else ''}; {less}."


@contextmanager
def told_of_memory(what: str, less: str, where: str = "") -> Iterator[None]:
    """Turns a failed allocation within into an OutOfMemoryError that names ``what`` was computed; the innermost counts.

    ``where`` stands before it, as the task.
    """
    place = f"{where}: " if where else ""
    try:
        yield
    except OutOfMemoryError as error:
        if not where:
            raise
        raise OutOfMemoryError(f"{place}{error}") from error
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(place + sentence(error, what, less)) from error
