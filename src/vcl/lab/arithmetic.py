"""How a GPU multiplies matrices while a method runs; put back afterwards, because it is the whole process's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch


@contextmanager
def matrix_products(how: Literal["float32", "tf32"]) -> Iterator[None]:
    """Matrix products of float32 tensors on a GPU in full, or with factors rounded to TF32 (sums stay in full)."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if how == "tf32" else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
