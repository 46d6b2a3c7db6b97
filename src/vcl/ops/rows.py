"""Gathers examples by position: in torch, or as one kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from vcl.ops import kernels


def examples_at(x: Tensor, y: Tensor, index: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """x[r, index[r]] and y[r, index[r]] for each run; the kernel form also scales bytes to 0 to 1.

    Inputs are written to ``memory`` if the shape matches: a step that allocates memory waits for new pages.
    """
    pixels = x.dtype == torch.uint8 and kernels.usable(x, torch.uint8) and x[0].is_contiguous()
    if pixels and y.dim() == 2 and index.stride(1) == 1:
        return kernels.batch(x, y, index)
    return rows_at(x, index, memory), rows_at(y, index)


def rows_at(values: Tensor, index: Tensor, memory: Tensor | None = None) -> Tensor:
    """values[r, index[r]] for each run: [R, N, ...] and [R, B] to [R, B, ...], by rows of memory."""
    shape = (*index.shape, *values.shape[2:])
    if values.stride(0) == 0 or len(values) == 1:  # all runs share the same examples
        rows, positions = values[0], index
    else:
        first = torch.arange(0, values.shape[0] * values.shape[1], values.shape[1], device=index.device)
        rows, positions = values.flatten(0, 1), index + first[:, None]
    if memory is not None and memory.shape == shape:
        torch.index_select(rows, 0, positions.flatten(), out=memory.flatten(0, 1))
        return memory
    return rows.index_select(0, positions.flatten()).view(shape)


def as_input(x: Tensor) -> Tensor:
    """Inputs as the network sees them: uint8 pixels / 255, floats unchanged, no other normalisation."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def own_input(x: Tensor) -> Tensor:
    """:func:`as_input` as a copy, because a module may change its input in place."""
    return as_input(x) if x.dtype == torch.uint8 else x.clone()


def input_into(x: Tensor, out: Tensor) -> Tensor:
    """:func:`as_input` of x, written to ``out``, which has as many values."""
    out.copy_(x.reshape(out.shape))
    return out.div_(255) if x.dtype == torch.uint8 else out
