"""Streams of made-up data: each example once, balanced samples under limits, and a stack is its runs."""

from itertools import combinations
from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from generated import LABELS, SEEDS, few, seeded
from vcl.data import Data
from vcl.lab.streams import Arrays, Stream, UserTask, balanced, from_arrays, one_class_each, permuted, reordered, split
from vcl.ops.rng import Rng

LIMITS = st.none() | st.integers(2, 30)


class Made(NamedTuple):
    """Data whose every image tells its own number, and some of its classes in groups of at least two."""

    arrays: Arrays
    groups: list[tuple[int, ...]]


@st.composite
def labels(draw: st.DrawFn, classes: int) -> Tensor:
    """At least one example of each class, sorted by class or in any order."""
    counts = draw(st.lists(st.integers(1, 8), min_size=classes, max_size=classes))
    y = torch.arange(classes).repeat_interleave(torch.tensor(counts))
    return y if draw(st.booleans()) else y[torch.randperm(len(y), generator=seeded(draw(SEEDS)))]


@st.composite
def made(draw: st.DrawFn) -> Made:
    classes = draw(st.integers(2, 6))
    train_y, test_y = draw(labels(classes)), draw(labels(classes))
    # No two rows are alike, also after their pixels are sorted.
    train_x, test_x = (torch.tensor([[[n, 255], [100, 7]] for n in range(len(y))]).byte() for y in (train_y, test_y))
    order = draw(st.permutations(range(classes)))
    first = draw(st.integers(2, classes))
    groups = [tuple(order[:first]), tuple(order[first:])] if classes - first > 1 else [tuple(order[:first])]
    return Made(Arrays(train_x, train_y, test_x, test_y, tuple("abcdef"[:classes])), groups)


def ids(data: Data, run: int) -> list[int]:
    """The number of every example: the pixels of its image are this, 7, 100 and 255 in some order."""
    return [int(row.sum()) - 255 - 100 - 7 for row in data.x[run].flatten(1).long()]


def assert_balanced(available: Tensor, kept: Tensor) -> None:
    """As many of each class as of any other, but for one, unless there are no more of it."""
    counts = [(int((available == label).sum()), int((kept == label).sum())) for label in available.unique()]
    for (there, mine), (_, theirs) in [pair[::way] for pair in combinations(counts, 2) for way in (1, -1)]:
        assert mine == there or theirs <= mine + 1


@few(100)
@given(st.integers(1, 5).flatmap(labels), st.integers(0, 60))
def test_a_sample_is_balanced_in_order_and_grows_with_the_limit(y: Tensor, limit: int) -> None:
    chosen = balanced(y, limit).tolist()
    assert len(chosen) == min(limit, len(y))
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(len(y)))
    assert_balanced(y, y[chosen])
    assert set(chosen) <= set(balanced(y, limit + 1).tolist())


@few(100)
@given(made(), st.integers(1, 3), st.booleans(), LIMITS, LIMITS)
def test_a_split_has_every_example_of_its_classes_once_or_a_balanced_sample(
    made: Made, runs: int, single_head: bool, limit: int | None, test_limit: int | None
) -> None:
    data, groups = made
    stream = split(data, groups, runs, single_head, limit, test_limit)
    for task, group in zip(stream, groups, strict=True):
        for part, y, most in ((task.train, data.train_y, limit), (task.test, data.test_y, test_limit)):
            mine = [n for n, label in enumerate(y.tolist()) if label in group]
            assert part.y.dtype == torch.int64
            assert part.size == (len(mine) if most is None else min(most, len(mine)))
            assert runs == 1 or part.x.stride(0) == part.y.stride(0) == 0
            for run in range(runs):
                kept = ids(part, run)
                assert kept == sorted(set(kept)), "each once, in the order of the data"
                assert set(kept) <= set(mine)
                assert kept == mine or most is not None
                classes = y[kept].tolist()
                assert part.y[run].tolist() == (classes if single_head else [group.index(label) for label in classes])
                assert_balanced(y[mine], y[kept])
                assert len(set(classes)) > 1


@few(40)
@given(made(), st.integers(1, 3), LIMITS)
def test_one_class_each_has_that_class_alone(made: Made, runs: int, limit: int | None) -> None:
    data, _ = made
    for number, task in enumerate(one_class_each(data, runs, limit, limit)):
        for part, y in ((task.train, data.train_y), (task.test, data.test_y)):
            there = int((y == number).sum())
            assert part.y.tolist() == [[number] * (there if limit is None else min(limit, there))] * runs


@few(60)
@given(made(), st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True), LIMITS)
def test_a_permuted_stream_moves_pixels_alike_in_all_examples_of_a_run_and_a_stack_is_its_runs(
    made: Made, seeds: list[int], limit: int | None
) -> None:
    data, _ = made
    stream = permuted(data, 2, Rng(tuple(seeds)), limit, limit)
    for number, task in enumerate(stream):
        for part, x, y in ((task.train, data.train_x, data.train_y), (task.test, data.test_x, data.test_y)):
            for run, seed in enumerate(seeds):
                kept = ids(part, run)
                assert kept == sorted(set(kept))
                assert len(kept) == (len(y) if limit is None else min(limit, len(y)))
                assert part.y[run].tolist() == y[kept].tolist()
                assert_balanced(y, y[kept])
                order = Rng((seed,)).at("permutation", number).per_run(lambda g: torch.randperm(4, generator=g))[0]
                assert torch.equal(part.x[run], x[kept].flatten(1)[:, order])
    for run, seed in enumerate(seeds):
        assert_same_run(stream, run, permuted(data, 2, Rng((seed,)), limit, limit))


@few(40)
@given(made(), LIMITS, st.integers(2, 3), st.booleans())
def test_a_split_of_a_stack_is_that_of_its_runs(made: Made, limit: int | None, runs: int, single_head: bool) -> None:
    data, groups = made
    for run in range(runs):
        assert_same_run(
            split(data, groups, runs, single_head, limit, limit), run, split(data, groups, 1, single_head, limit, limit)
        )


def assert_same_run(stack: Stream, run: int, alone: Stream) -> None:
    for many, one in zip(stack, alone, strict=True):
        assert (many.name, many.heads, many.train.sources) == (one.name, one.heads, one.train.sources)
        for left, right in ((many.train, one.train), (many.test, one.test)):
            assert torch.equal(left.x[run], right.x[0])
            assert torch.equal(left.y[run], right.y[0])


@few(40)
@given(st.permutations(range(4)), st.integers(1, 3), LABELS, st.booleans())
def test_a_users_own_tasks_come_as_they_are_in_any_order(
    order: list[int], runs: int, dtype: torch.dtype, column: bool
) -> None:
    x, y = torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 1, 0, 1, 0])
    given_y = (y[:, None] if column else y).to(dtype)
    tasks = [UserTask(f"t{n}", x + n, given_y, x[:2], given_y[:2], units=2) for n in range(4)]
    stream = reordered(from_arrays(tasks, runs), order)
    assert [task.name for task in stream] == [f"t{n}" for n in order]
    for number, task in zip(order, stream, strict=True):
        assert torch.equal(task.train.x, (x + number).expand(runs, 6, 2))
        assert torch.equal(task.train.y, y.expand(runs, 6))
        assert task.train.y.dtype == task.test.y.dtype == torch.int64
