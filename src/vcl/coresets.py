"""Coreset rules: from C_{t-1} and D_t to C_t and the rest, D_t u C_{t-1} \\ C_t, which the posterior absorbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, final, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.data import Data, concat
from vcl.errors import VclError
from vcl.ops.rng import Rng


class CoresetRule(Protocol):
    """(C_{t-1}, D_t) -> (C_t, rest), for all runs at once."""

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """Returns the new coreset and the points that the propagated posterior absorbs."""
        ...


class Sizes(NamedTuple):
    """The number of points that a rule keeps after some tasks of equal size, and the most it passes on in one task."""

    kept: int
    rest: int


@runtime_checkable
class Counted(Protocol):
    """A rule that knows its sizes before it sees data."""

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """Its sizes after ``tasks`` tasks of ``examples`` examples each."""
        ...


def sizes(rule: CoresetRule, tasks: int, examples: int) -> Sizes:
    """The sizes of a rule; a rule that does not report them counts as keeping nothing."""
    return rule.sizes(tasks, examples) if isinstance(rule, Counted) else Sizes(0, examples)


@final
@dataclass(frozen=True)
class Nothing:
    """No coreset: all data goes to the posterior. Plain VCL."""

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """Keeps nothing, passes on everything."""
        return Sizes(0, examples)

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """({}, C_{t-1} u D_t)."""
        return new.empty(), concat(coreset, new)


@final
@dataclass(frozen=True)
class Everything:
    """All data stays in the coreset and none is propagated, so q_t is fitted to D_{1:t} at once: batch VI."""

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """Keeps everything, passes on nothing."""
        return Sizes(tasks * examples, 0)

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """(C_{t-1} u D_t, {})."""
        return concat(coreset, new), new.empty()


@final
@dataclass(frozen=True)
class RandomK:
    """K points of each task, chosen uniformly at random and kept permanently."""

    k: int

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """K of each task, and the others of one."""
        return Sizes(tasks * self.k, max(0, examples - self.k))

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """(C_{t-1} u K random points of D_t, the others of D_t)."""
        _check_size(self.k, new)
        chosen, rest = new.divide(random_subset(new.size, self.k, rng))
        return concat(coreset, chosen), rest


@final
@dataclass(frozen=True)
class KCenter:
    """K points of each task, chosen by greedy K-center on the inputs and kept permanently."""

    k: int

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """K of each task, and the others of one."""
        return Sizes(tasks * self.k, max(0, examples - self.k))

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """(C_{t-1} u K spread-out points of D_t, the others of D_t)."""
        _check_size(self.k, new)
        chosen, rest = new.divide(k_center(new.x, self.k))
        return concat(coreset, chosen), rest


@final
@dataclass(frozen=True)
class Budget:
    """At most ``total`` points over all tasks, in equal shares: as tasks arrive, random old points leave.

    Points that leave go to the propagated posterior, as in Algorithm 1, so no data is lost. A repeated task has one
    share, drawn uniformly from its new points and its points in C_{t-1}.
    """

    total: int

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """Keeps the total; once that is reached, passes on as many as arrive."""
        return Sizes(min(self.total, tasks * examples), examples)

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """(every task's share, the points that left C_{t-1} u the others of D_t)."""
        sources = tuple(dict.fromkeys((*coreset.sources, *new.sources)))
        if self.total < len(sources):
            raise VclError(
                f"a coreset budget of {self.total} points cannot hold one of each of {len(sources)} tasks; give a "
                f"budget of at least {len(sources)}."
            )
        share, extra = divmod(self.total, max(len(sources), 1))
        kept, left = new.empty(), new.empty()
        for number, source in enumerate(sources):
            points = concat(coreset.where([source]), new.where([source]))
            size = min(share + (number < extra), points.size)
            stay, leave = points.divide(random_subset(points.size, size, rng.at(source.task, source.head)))
            kept, left = concat(kept, stay), concat(left, leave)
        return kept, left


@final
@dataclass(frozen=True)
class Only:
    """Another rule's coreset; the rest of the data is dropped, so the propagated posterior stays the prior."""

    rule: CoresetRule

    def sizes(self, tasks: int, examples: int) -> Sizes:
        """Keeps what the rule keeps, passes on nothing."""
        return Sizes(sizes(self.rule, tasks, examples).kept, 0)

    def __call__(self, coreset: Data, new: Data, rng: Rng) -> tuple[Data, Data]:
        """(C_t of the rule, {})."""
        return self.rule(coreset, new, rng)[0], new.empty()


def random_subset(size: int, k: int, rng: Rng) -> Tensor:
    """k different positions out of ``size`` for each run [R, k]."""
    return rng.per_run(lambda generator: torch.randperm(size, generator=generator)[:k])


def k_center(x: Tensor, k: int) -> Tensor:
    """Greedy K-center: start at point 0, then add the point farthest from the chosen ones. x [R, N, ...] -> [R, k].

    Ties go to the first point. If only copies of chosen points remain, they are taken in order, so no point is chosen
    twice. Runs that share their data are solved once.
    """
    if not 0 < k <= x.shape[1]:
        raise VclError(f"{k} points cannot be chosen out of {x.shape[1]}; give a number from 1 to {x.shape[1]}.")
    flat = x.flatten(2)
    if x.stride(0) == 0 or x.shape[0] == 1:
        return _k_center(flat[0], k).expand(x.shape[0], -1)
    return torch.stack([_k_center(points, k) for points in flat])


def _k_center(x: Tensor, k: int) -> Tensor:
    distance = _distances(x)
    chosen = torch.zeros(k, dtype=torch.int64, device=x.device)
    nearest = distance(chosen[0])
    for number in range(1, k):
        nearest.index_fill_(0, chosen[number - 1 : number], -1)  # below the distance 0 of a copy
        chosen[number] = nearest.argmax()
        nearest = torch.minimum(nearest, distance(chosen[number]))
    return chosen


def _distances(x: Tensor) -> _Distance:
    """A function from one point to the squared distances of all: exact for pixels, float64 for other numbers."""
    x = x[:, (x != x[0]).any(0)]  # constant pixels (MNIST's border) do not change distances
    if x.dtype != torch.uint8 or x.shape[1] > EXACT_WIDTH:
        points = x.double()
        return lambda center: (points - points[center]).square().sum(1)
    # |x - c|^2 = |x|^2 + |c|^2 - 2 x.c, in integers. A product x.c may exceed 2^24, where float32 is no longer exact,
    # so c is split into two base-16 digits: both products stay below 2^24 and share one pass over x.
    points = x.float()
    norms = points.square().sum(1, dtype=torch.float64)

    def distance(center: Tensor) -> Tensor:
        digits = torch.stack([x[center] // 16, x[center] % 16]).float()
        high, low = F.linear(points, digits).double().unbind(1)
        return norms + norms[center] - 2 * (16 * high + low)

    return distance


EXACT_WIDTH = 2**24 // (255 * 15)
"""Up to this many pixels, the product of a pixel row and a row of base-16 digits is exact in float32."""


class _Distance(Protocol):
    def __call__(self, center: Tensor) -> Tensor: ...


def _check_size(k: int, new: Data) -> None:
    if not isinstance(k, int):
        raise VclError(f"a coreset of {k!r} points was asked for; give a whole number.")
    if new.size == 0:
        raise VclError(
            f"a coreset of {k} points cannot be taken from a task without examples; give it at least {max(k, 1)}."
        )
    if not 0 < k <= new.size:
        raise VclError(
            f"a coreset of {k} points cannot be taken from a task of {new.size} examples; "
            f"give a size from 1 to {new.size}."
        )
