"""Sets the precision of matrix products on a GPU while a method runs. The setting is global, so it is restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Literal

import torch

MatmulPrecision = Literal["float32", "tf32"]
MATMUL_PRECISIONS: tuple[MatmulPrecision, ...] = ("float32", "tf32")


class _Users:
    """The methods that multiply now, all in one precision. A method that needs another one waits.

    Methods are served in order of arrival, so that none waits forever.
    """

    def __init__(self) -> None:
        self.changed, self.count, self.how, self.before = Condition(), 0, "", ""
        self.waiting: list[object] = []


_USERS = _Users()


@contextmanager
def matrix_products(how: MatmulPrecision) -> Iterator[None]:
    """Compute float32 matrix products on a GPU in full precision, or with factors rounded to TF32 (sums in float32)."""
    users, me = _USERS, object()
    with users.changed:
        users.waiting.append(me)
        try:
            users.changed.wait_for(lambda: users.waiting[0] is me and (users.count == 0 or users.how == how))
        finally:
            users.waiting.remove(me)
            users.changed.notify_all()
        if users.count == 0:
            users.how, users.before = how, torch.backends.cuda.matmul.fp32_precision
            torch.backends.cuda.matmul.fp32_precision = "tf32" if how == "tf32" else "ieee"
        users.count += 1
    try:
        yield
    finally:
        with users.changed:
            users.count -= 1
            if users.count == 0:
                torch.backends.cuda.matmul.fp32_precision = users.before
            users.changed.notify_all()
