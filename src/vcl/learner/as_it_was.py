"""Says of an update that failed in the middle of its work that it changed nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from vcl.errors import NonFiniteError, OutOfMemoryError
from vcl.ops.out_of_memory import TASK, told_of_memory


@contextmanager
def as_it_was(checkpoint: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Errors within say that the learner is as it was; ``checkpoint`` is where the update saves what it has done."""
    said = "the learner is as it was before this update"
    try:
        with told_of_memory("the update", TASK):
            yield
    except NonFiniteError as error:
        raise NonFiniteError(f"{str(error).rstrip('.')}; {said}.", error.runs, error.reason) from error
    except OutOfMemoryError as error:
        more = "" if checkpoint is None else f", and the same update goes on from what was saved in {checkpoint}"
        raise OutOfMemoryError(f"{str(error).rstrip('.')}; {said}{more}.") from error
