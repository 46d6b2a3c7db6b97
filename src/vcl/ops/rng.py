"""Randomness as a value: every generator follows from (seed, purpose), so there is nothing to store or to leak."""

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
    """One seed per run (a number is the seed of one run) and the purpose so far. No global generator is ever used.

    Run r of a stack draws from generators that know its own seed only, so a stack of runs gives each seed
    what it would get alone. The same seed and purpose always give the same numbers on the same device.
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
        """The same for these runs only, by their positions."""
        return Rng((self.seeds[run] for run in runs), self.purpose)

    def generators(self, device: torch.device | str = "cpu") -> tuple[torch.Generator, ...]:
        """One fresh generator per run."""
        return tuple(torch.Generator(device).manual_seed(number) for number in self.numbers())

    def numbers(self) -> tuple[int, ...]:
        """One number below 2^63 per run, for a generator of another make."""
        return tuple(self._number(seed) for seed in self.seeds)

    def per_run(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """``draw`` called with each run's own generator (on the CPU), stacked to [R, ...]."""
        return torch.stack([draw(generator) for generator in self.generators()])

    def _number(self, seed: int) -> int:
        text = "\x1f".join((str(seed), *self.purpose))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
