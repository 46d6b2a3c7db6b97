"""Strategies for the property-based tests: data, tasks that return, layouts, and the settings that all share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import WHOLE, Data, Source, concat, dataset

RUNS = st.integers(1, 3)
SEEDS = st.integers(0, 2**32 - 1)
INPUTS = st.sampled_from([torch.uint8, torch.float32, torch.float64])
LABELS = st.sampled_from(WHOLE)
SOURCES = (Source("t0", "h0"), Source("t1", "h1"), Source("t2", "h0"))


def few(examples: int) -> Callable[[Any], Any]:
    """This many examples, the same ones every time, however long one takes."""
    return settings(max_examples=examples, deadline=None, derandomize=True)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(shape: Sequence[int], seed: int, dtype: torch.dtype = torch.float32, most: int = 200) -> Tensor:
    """Whole numbers from 0 to ``most``, which every dtype holds exactly."""
    return torch.randint(0, most + 1, tuple(shape), generator=seeded(seed)).to(dtype)


def orders(runs: int, size: int, seed: int) -> Tensor:
    """Another order of ``size`` positions for each run [R, size]."""
    g = seeded(seed)
    return torch.stack([torch.randperm(size, generator=g) for _ in range(runs)])


@st.composite
def data(
    draw: st.DrawFn,
    runs: int,
    dtype: torch.dtype = torch.float32,
    shape: tuple[int, ...] = (3,),
    least: int = 0,
    sources: Sequence[Source] = SOURCES,
) -> Data:
    """Examples of some of the sources, at least ``least`` of each; every run has its own, or all share.

    They have a further column. Some have few distinct inputs, down to one.
    """
    chosen = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=len(sources), unique=True))
    most, shared = draw(st.sampled_from([0, 1, 200])), draw(st.booleans())
    parts = [_of_one(source, draw(st.integers(least, 5)), runs, dtype, shape, draw(SEEDS), most) for source in chosen]
    made = parts[0]
    for part in parts[1:]:
        made = concat(made, part)
    if shared or made.size == 0:
        first = made.map(lambda part: part[:1].expand(part.shape))
        return first._replace(source=made.source)
    return made.take(orders(runs, made.size, draw(SEEDS)))


def _of_one(
    source: Source, size: int, runs: int, dtype: torch.dtype, shape: tuple[int, ...], seed: int, most: int
) -> Data:
    x, y = numbers((runs, size, *shape), seed, dtype, most), numbers((runs, size), seed + 1, torch.int64, 9)
    old = numbers((runs, size, 2), seed + 2)
    return dataset(x[0], y[0], *source, runs)._replace(x=x, y=y, extra={"old": old})


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Data]]:
    """Seeds, and tasks of one kind for as many runs: with three sources and up to four tasks, many return."""
    seeds = tuple(draw(st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True)))
    dtype, shape = draw(INPUTS), draw(st.sampled_from([(3,), (2, 2)]))
    one = data(len(seeds), dtype, shape, least=3)
    return seeds, draw(st.lists(one, min_size=1, max_size=4))


def only_run(data: Data, run: int) -> Data:
    """The examples of one run."""
    return data.select([run])


def rows(data: Data, run: int) -> list[tuple[object, ...]]:
    """Every example of a run with its further columns, its label and its source, in order."""
    columns = [data.x[run], *(data.extra[name][run] for name in sorted(data.extra))]
    return [
        (tuple(tuple(part.flatten().tolist()) for part in parts), tuple(y.flatten().tolist()), *data.sources[source])
        for *parts, y, source in zip(*columns, data.y[run], data.source[run].tolist(), strict=True)
    ]


def multiset(run: int, *parts: Data) -> Counter[tuple[object, ...]]:
    """The examples of a run in all parts, with how often each is there."""
    return Counter(row for part in parts for row in rows(part, run))


SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
NAMES = [
    *(f"trunk.{n}" for n in range(4)),
    *(f"heads.{h}.{p}" for h in ("a", "b/c", "d.0") for p in ("weight", "bias")),
]


@st.composite
def layouts(draw: st.DrawFn, least: int = 1) -> Layout:
    """Shared parameters and those of heads, in any order and of any shape."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=least, unique=True))
    return Layout(tuple(names), tuple(draw(SHAPES) for _ in names))


@st.composite
def parts_of(draw: st.DrawFn, layout: Layout) -> Layout:
    """Some of the parameters of a layout, from none to all."""
    wanted = {name for name in layout.names if draw(st.booleans())}
    return layout.where(lambda name: name in wanted)


def bits(values: Tensor) -> list[Any]:
    """What stands in memory, so that -0 is not 0 and NaN is itself."""
    found: list[Any] = values.contiguous().view(torch.int32).tolist()
    return found
