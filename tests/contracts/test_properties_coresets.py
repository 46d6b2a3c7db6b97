"""Every coreset rule on made-up histories: runs with their own data, copies, several tasks at once, returning tasks."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from generated import SEEDS, SOURCES, few, histories, multiset, numbers, only_run, rows
from oracles import greedy_k_center
from vcl.coresets import Budget, CoresetRule, Everything, KCenter, Nothing, Only, RandomK, k_center, random_subset
from vcl.data import Data
from vcl.ops.rng import Rng

KEEPING = st.one_of(
    st.just(Nothing()),
    st.just(Everything()),
    st.builds(RandomK, st.integers(1, 3)),
    st.builds(KCenter, st.integers(1, 3)),
    st.builds(Budget, st.integers(len(SOURCES), 12)),
)
HISTORIES = histories()


def steps(rule: CoresetRule, seeds: tuple[int, ...], tasks: list[Data]) -> list[tuple[Data, Data, Data, Data]]:
    """(C_{t-1}, D_t, C_t, rest) of every task."""
    coreset, made = tasks[0].empty(), []
    for t, new in enumerate(tasks):
        after, rest = rule(coreset, new, Rng(seeds).at(t))
        made.append((coreset, new, after, rest))
        coreset = after
    return made


@few(150)
@given(KEEPING, HISTORIES)
def test_coreset_and_rest_are_exactly_the_old_coreset_and_the_new_data(
    rule: CoresetRule, history: tuple[tuple[int, ...], list[Data]]
) -> None:
    seeds, tasks = history
    for old, new, coreset, rest in steps(rule, seeds, tasks):
        for run in range(len(seeds)):
            assert multiset(run, coreset, rest) == multiset(run, old, new)
        for part in (coreset, rest):
            assert part.x.shape == (len(seeds), part.size, *new.x.shape[2:])
            assert (part.x.dtype, part.y.dtype) == (new.x.dtype, new.y.dtype)
            assert part.size == 0 or set(part.sources) <= {*old.sources, *new.sources}


@few(60)
@given(KEEPING, HISTORIES)
def test_a_coreset_alone_is_within_the_old_coreset_and_the_new_data(
    rule: CoresetRule, history: tuple[tuple[int, ...], list[Data]]
) -> None:
    seeds, tasks = history
    for old, new, coreset, rest in steps(Only(rule), seeds, tasks):
        assert rest.size == 0
        for run in range(len(seeds)):
            assert multiset(run, coreset) <= multiset(run, old, new)


@few(60)
@given(KEEPING, HISTORIES)
def test_every_run_of_a_stack_gets_what_it_would_get_alone(
    rule: CoresetRule, history: tuple[tuple[int, ...], list[Data]]
) -> None:
    seeds, tasks = history
    stack = steps(rule, seeds, tasks)
    for run, seed in enumerate(seeds):
        alone = steps(rule, (seed,), [only_run(task, run) for task in tasks])
        for (*_, coreset, rest), (*_, mine, others) in zip(stack, alone, strict=True):
            assert rows(coreset, run) == rows(mine, 0)
            assert rows(rest, run) == rows(others, 0)


@few(60)
@given(st.integers(len(SOURCES), 12), HISTORIES)
def test_a_budget_is_used_in_equal_shares_as_far_as_the_points_go(
    total: int, history: tuple[tuple[int, ...], list[Data]]
) -> None:
    seeds, tasks = history
    for old, new, coreset, _ in steps(Budget(total), seeds, tasks):
        met = {*old.sources, *new.sources}
        share, _ = divmod(total, len(met))
        assert coreset.size <= total
        for run in range(len(seeds)):
            there = Counter(tuple(row[2:]) for row in (*rows(old, run), *rows(new, run)))
            kept = Counter(tuple(row[2:]) for row in rows(coreset, run))
            for source in met:
                assert min(share, there[source]) <= kept[source] <= min(share + 1, there[source])


@few(80)
@given(st.integers(1, 12), st.integers(1, 3), st.sampled_from([0, 1, 2, 255]), SEEDS, st.data())
def test_k_center_is_the_plain_greedy_rule_whatever_copies_there_are(
    size: int, width: int, most: int, seed: int, drawn: st.DataObject
) -> None:
    k, dtype = drawn.draw(st.integers(1, size)), drawn.draw(st.sampled_from([torch.uint8, torch.float32]))
    x = numbers((2, size, width), seed, dtype, most)
    chosen = k_center(x, k)
    for run in range(2):
        assert chosen[run].tolist() == greedy_k_center(x[run], k)
        assert len(set(chosen[run].tolist())) == k
    assert torch.equal(k_center(x[:1].expand(3, -1, -1), k), chosen[:1].expand(3, -1))


@few(40)
@given(st.integers(0, 20), st.lists(SEEDS, min_size=1, max_size=3), st.data())
def test_a_random_subset_is_of_different_positions_in_every_run(
    size: int, seeds: list[int], drawn: st.DataObject
) -> None:
    k = drawn.draw(st.integers(0, size))
    chosen = random_subset(size, k, Rng(tuple(seeds)))
    assert chosen.shape == (len(seeds), k)
    for run, seed in enumerate(seeds):
        assert len(set(chosen[run].tolist())) == k
        assert all(0 <= place < size for place in chosen[run].tolist())
        assert torch.equal(random_subset(size, k, Rng((seed,)))[0], chosen[run])
