"""Kernels of a step's inputs: its noise and its batch."""

from __future__ import annotations

from importlib import import_module
from os import environ
from typing import Any

import torch
from torch import Tensor

from vcl.ops.kernels.base import BLOCK, blocks_of, triton

if triton is not None:
    tl: Any = import_module("triton.language")
    libdevice: Any = import_module("triton.language.extra.libdevice")
    SHORT = tl.constexpr(environ.get("TRITON_INTERPRET") != "1")  # Triton's interpreter has no short functions

    @triton.jit
    def _pair(a, b):
        # Box-Muller: two normals from two uniform numbers, the first above 0. The device's fast functions have errors
        # below 2^-20 here, with the angle within -pi to pi; a logarithm of almost 1 must not be above 0.
        uniform = (a.to(tl.float32) + 0.5) * 2.0**-32
        angle = b.to(tl.int32, bitcast=True).to(tl.float32) * 1.4629180792671596e-09  # pi / 2^31
        if SHORT:
            r = tl.sqrt(tl.maximum(-2.0 * libdevice.fast_logf(uniform), 0.0))
            one, two = r * libdevice.fast_sinf(angle), r * libdevice.fast_cosf(angle)
        else:
            r = tl.sqrt(-2.0 * tl.log(uniform))
            one, two = r * tl.sin(angle), r * tl.cos(angle)
        return one, two

    @triton.jit
    def four_normals(seed, step, place, group):
        # Philox: four numbers per (seed; place, step, group). Seven rounds are the fewest that pass every test of
        # BigCrush (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
        place = place.to(tl.uint32)
        none = place * 0
        a, b, c, d = tl.philox(seed, place, none + step.to(tl.uint32), none + group, none, n_rounds=7)
        one, two = _pair(a, b)
        three, four = _pair(c, d)
        return one, two, three, four

    @triton.jit
    def four_draws(noise, step, run, at, inside, draw, draws, stride, SEEDED: tl.constexpr):
        # Noise of the parameters at ``at``, for four draws from ``draw`` on; surplus draws are ignored. It comes from a
        # tape [R, S, ...], or (SEEDED) is generated reproducibly from the run's seed (``noise`` holds the seeds), the
        # step, the place and the draw.
        if SEEDED:
            one, two, three, four = four_normals(tl.load(noise + run), tl.load(step), at, draw // 4)
        else:
            left, row = at * 0 + (draws - draw), noise + (run * draws + draw) * stride + at
            one = tl.load(row, inside, other=0.0)
            two = tl.load(row + stride, inside & (left > 1), other=0.0)
            three = tl.load(row + 2 * stride, inside & (left > 2), other=0.0)
            four = tl.load(row + 3 * stride, inside & (left > 3), other=0.0)
        return one, two, three, four

    @triton.jit
    def _normal(noise, seeds, step, size, quarter, blocks, GROUP: tl.constexpr, BLOCK: tl.constexpr):
        run = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        one, two, three, four = four_normals(tl.load(seeds + run), tl.load(step), at, GROUP)
        first = noise + run * size
        tl.store(first + at, one, at < quarter)
        tl.store(first + quarter + at, two, (at < quarter) & (quarter + at < size))
        tl.store(first + 2 * quarter + at, three, (at < quarter) & (2 * quarter + at < size))
        tl.store(first + 3 * quarter + at, four, (at < quarter) & (3 * quarter + at < size))

    @triton.jit
    def _batch(
        x, y, values, labels, index, width, blocks, batch, index_stride, runs_stride, labels_stride, label_step,
        BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = (tl.program_id(0) // blocks).to(tl.int64)
        at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
        run = row // batch
        example = tl.load(index + run * index_stride + row % batch)
        pixels = tl.load(values + run * runs_stride + example * width + at, at < width)
        tl.store(x + row * width + at, pixels.to(tl.float32) / 255, at < width)
        if tl.program_id(0) % blocks == 0:
            tl.store(y + row, tl.load(labels + run * labels_stride + example * label_step))


def normal(seeds: Tensor, step: Tensor, size: int, group: int = 0) -> Tensor:
    """Standard normals [R, size] from (seed of the run; step, place, group); seeds [R] and step [] are int64.

    Draws of parameters use the groups from 0 on, one per four draws.
    """
    noise = torch.empty(len(seeds), size, device=seeds.device)
    quarter = -(-size // 4)
    blocks = blocks_of(quarter)
    if size:
        _normal[(len(seeds) * blocks,)](noise, seeds, step, size, quarter, blocks, GROUP=group, BLOCK=BLOCK)
    return noise


def batch(values: Tensor, labels: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """values[r, index[r]] / 255 and labels[r, index[r]] of each run, for index [R, B] with contiguous rows.

    Runs may share the uint8 values [R, N, ...] and labels [R, N].
    """
    x = torch.empty(*index.shape, *values.shape[2:], device=values.device)
    y = torch.empty(index.shape, dtype=labels.dtype, device=values.device)
    width = x[0, 0].numel()
    blocks = blocks_of(width)
    _batch[(index.numel() * blocks,)](
        x, y, values, labels, index, width, blocks, index.shape[1],
        index.stride(0), values.stride(0), *labels.stride(), BLOCK=BLOCK,
    )  # fmt: skip
    return x, y
