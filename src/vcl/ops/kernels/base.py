"""Helpers that all kernels share."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

triton: Any = import_module("triton") if find_spec("triton") else None

BLOCK = 1024


def usable(values: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether these kernels support ``values``."""
    return triton is not None and values.is_cuda and values.dtype == dtype


def evenly_strided(noise: Tensor) -> bool:
    """Whether the draws of all runs, noise [R, S, ...], have one stride, and each draw is contiguous."""
    runs, draws = noise.shape[:2]
    whole = noise.stride()[2:] == torch.empty(noise.shape[2:], device="meta").stride()
    return whole and (1 in (runs, draws) or noise.stride(0) == draws * noise.stride(1))


def stride_of_draws(noise: Tensor) -> int:
    """The stride between draws of all runs, noise [R, S, ...], in values."""
    return noise.stride(0) if noise.shape[1] == 1 else noise.stride(1)


def in_units(*numbers: int) -> tuple[int, list[int]]:
    """(4, each divided by 4) if all are multiples of 4, else (1, the numbers unchanged)."""
    unit = 1 if any(number % 4 for number in numbers) else 4
    return unit, [number // unit for number in numbers]


def blocks_of(size: int, block: int = BLOCK) -> int:
    """The number of blocks that cover ``size``."""
    return -(-size // block)
