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
