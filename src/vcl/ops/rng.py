"""Random generators derived from (seed, purpose), so there is no generator state to store or to leak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, init=False)
class Rng:
    """One seed per run (a number is the seed of one run) and the purpose so far. It never uses a global generator.

    Each run's generators depend only on its own seed, so stacked runs get the same numbers as single ones. The same
    seed and purpose give the same numbers on the same device.
    """

    seeds: tuple[int, ...]
    purpose: tuple[str, ...]

    def __init__(self, seeds: int | Iterable[int], purpose: tuple[str, ...] = ()) -> None:
        given = (seeds,) if isinstance(seeds, int) else seeds
        object.__setattr__(self, "seeds", tuple(int(seed) for seed in given))
        object.__setattr__(self, "purpose", purpose)

    def at(self, *purpose: object) -> Rng:
        """The randomness for a purpose within this one, e.g. ``rng.at("task", 3).at("coreset")``."""
        return Rng(self.seeds, self.purpose + tuple(str(part) for part in purpose))

    def select(self, runs: Iterable[int]) -> Rng:
        """The randomness of the selected runs, by position."""
        return Rng((self.seeds[run] for run in runs), self.purpose)

    def generators(self, device: torch.device | str = "cpu") -> tuple[torch.Generator, ...]:
        """One fresh generator per run."""
        return tuple(torch.Generator(device).manual_seed(number) for number in self.numbers())

    def numbers(self) -> tuple[int, ...]:
        """One number below 2^63 per run, to seed other generators."""
        return tuple(self._number(seed) for seed in self.seeds)

    def per_run(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """``draw`` of each run's own CPU generator, stacked to [R, ...]."""
        return torch.stack([draw(generator) for generator in self.generators()])

    def _number(self, seed: int) -> int:
        text = "\x1f".join((str(seed), *self.purpose))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
