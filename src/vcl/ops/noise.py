"""Standard normal numbers for the steps of a fit: each run's from its own seed, new at every step."""

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
        """The generators that a captured step must know of."""
        ...

    def draw(self, size: int, memory: Tensor | None = None) -> Tensor:
        """The next standard normals [R, size], written to ``memory`` if it has that shape."""
        ...


@final
class TorchNoise:
    """From torch's generators, one a run."""

    def __init__(self, rng: Rng, like: Tensor) -> None:
        self.generators, self.like = rng.generators(like.device), like

    def draw(self, size: int, memory: Tensor | None = None) -> Tensor:
        """The next standard normals [R, size]; in ``memory``, if it is of that shape."""
        return draw_noise(size, self.generators, self.like, memory)


LATENT_GROUP = 2**30
"""The group of noise for latent variables; draws of parameters take the groups from 0 on and never reach it."""


class Key(NamedTuple):
    """What noise follows from: the seeds of the runs [R] and the number of the step [], int64 on the device."""

    seeds: Tensor
    step: Tensor

    def for_latent(self, size: int) -> Tensor:
        """Standard normals [R, size] for latent variables, independent of those of drawn parameters."""
        return kernels.normal(*self, size, LATENT_GROUP)


@final
class KernelNoise:
    """On a GPU, by one kernel for all runs: Philox, counted by (seed of the run; step, place)."""

    generators: tuple[torch.Generator, ...] = ()

    def __init__(self, rng: Rng, like: Tensor) -> None:
        self.seeds = torch.tensor(rng.numbers(), dtype=torch.int64, device=like.device)
        self.step = torch.zeros((), dtype=torch.int64, device=like.device)

    def draw(self, size: int, memory: Tensor | None = None) -> Tensor:
        """The next standard normals [R, size], in memory of their own."""
        return kernels.normal(*self.key(), size)

    def key(self) -> Key:
        """For kernels that make the next noise by themselves."""
        self.step.add_(1)
        return Key(self.seeds, self.step)


def make_noise(rng: Rng, like: Tensor) -> Noise:
    """The kernel where it can be used."""
    return KernelNoise(rng, like) if kernels.usable(like) else TorchNoise(rng, like)


def draw_noise(
    size: int, generators: tuple[torch.Generator, ...], like: Tensor, memory: Tensor | None = None
) -> Tensor:
    """Standard normals [R, size], each run's from its own generator; in ``memory``, if it is of that shape."""
    shape = (len(generators), size)
    if memory is not None and memory.shape == shape:
        noise = memory
    else:
        noise = torch.empty(shape, dtype=like.dtype, device=like.device)
    for row, generator in zip(noise, generators, strict=True):
        row.normal_(generator=generator)
    return noise
