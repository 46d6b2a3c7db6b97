"""Kernels for what stands between the matrix products of a network; as :mod:`vcl.kernels`, none of them is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from vcl.kernels import blocks_of, in_units, triton

if triton is not None:
    tl: Any = import_module("triton.language")

    # A program takes ROWS x COLS of one group's matrix [rows, out]; widths come in units, as in vcl.kernels.

    @triton.jit
    def _activate(
        a, b, rows, out, row_blocks, col_blocks, b_apart,
        UNIT: tl.constexpr, BIASED: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0)
        group = (program // (row_blocks * col_blocks)).to(tl.int64)
        row = (program // col_blocks) % row_blocks * ROWS + tl.arange(0, ROWS)
        col = program % col_blocks * COLS + tl.arange(0, COLS)
        inside = (row < rows)[:, None] & (col < out * UNIT)[None, :]
        place = a + (group * rows + row)[:, None] * (out * UNIT) + col[None, :]
        value = tl.load(place, inside, other=0.0)
        if BIASED:
            value += tl.load(b + group * b_apart * UNIT + col, col < out * UNIT, other=0.0)[None, :]
        if RELU:
            value = tl.where(value < 0, 0.0, value)  # NaN stays
        tl.store(place, value, inside)

    @triton.jit
    def _activate_gradient(
        masked, g_b, g, a, rows, out, col_blocks, b_apart,
        UNIT: tl.constexpr, BIASED: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        # One program goes down all rows of its columns, so that no sum is left over.
        group = (tl.program_id(0) // col_blocks).to(tl.int64)
        col = tl.program_id(0) % col_blocks * COLS + tl.arange(0, COLS)
        total = tl.zeros((ROWS, COLS), tl.float32)
        for first in range(0, rows, ROWS):
            row = first + tl.arange(0, ROWS)
            inside = (row < rows)[:, None] & (col < out * UNIT)[None, :]
            at = (group * rows + row)[:, None] * (out * UNIT) + col[None, :]
            up = tl.load(g + at, inside, other=0.0)
            if RELU:
                up = tl.where(tl.load(a + at, inside, other=0.0) <= 0, 0.0, up)
                tl.store(masked + at, up, inside)
            total += up
        if BIASED:
            tl.store(g_b + group * b_apart * UNIT + col, tl.sum(total, 0), col < out * UNIT)


def activate(a: Tensor, b: Tensor | None, relu: bool) -> Tensor:
    """a + b, or the positive part of it, in place: a [G, N, out]; b [G, out], each row in one piece, or None."""
    (groups, rows, out), tile = a.shape, (16, 128)
    if b is not None or relu:
        unit, (units, apart) = in_units(out, 0 if b is None else b.stride(0))
        row_blocks, col_blocks = blocks_of(rows, tile[0]), blocks_of(out, tile[1])
        _activate[(groups * row_blocks * col_blocks,)](
            a, a if b is None else b, rows, units, row_blocks, col_blocks, apart,
            UNIT=unit, BIASED=b is not None, RELU=relu, ROWS=tile[0], COLS=tile[1],
        )  # fmt: skip
    return a


def activate_gradient(g: Tensor, a: Tensor | None, g_b: Tensor | None) -> Tensor:
    """g, but 0 where a is (if it is given): all [G, N, out]; and its sum over N into g_b [G, out], if that is given."""
    groups, rows, out = g.shape
    if a is None and g_b is None:
        return g
    g = g.contiguous()
    masked = g if a is None else torch.empty_like(g)
    unit, (units, apart) = in_units(out, 0 if g_b is None else g_b.stride(0))
    few = rows <= 64
    col_blocks = blocks_of(out, 32)
    _activate_gradient[(groups * col_blocks,)](
        masked, g if g_b is None else g_b, g, g if a is None else a, rows, units, col_blocks, apart,
        UNIT=unit, BIASED=g_b is not None, RELU=a is not None, ROWS=64 if few else 128, COLS=32,
        num_warps=4 if few else 8,
    )  # fmt: skip
    return masked
