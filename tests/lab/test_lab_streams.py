from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lab_made import images

from vcl.data import Source
from vcl.errors import VclError
from vcl.lab.datasets import Dataset
from vcl.lab.plan import make_plan
from vcl.lab.progress import summary_line
from vcl.lab.runner import run_method
from vcl.lab.streams import (
    SHARED,
    Arrays,
    UserTask,
    arrays,
    balanced,
    from_arrays,
    limited,
    one_class_each,
    permuted,
    reordered,
    split,
)
from vcl.ops.rng import Rng

BASE = images()
SORTED = images()._replace(train_y=torch.arange(60) // 6, test_y=torch.arange(30) // 3)
"""All examples of a class after each other, as notMNIST has them."""


def test_arrays_keeps_a_dataset_as_it_is() -> None:
    x, y = np.arange(8, dtype=np.uint8).reshape(2, 2, 2), np.array([0, 1])
    made = arrays(Dataset("tiny", x, y, x[:1], y[:1], ("a", "b"), "here"))
    assert made.train_x.dtype == torch.uint8
    np.testing.assert_array_equal(made.train_x.numpy(), x)
    np.testing.assert_array_equal(made.test_y.numpy(), y[:1])
    assert made.classes == ("a", "b")


def test_arrays_takes_labels_of_any_integer_dtype_and_refuses_the_rest() -> None:
    x, y = np.zeros((2, 2, 2), np.uint8), np.array([0, 1], np.uint8)
    made = arrays(Dataset("tiny", x, y, x, y[:, None], ("a", "b"), "here"))  # type: ignore[arg-type]
    assert made.train_y.dtype == made.test_y.dtype == torch.int64
    assert made.train_y.tolist() == made.test_y.tolist() == [0, 1]
    with pytest.raises(VclError, match=r"the labels of tiny have dtype torch.float32; give whole numbers"):
        arrays(Dataset("tiny", x, y.astype(np.float32), x, y, ("a", "b"), "here"))  # type: ignore[arg-type]


# Permuted. The first picture of `images` holds 0 to 63 in order, so that its permuted copy reads as the permutation.


@pytest.mark.parametrize("number", [0, 1, 2])
def test_permuted_task_is_the_base_under_one_permutation_of_its_pixels(number: int) -> None:
    task = permuted(BASE, 3, Rng((0, 1))).make(number)
    for run in range(2):
        order = task.train.x[run, 0].long()
        assert sorted(order.tolist()) == list(range(64))
        assert order.tolist() != list(range(64)), "the first task is permuted too"
        assert torch.equal(task.train.x[run], BASE.train_x.flatten(1)[:, order])
        assert torch.equal(task.test.x[run], BASE.test_x.flatten(1)[:, order]), "train and test share the permutation"


def test_permuted_keeps_bytes_labels_and_one_head() -> None:
    stream = permuted(BASE, 2, Rng((0, 1)))
    assert (stream.size, stream.shape) == (2, (64,))
    for task in stream:
        assert task.heads == {SHARED: 10}
        assert task.train.sources == task.test.sources == (Source(task.name, SHARED),)
        for part, y in ((task.train, BASE.train_y), (task.test, BASE.test_y)):
            assert part.x.dtype == torch.uint8
            assert torch.equal(part.y, y.expand(2, -1))
    assert len({task.name for task in stream}) == 2


def test_permutations_of_tasks_and_runs_all_differ() -> None:
    orders = {tuple(task.train.x[run, 0].tolist()) for task in permuted(BASE, 3, Rng((0, 1, 2, 3))) for run in range(4)}
    assert len(orders) == 12


def test_a_seed_has_the_same_permutations_alone_and_in_a_stack() -> None:
    stack, alone = permuted(BASE, 3, Rng((5, 1, 7))), permuted(BASE, 3, Rng((7,)))
    for number in range(3):
        assert torch.equal(stack.make(number).train.x[2], alone.make(number).train.x[0])
        assert torch.equal(stack.make(number).test.x[2], alone.make(number).test.x[0])


def test_permuted_limits() -> None:
    task = permuted(SORTED, 1, Rng((0,)), limit=20, test_limit=10).make(0)
    assert task.train.y[0].bincount().tolist() == [2] * 10
    assert task.test.y[0].bincount().tolist() == [1] * 10
    chosen = balanced(SORTED.train_y, 20)
    assert torch.equal(task.train.x[0].sort().values, SORTED.train_x.flatten(1)[chosen].sort().values)


# Split.


def test_split_numbers_labels_within_each_head() -> None:
    # The group's order is the head's order: class 3 is the head's 0 and class 1 its 1.
    tasks = list(split(BASE, [(3, 1), (0, 4, 2)], runs=2))
    assert [task.name for task in tasks] == ["d/b", "a/e/c"]
    assert [task.heads for task in tasks] == [{"d/b": 2}, {"a/e/c": 3}]
    for task, group in zip(tasks, [(3, 1), (0, 4, 2)], strict=True):
        assert task.train.sources == (Source(task.name, task.name),)
        for part, x, y in ((task.train, BASE.train_x, BASE.train_y), (task.test, BASE.test_x, BASE.test_y)):
            mine = [n for n, label in enumerate(y.tolist()) if label in group]
            assert torch.equal(part.x, x[mine].expand(2, -1, -1, -1))
            assert part.y[1].tolist() == [group.index(label) for label in y[mine].tolist()]


def test_single_head_split_keeps_the_labels() -> None:
    tasks = list(split(BASE, [(3, 1), (0, 2)], runs=1, single_head=True))
    assert [task.heads for task in tasks] == [{SHARED: 10}] * 2
    assert [task.train.heads for task in tasks] == [(SHARED,)] * 2
    assert tasks[0].train.y[0, :4].tolist() == [1, 3, 1, 3]
    assert set(tasks[1].test.y[0].tolist()) == {0, 2}


def test_shared_outputs_are_one_head_with_labels_numbered_within_the_group() -> None:
    tasks = list(split(BASE, [(3, 1), (0, 2)], runs=2, shared_outputs=True))
    multi = list(split(BASE, [(3, 1), (0, 2)], runs=2))
    for task, other in zip(tasks, multi, strict=True):
        assert task.heads == {SHARED: 2}
        assert task.name == other.name
        for part, theirs in ((task.train, other.train), (task.test, other.test)):
            assert part.sources == (Source(task.name, SHARED),)
            assert torch.equal(part.x, theirs.x)
            assert torch.equal(part.y, theirs.y)


def test_shared_outputs_need_groups_of_one_size_and_no_other_kind_of_head() -> None:
    with pytest.raises(VclError, match="share their outputs; give all the same number of classes"):
        split(BASE, [(3, 1), (0,)], runs=1, shared_outputs=True)
    with pytest.raises(VclError, match="over all classes or shared by the groups, not both"):
        split(BASE, [(3, 1)], runs=1, single_head=True, shared_outputs=True)


@pytest.mark.parametrize(("heads", "found"), [
    ("multi", [{"0/1": 2}, {"2/3": 2}]), ("single", [{SHARED: 10}] * 2), ("shared", [{SHARED: 2}] * 2),
])  # fmt: skip
@pytest.mark.parametrize("name", ["split-mnist", "split-notmnist", "split-digits", "split"])
def test_heads_of_every_split_experiment(name: str, heads: str, found: list[dict[str, int]]) -> None:
    dataset = "digits" if name == "split" else None
    changes = [f"heads={heads}", "pairing=neighbours", "train_limit=none", "test_limit=none"]
    plan = make_plan(name, "vcl", "smoke", 1, "cpu", changes, dataset=dataset)
    data = images(train=40, test=20)._replace(classes=tuple("0123456789"))
    assert [dict(task.heads) for task in plan.stream(data, Rng((0,)))] == found


def test_fifty_permutations() -> None:
    plan = make_plan("permuted-mnist", "vcl", "paper", 1, "cpu", ["tasks=50"])
    stream = plan.stream(images(train=20, test=20), Rng((0,)))
    assert stream.size == 50
    last = stream.make(49)
    assert (last.name, dict(last.heads)) == ("permutation 50", {SHARED: 10})
    assert not torch.equal(last.train.x, stream.make(48).train.x)


@pytest.mark.parametrize("single_head", [False, True])
def test_split_limits_take_as_many_of_each_class_though_the_data_is_sorted(single_head: bool) -> None:
    groups = [(0, 1), (2, 3, 4)]
    tasks = list(split(SORTED, groups, 2, single_head, limit=6, test_limit=3))
    for task, group, train, test in zip(tasks, groups, ([3, 3], [2, 2, 2]), ([2, 1], [1, 1, 1]), strict=True):
        labels = group if single_head else range(len(group))
        for part, counts in ((task.train, train), (task.test, test)):
            assert [int((part.y[1] == label).sum()) for label in labels] == counts
            assert part.x.stride(0) == part.y.stride(0) == 0, "runs share the memory of a sample too"


def test_a_limited_task_is_a_part_of_the_whole_one_in_its_order() -> None:
    whole, part = (split(SORTED, [(0, 1)], 1, limit=limit).make(0).train for limit in (None, 7))
    places = [whole.x[0].flatten(1).tolist().index(row) for row in part.x[0].flatten(1).tolist()]
    assert places == sorted(set(places))
    assert len(places) == 7
    assert part.y[0].tolist() == whole.y[0, places].tolist()


@pytest.mark.parametrize("limit", [None, 12, 13, 10**9])
def test_a_limit_that_takes_nothing_away_changes_nothing(limit: int | None) -> None:
    (plain,), (same,) = split(SORTED, [(0, 1)], 1), split(SORTED, [(0, 1)], 1, limit=limit, test_limit=limit)
    for one, two in ((plain.train, same.train), (plain.test, same.test)):
        assert torch.equal(one.x, two.x)
        assert torch.equal(one.y, two.y)
    assert limited(SORTED.train_x, SORTED.train_y, 60)[0] is SORTED.train_x


def test_the_rule_of_a_sample_by_hand() -> None:
    y = torch.tensor([7, 7, 7, 7, 7, 7, 2, 2, 5])
    for limit, counts in (
        (1, [1, 0, 0]),
        (2, [1, 1, 0]),
        (3, [1, 1, 1]),
        (4, [2, 1, 1]),
        (5, [2, 1, 2]),
        (7, [2, 1, 4]),
    ):
        chosen = balanced(y, limit)
        assert chosen.tolist() == sorted(set(chosen.tolist()))
        assert [int((y[chosen] == label).sum()) for label in (2, 5, 7)] == counts
        assert set(chosen.tolist()) <= set(balanced(y, limit + 1).tolist()), (
            "a larger limit keeps what a smaller one has"
        )
    assert balanced(y, 4).tolist() != [0, 6, 7, 8], "and not the first ones of a class"


def test_a_sample_is_drawn_from_all_of_a_class() -> None:
    chosen = balanced(torch.zeros(1000, dtype=torch.int64), 500)
    assert 220 < int((chosen < 500).sum()) < 280


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: split(SORTED, [(0, 1)], 1, limit=1).make(0),
            "task 'a/b' has 2 classes to tell apart, but its training examples under a limit of 1 are all of one; "
            "give a limit of at least 2, or none.",
        ),
        (lambda: split(SORTED, [(0, 1)], 1, test_limit=1).make(0), "its test examples under a limit of 1"),
        (lambda: permuted(SORTED, 1, Rng((0,)), limit=1), "every task has 10 classes to tell apart"),
        (
            lambda: split(SORTED._replace(train_y=torch.zeros(60, dtype=torch.int64)), [(0, 1)], 1).make(0),
            "task 'a/b' has 2 classes to tell apart, but its training examples are all of one; give data of more than "
            "one class.",
        ),
    ],
)
def test_a_task_that_is_left_with_one_class_is_refused(make: Any, words: str) -> None:
    with pytest.raises(VclError) as refused:
        make()
    assert words in str(refused.value)


def test_split_runs_share_memory() -> None:
    task = split(BASE, [(0, 1)], runs=50).make(0)
    for part in (task.train, task.test):
        assert part.runs == 50
        assert part.x.stride(0) == part.y.stride(0) == part.source.stride(0) == 0
    assert task.train.x.untyped_storage().nbytes() == 12 * 64, "one copy of the twelve pictures, not fifty"


@pytest.mark.parametrize("groups", [[(0, 1), (1, 2)], [(0, 0)], [(9, 10)], [(-1, 0)]])
def test_split_refuses_groups_that_overlap_or_do_not_exist(groups: list[tuple[int, ...]]) -> None:
    with pytest.raises(VclError, match="must name each of 0 to 9 at most once") as refused:
        split(BASE, groups, runs=1)
    assert str(groups) in str(refused.value)


def test_one_class_each() -> None:
    stream = one_class_each(BASE, runs=2, limit=4, test_limit=2)
    assert stream.size == 10
    for number, task in enumerate(stream):
        assert (task.name, task.heads) == (BASE.classes[number], {SHARED: 10})
        assert task.train.y.tolist() == [[number] * 4] * 2
        assert task.test.y.tolist() == [[number] * 2] * 2


# A user's own arrays.


def user_task(name: str = "mine", n: int = 6, **changes: Any) -> UserTask:
    x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    y = np.arange(n) % 2
    return UserTask(name, x, y, x[:2], y[:2], units=2)._replace(**changes)


@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray])
def test_from_arrays_takes_numpy_and_tensors(kind: Any) -> None:
    plain = user_task("one", n=4, head="own")
    converted = plain._replace(train_x=kind(plain.train_x), train_y=kind(plain.train_y))
    stream = from_arrays([converted, user_task("two", n=6)], runs=3)
    assert (stream.size, stream.shape) == (2, (4,))
    one, two = stream
    assert (one.name, one.heads, one.train.sources) == ("one", {"own": 2}, (Source("one", "own"),))
    assert (two.heads, two.train.size, two.train.runs) == ({SHARED: 2}, 6, 3)
    assert torch.equal(one.train.x, torch.arange(16.0).view(4, 4).expand(3, -1, -1))
    assert one.train.y.tolist() == [[0, 1, 0, 1]] * 3
    assert one.train.x.stride(0) == 0


def test_from_arrays_reads_small_integer_labels_as_whole_numbers() -> None:
    labels = np.array([0, 1, 1, 0, 1, 0], dtype=np.uint8)
    for train, test in ((labels, labels[:2]), (labels[:, None], labels[:2]), (labels.astype(np.int16), labels[:2])):
        (task,) = from_arrays([user_task(train_y=train, test_y=test)], runs=1)
        assert task.train.y.dtype == task.test.y.dtype == torch.int64
        assert task.train.y[0].tolist() == [0, 1, 1, 0, 1, 0]


def with_one(value: float, shape: tuple[int, ...] = (6, 4)) -> np.ndarray:
    x = np.zeros(shape, dtype=np.float32)
    x.flat[1] = value
    return x


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": with_one(np.nan)}, "task 'mine', training data: x holds 1 NaN or infinite values"),
        ({"test_x": with_one(np.inf, (2, 4))}, "task 'mine', test data: x holds 1 NaN or infinite values"),
        ({"train_y": with_one(np.nan, (6,))}, "task 'mine', training data: y holds 1 NaN or infinite values"),
        ({"train_x": np.zeros(6, np.float32)}, r"x has shape \(6,\); give examples as rows"),
        ({"train_y": np.zeros(5, np.int64)}, r"6 inputs but labels of shape \(5,\); give one label per input"),
        ({"train_y": np.int64(1)}, r"6 inputs but labels of shape \(\)"),
        ({"train_x": np.zeros((6, 4), bool)}, "x has dtype torch.bool"),
        (
            {"test_x": np.zeros((2, 5), np.float32)},
            r"test x is torch.float32 \(5,\) an example, but the first task has torch.float32 \(4,\)",
        ),
        (
            {"test_x": np.zeros((2, 4), np.uint8)},
            r"test x is torch.uint8 \(4,\) an example, but the first task has torch.float32 \(4,\)",
        ),
        ({"test_y": np.zeros(2, np.float32)}, "test y is torch.float32"),
        (
            {"train_x": np.zeros((0, 4), np.float32), "train_y": np.zeros(0, np.int64)},
            "task 'mine' has no training examples; give at least one",
        ),
        (
            {"test_x": np.zeros((0, 4), np.float32), "test_y": np.zeros(0, np.int64)},
            "task 'mine' has no test examples; give at least one",
        ),
    ],
)
def test_from_arrays_refuses_what_cannot_be_learned_from(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(VclError, match=message):
        from_arrays([user_task(**changes)], runs=1)


def test_from_arrays_takes_numpy_doubles_as_float32_and_refuses_what_is_no_number() -> None:
    stream = from_arrays([user_task(train_x=np.ones((6, 4)), test_x=np.ones((2, 4)))], runs=1)
    assert stream.make(0).train.x.dtype == torch.float32
    with pytest.raises(VclError, match="training x cannot be read as numbers"):
        from_arrays([user_task(train_x=np.array([["a"] * 4] * 6))], runs=1)


def test_from_arrays_refuses_tasks_of_different_kinds() -> None:
    other = user_task("two", train_x=np.zeros((6, 4), np.uint8), test_x=np.zeros((2, 4), np.uint8))
    with pytest.raises(VclError, match=r"task 'two': training x is torch\.uint8 .* give all tasks the same"):
        from_arrays([user_task("one"), other], runs=1)


def test_from_arrays_refuses_no_tasks_and_repeated_names() -> None:
    with pytest.raises(VclError, match="at least one task; none was given"):
        from_arrays([], runs=1)
    # A coreset tells tasks apart by name: points of two tasks of one name could not be told apart.
    with pytest.raises(VclError, match=r"tasks are named \['a', 'b', 'a'\]; give each task a name of its own"):
        from_arrays([user_task("a"), user_task("b"), user_task("a")], runs=1)


def test_arrays_move_between_devices_as_a_whole() -> None:
    moved = BASE.to("meta")
    assert isinstance(moved, Arrays)
    assert {part.device.type for part in moved[:4]} == {"meta"}
    assert moved.classes == BASE.classes


def test_tasks_come_in_the_order_asked_for_and_are_otherwise_the_same() -> None:
    stream = split(BASE, [(0, 1), (2, 3), (4, 5)], 2)
    turned = reordered(stream, (2, 0, 1))
    assert [task.name for task in turned] == [stream.make(number).name for number in (2, 0, 1)]
    assert turned.size == 3
    assert torch.equal(turned.make(0).train.x, stream.make(2).train.x)
    assert reordered(stream, ()) is stream


def test_a_task_of_ones_own_may_be_without_test_data_and_is_learned_and_not_evaluated() -> None:
    x, y = torch.rand(20, 8, 8), torch.arange(20) % 2
    stream = from_arrays([UserTask("a", x, y, x, y, 2), UserTask("b", x, y, None, None, 2)], 2)
    assert [task.test is None for task in stream] == [False, True]
    with pytest.raises(VclError, match="task 'c' has test inputs or test labels, but not both; give both, or neither"):
        from_arrays([UserTask("c", x, y, x, None, 2)], 1)
    plan = make_plan("split-digits", "mle", "smoke", 2, "cpu", ["epochs=1"])
    plan = replace(plan, experiment=plan.experiment._replace(stream=lambda *_: stream))
    dones = list(run_method(plan, plan.methods[0], plan.runs(plan.methods[0]), images()))
    assert [{(row.after, row.on) for row in done.rows} for done in dones] == [{(1, 1)}, {(2, 1)}]
    assert summary_line(dones[0]._replace(rows=[])).endswith(" s, no test data")
