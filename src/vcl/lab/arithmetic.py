"""How a GPU multiplies matrices while a method runs; put back afterwards, because it is the whole process's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Literal

import torch

How = Literal["float32", "tf32"]
HOWS: tuple[How, ...] = ("float32", "tf32")


class _Users:
    """Who multiplies now, in one way at a time: methods that run side by side may want the same or must wait."""

    def __init__(self) -> None:
        self.changed, self.count, self.how, self.before = Condition(), 0, "", ""


_USERS = _Users()


@contextmanager
def matrix_products(how: How) -> Iterator[None]:
    """Matrix products of float32 tensors on a GPU in full, or with factors rounded to TF32 (sums stay in full)."""
    users = _USERS
    with users.changed:
        users.changed.wait_for(lambda: users.count == 0 or users.how == how)
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
