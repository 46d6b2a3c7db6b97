"""Streams of tasks: data that arrives one task at a time, for R runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.data import Array, Data, Source, as_labels, as_tensor, check_arrays, dataset
from vcl.errors import VclError
from vcl.lab.datasets import Dataset
from vcl.ops.rng import Rng
from vcl.recursion import Task

SHARED = "all"
"""The head that every task uses in a single-head network."""


class Arrays(NamedTuple):
    """Training and test examples as tensors, images as uint8, and the names of the classes."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]

    def digest(self) -> str:
        """A hash of all examples and labels, their shapes and types and the names of the classes."""
        made = blake2b(repr(self.classes).encode(), digest_size=8)
        for part in self[:4]:
            made.update(f"{part.dtype}{tuple(part.shape)}".encode())
            made.update(part.cpu().contiguous().numpy().data)
        return made.hexdigest()

    def to(self, device: torch.device | str) -> Arrays:
        """The same arrays on another device."""
        train_x, train_y, test_x, test_y = (part.to(device) for part in self[:4])
        return Arrays(train_x, train_y, test_x, test_y, self.classes)


@dataclass(frozen=True)
class Stream:
    """``size`` tasks, each made on demand, so that only one task's training data is in memory."""

    size: int
    shape: tuple[int, ...]
    """The shape of one input."""
    make: Callable[[int], Task]

    def to(self, device: torch.device | str) -> Stream:
        """The same tasks on another device."""

        def make(number: int) -> Task:
            task = self.make(number)
            return task._replace(train=task.train.to(device), test=None if task.test is None else task.test.to(device))

        return Stream(self.size, self.shape, make)

    def __iter__(self) -> Iterator[Task]:
        return (self.make(number) for number in range(self.size))


def arrays(data: Dataset) -> Arrays:
    """A dataset as tensors, with labels as int64 [N]."""
    train_x, train_y, test_x, test_y = (
        torch.from_numpy(part) for part in (data.train_x, data.train_y, data.test_x, data.test_y)
    )
    train_y, test_y = (as_labels(y, 1, f"the labels of {data.name}") for y in (train_y, test_y))
    return Arrays(train_x, train_y, test_x, test_y, data.classes)


def balanced(y: Tensor, limit: int) -> Tensor:
    """Sorted positions [n] of n = min(limit, N) examples with labels y [N], balanced over classes as far as possible.

    The examples are shuffled. Then one of each class is taken in turn, smallest label first; exhausted classes are
    skipped. So a smaller limit selects a subset of a larger one. The order is the same for every seed, so that runs
    share the data in memory.
    """
    generator = Rng((0,)).at("limit").generators()[0]
    shuffled = torch.randperm(len(y), generator=generator)
    _, place, counts = torch.unique(y.cpu()[shuffled], return_inverse=True, return_counts=True)
    by_class = place.argsort(stable=True)
    # For each example, the number of its class before it in the random order.
    turn = torch.empty_like(place)
    turn[by_class] = torch.arange(len(y)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    chosen = (turn * len(counts) + place).argsort()[:limit]
    return shuffled[chosen].sort().values.to(y.device)


def limited(x: Tensor, y: Tensor, limit: int | None) -> tuple[Tensor, Tensor]:
    """The examples that :func:`balanced` selects; x [N, ...] and y [N] themselves if all are within the limit."""
    if limit is None or limit >= len(y):
        return x, y
    chosen = balanced(y, limit)
    return x[chosen], y[chosen]


def permuted(data: Arrays, tasks: int, rng: Rng, limit: int | None = None, test_limit: int | None = None) -> Stream:
    """Tasks with one head and permuted pixels; every task, the first too, has its own fixed permutation per run.

    ``limit`` and ``test_limit`` keep a balanced sample (:func:`balanced`), the same for every task and run.
    """
    train = _of_classes(data.train_x.flatten(1), data.train_y, data.classes, "every task", "training", limit)
    test = _of_classes(data.test_x.flatten(1), data.test_y, data.classes, "every task", "test", test_limit)
    width = train[0].shape[1]

    def shuffle(x: Tensor, y: Tensor, order: Tensor, task: str) -> Data:
        runs = order.shape[0]
        stacked = torch.stack([x[:, row] for row in order.to(x.device)])
        source = torch.zeros((), dtype=torch.int64, device=x.device).expand(runs, x.shape[0])
        return Data(stacked, y.expand(runs, -1), source, (Source(task, SHARED),))

    def make(number: int) -> Task:
        name = f"permutation {number + 1}"
        order = rng.at("permutation", number).per_run(lambda g: torch.randperm(width, generator=g))
        heads = {SHARED: len(data.classes)}
        return Task(name, shuffle(*train, order, name), shuffle(*test, order, name), heads)

    return Stream(tasks, (width,), make)


def split(
    data: Arrays,
    groups: Sequence[Sequence[int]],
    runs: int,
    single_head: bool = False,
    limit: int | None = None,
    test_limit: int | None = None,
    shared_outputs: bool = False,
) -> Stream:
    """One task per group of classes.

    Multi-head: each task has its own head, with labels numbered within the group. ``single_head``: one head over all
    classes (class-incremental). ``shared_outputs``: one head with as many outputs as a group has classes, and labels
    numbered within the group (domain-incremental). Limits keep a balanced sample of each task (:func:`balanced`).
    """
    if single_head and shared_outputs:
        raise VclError("a head is over all classes or shared by the groups, not both; give one of them.")
    if shared_outputs and len({len(group) for group in groups}) > 1:
        raise VclError(f"class groups {list(groups)} share their outputs; give all the same number of classes.")
    seen = [c for group in groups for c in group]
    if len(set(seen)) != len(seen) or not all(0 <= c < len(data.classes) for c in seen):
        raise VclError(f"class groups {list(groups)} must name each of 0 to {len(data.classes) - 1} at most once.")

    def part(kind: str, x: Tensor, y: Tensor, group: Sequence[int], task: str, most: int | None) -> Data:
        mine = torch.isin(y, torch.tensor(list(group), device=y.device)).nonzero()[:, 0]
        inputs, labels = _of_classes(x[mine], y[mine], group, f"task {task!r}", kind, most)
        if not single_head:
            place = torch.zeros(len(data.classes), dtype=torch.int64, device=y.device)
            place[torch.tensor(list(group), device=y.device)] = torch.arange(len(group), device=y.device)
            labels = place[labels]
        return dataset(inputs, labels, task, SHARED if one_head else task, runs)

    one_head = single_head or shared_outputs

    def make(number: int) -> Task:
        group = groups[number]
        name = "/".join(data.classes[c] for c in group)
        heads = {SHARED if one_head else name: len(data.classes) if single_head else len(group)}
        train = part("training", data.train_x, data.train_y, group, name, limit)
        return Task(name, train, part("test", data.test_x, data.test_y, group, name, test_limit), heads)

    return Stream(len(groups), tuple(data.train_x.shape[1:]), make)


def _of_classes(
    x: Tensor, y: Tensor, classes: Sequence[object], task: str, kind: str, limit: int | None
) -> tuple[Tensor, Tensor]:
    """:func:`limited` examples. Raises VclError if the task has several classes but only one is left."""
    one_before = torch.unique(y).numel() == 1
    x, y = limited(x, y, limit)
    if len(classes) > 1 and torch.unique(y).numel() == 1:
        under = "" if one_before else f" under a limit of {limit}"
        mend = "data of more than one class" if one_before else "a limit of at least 2, or none"
        raise VclError(
            f"{task} has {len(classes)} classes to tell apart, but its {kind} examples{under} are all of one; "
            f"give {mend}."
        )
    return x, y


def reordered(stream: Stream, order: Sequence[int]) -> Stream:
    """The same tasks in another order, given as task numbers from 0; an empty order changes nothing."""
    return Stream(stream.size, stream.shape, lambda number: stream.make(order[number])) if order else stream


def one_class_each(data: Arrays, runs: int, limit: int | None = None, test_limit: int | None = None) -> Stream:
    """One class per task, all with one head."""
    groups = [(c,) for c in range(len(data.classes))]
    return split(data, groups, runs, single_head=True, limit=limit, test_limit=test_limit)


class UserTask(NamedTuple):
    """One task of the user: numpy arrays or tensors, and the number of classes (or targets) of its head.

    A task without test data (both None) is learned but not evaluated.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array | None
    test_y: Array | None
    units: int
    head: str = SHARED


def from_arrays(tasks: Sequence[UserTask], runs: int) -> Stream:
    """A stream of the user's tasks. Their arrays are checked first: finite, and of the same shape and dtype."""
    if not tasks:
        raise VclError("a stream needs at least one task; none was given.")
    names = [task.name for task in tasks]
    if len(set(names)) != len(names):
        raise VclError(f"tasks are named {names}; give each task a name of its own.")
    made = [_user_task(task, runs) for task in tasks]
    first = made[0].train
    for task in made:
        for kind, part in (("training", task.train), *((("test", task.test),) if task.test else ())):
            for name, ours, wanted in (("x", part.x, first.x), ("y", part.y, first.y)):
                if ours.dtype != wanted.dtype or ours.shape[2:] != wanted.shape[2:]:
                    raise VclError(
                        f"task {task.name!r}: {kind} {name} is {ours.dtype} {tuple(ours.shape[2:])} an example, but "
                        f"the first task has {wanted.dtype} {tuple(wanted.shape[2:])}; give all tasks the same."
                    )
    return Stream(len(made), tuple(first.x.shape[2:]), lambda number: made[number])


def _user_task(task: UserTask, runs: int) -> Task:
    def part(kind: str, x: Array, y: Array) -> Data:
        # Floats become float32, the networks' precision, so that tasks may differ in precision.
        inputs, labels = (
            found.float() if found.is_floating_point() else found
            for found in (as_tensor(x, f"task {task.name!r}, {kind} x"), as_tensor(y, f"task {task.name!r}, {kind} y"))
        )
        check_arrays(inputs, labels, f"task {task.name!r}, {kind} data")
        if not inputs.shape[0]:
            raise VclError(f"task {task.name!r} has no {kind} examples; give at least one.")
        return dataset(inputs, labels, task.name, task.head, runs)

    if (task.test_x is None) != (task.test_y is None):
        raise VclError(f"task {task.name!r} has test inputs or test labels, but not both; give both, or neither.")
    both = None if task.test_x is None or task.test_y is None else (task.test_x, task.test_y)
    train, test = part("training", task.train_x, task.train_y), None if both is None else part("test", *both)
    return Task(task.name, train, test, {task.head: task.units})
