"""Standard normals for the steps of a fit: from each run's own seed, new at every step."""

from __future__ import annotations

from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from vcl.ops import kernels
from vcl.ops.rng import Rng


class Noise(Protocol):
    """A source of noise for R runs."""

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generators that a captured step must register."""
        ...

    def held(self) -> tuple[Tensor, ...]:
        """What a draw changes beside the generators."""
        ...

    def draw(self, size: int, memory: Tensor | None = None) -> Tensor:
        """The next standard normals [R, size], written to ``memory`` if it has that shape."""
        ...


@final
class TorchNoise:
    """Noise from torch's generators, one per run."""

    def __init__(self, rng: Rng, like: Tensor) -> None:
        self.generators, self.like = rng.generators(like.device), like

    def held(self) -> tuple[Tensor, ...]:
        """Nothing."""
        return ()

    def draw(self, size: int, memory: Tensor | None = None) -> Tensor:
        """The next standard normals [R, size], written to ``memory`` if it has that shape."""
        return draw_noise(size, self.generators, self.like, memory)


LATENT_GROUP = 2**30
"""The noise group of latent variables; draws of parameters use the groups from 0 on and never reach it."""


class Key(NamedTuple):
    """The key of a step's noise: the seeds of the runs [R] and the step number [], int64 on the device."""

    seeds: Tensor
    step: Tensor

    def for_latent(self, size: int) -> Tensor:
        """Standard normals [R, size] for latent variables, independent of those of drawn parameters."""
        return kernels.normal(*self, size, LATENT_GROUP)


@final
class KernelNoise:
    """Noise on a GPU, by one kernel for all runs: Philox with counter (seed of the run; step, place)."""

    generators: tuple[torch.Generator, ...] = ()

    def __init__(self, rng: Rng, like: Tensor) -> None:
        self.seeds = torch.tensor(rng.numbers(), dtype=torch.int64, device=like.device)
        self.step = torch.zeros((), dtype=torch.int64, device=like.device)

    def held(self) -> tuple[Tensor, ...]:
        """The number of draws."""
        return (self.step,)

    def draw(self, size: int, memory: Tensor | None = None) -> Tensor:
        """The next standard normals [R, size], in new memory."""
        return kernels.normal(*self.key(), size)

    def key(self) -> Key:
        """The next key, for kernels that generate their own noise."""
        self.step.add_(1)
        return Key(self.seeds, self.step)


def make_noise(rng: Rng, like: Tensor) -> Noise:
    """The kernel form if usable, else torch's."""
    return KernelNoise(rng, like) if kernels.usable(like) else TorchNoise(rng, like)


class NoiseShape(NamedTuple):
    """What the standard normals [R, K] of a step are for.

    Each of ``draws`` has ``fixed`` for its parameters, then a block [B, width] for each of ``widths``, and is padded to
    a multiple of ``unit``.
    """

    draws: int
    fixed: int
    widths: tuple[int, ...] = ()
    unit: int = 1

    def size(self, examples: int) -> int:
        """K for a batch of so many examples."""
        return self.draws * -(-(self.fixed + examples * sum(self.widths)) // self.unit) * self.unit

    def part(self, noise: Tensor, examples: int, rows: slice) -> Tensor:
        """The noise of some rows of a batch, out of that of all its ``examples``."""
        if not self.widths or rows == slice(0, examples):
            return noise
        runs, count = len(noise), rows.stop - rows.start
        tape = noise.view(runs, self.draws, -1)
        pieces, at = [tape[..., : self.fixed]], self.fixed
        for width in self.widths:
            block = tape[..., at : at + examples * width].view(runs, self.draws, examples, width)
            pieces.append(block[:, :, rows].flatten(2))
            at += examples * width
        free = self.size(count) // self.draws - self.fixed - count * sum(self.widths)
        return torch.cat([*pieces, tape.new_zeros(runs, self.draws, free)], dim=2).flatten(1)


def draw_noise(
    size: int, generators: tuple[torch.Generator, ...], like: Tensor, memory: Tensor | None = None
) -> Tensor:
    """Standard normals [R, size] from each run's own generator, written to ``memory`` if it has that shape."""
    shape = (len(generators), size)
    if memory is not None and memory.shape == shape:
        noise = memory
    else:
        noise = torch.empty(shape, dtype=like.dtype, device=like.device)
    for row, generator in zip(noise, generators, strict=True):
        row.normal_(generator=generator)
    return noise
