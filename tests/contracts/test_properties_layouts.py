"""Slices of theta: what is split, picked, cut, padded, put or appended goes to its place, and all else stays."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from generated import SEEDS, bits, few, layouts, parts_of, seeded
from vcl.beliefs.layout import Layout, head_of

LEAD = st.lists(st.integers(1, 3), max_size=2)
WITH_PART = layouts().flatmap(lambda layout: st.tuples(st.just(layout), parts_of(layout)))


def values(shape: list[int], seed: int) -> Tensor:
    """Any numbers, among them -0 and NaN."""
    made = torch.randn(shape, generator=seeded(seed))
    odd = torch.rand(shape, generator=seeded(seed + 1))
    return torch.where(odd < 0.1, -0.0, torch.where(odd > 0.9, torch.nan, made))


def rest_of(layout: Layout, part: Layout) -> Layout:
    return layout.where(lambda name: name not in part.names)


@few(60)
@given(layouts(), LEAD, SEEDS)
def test_join_is_the_inverse_of_split(layout: Layout, lead: list[int], seed: int) -> None:
    flat = values([*lead, layout.size], seed)
    named = layout.split(flat)
    assert tuple(named) == layout.names
    assert [tuple(value.shape) for value in named.values()] == [(*lead, *shape) for shape in layout.shapes]
    assert bits(layout.join(named, len(lead))) == bits(flat)


@few(100)
@given(WITH_PART, LEAD, SEEDS)
def test_cut_is_pick_and_both_are_the_named_values(both: tuple[Layout, Layout], lead: list[int], seed: int) -> None:
    layout, part = both
    flat = values([*lead, layout.size], seed)
    picked, named = layout.pick(flat, part), layout.split(flat)
    assert bits(layout.cut(flat, part)) == bits(picked)
    for name, value in part.split(picked).items():
        assert bits(value) == bits(named[name])
    positions = layout.positions(part).tolist()
    assert len(set(positions)) == len(positions) == part.size
    assert sorted(positions + layout.positions(rest_of(layout, part)).tolist()) == list(range(layout.size))


@few(100)
@given(WITH_PART, LEAD, SEEDS)
def test_put_writes_a_part_and_leaves_every_other_bit(both: tuple[Layout, Layout], lead: list[int], seed: int) -> None:
    layout, part = both
    flat, new, rest = values([*lead, layout.size], seed), values([*lead, part.size], seed + 7), rest_of(layout, part)
    before = bits(flat)
    made = layout.put(flat, part, new)
    assert bits(layout.pick(made, part)) == bits(new)
    assert bits(layout.pick(made, rest)) == bits(layout.pick(flat, rest))
    assert bits(layout.put(made, part, layout.pick(flat, part))) == before
    assert bits(flat) == before, "the old vector is not written to"


@few(100)
@given(WITH_PART, LEAD, SEEDS, st.sampled_from([0.0, -0.0, 2.5]))
def test_pad_is_the_inverse_of_cut_and_fills_the_rest(
    both: tuple[Layout, Layout], lead: list[int], seed: int, fill: float
) -> None:
    layout, part = both
    cut = values([*lead, part.size], seed)
    padded, rest = layout.pad(cut, part, fill), rest_of(layout, part)
    assert padded.shape == (*lead, layout.size)
    assert bits(layout.cut(padded, part)) == bits(cut)
    assert bits(layout.cut(padded, rest)) == bits(torch.full((*lead, rest.size), fill))


@few(100)
@given(layouts(), layouts(), st.integers(1, 3), SEEDS)
def test_a_grown_vector_begins_with_the_old_one_and_ends_with_what_is_new(
    old: Layout, other: Layout, runs: int, seed: int
) -> None:
    known = dict(zip(*old, strict=True))
    other = other._replace(shapes=tuple(known.get(name, shape) for name, shape in zip(*other, strict=True)))
    grown, new = old.extend(other), old.new(other)
    assert grown.names[: len(old.names)] == old.names
    assert set(grown.names) == {*old.names, *other.names}
    flat, prior = values([runs, old.size], seed), values([1, other.size], seed + 7)
    made = old.append(flat, other, prior)
    assert made.shape == (runs, grown.size)
    assert bits(made[:, : old.size]) == bits(flat)
    assert bits(made[:, old.size :]) == bits(other.pick(prior, new).expand(runs, -1))
    assert grown.extend(other) == grown


@few(100)
@given(layouts(), layouts(), st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(1, 3), SEEDS)
def test_heads_with_more_rows_keep_their_first_ones(
    old: Layout, other: Layout, more: list[int], runs: int, seed: int
) -> None:
    """Every head's tensor has some rows more in what it grows by, where unknown tensors may stand between."""
    known = dict(zip(*old, strict=True))
    shapes = tuple(
        (shape[0] + more[at % len(more)], *shape[1:]) if shape and head_of(name) is not None else shape
        for at, (name, shape) in enumerate((name, known.get(name, shape)) for name, shape in zip(*other, strict=True))
    )
    other = other._replace(shapes=shapes)
    grown = old.extend(other)
    assert grown.names == old.names + old.new(other).names
    assert dict(zip(*grown, strict=True)) == known | dict(zip(*other, strict=True))
    flat, prior = values([runs, old.size], seed), values([1, other.size], seed + 7)
    made, given_rows = old.append(flat, other, prior), other.split(prior)
    assert bits(made[:, old.leading(grown)]) == bits(flat)
    first = {name: shape[0] if shape else 0 for name, shape in known.items()}
    for name, value in grown.split(made).items():
        if name not in known:
            assert bits(value) == bits(given_rows[name].expand(value.shape))
        elif dict(zip(*grown, strict=True))[name] != known[name]:
            new_rows = given_rows[name][:, first[name] :]
            assert bits(value[:, first[name] :]) == bits(new_rows.expand(runs, *new_rows.shape[1:]))
    appeared = {
        name: first.get(name, 0)
        for name, shape in zip(*grown, strict=True)
        if name not in known or shape != known[name]
    }
    mask = torch.ones(grown.size, dtype=torch.bool)
    mask[old.leading(grown)] = False
    assert torch.equal(grown.mask(appeared), mask)


@few(60)
@given(layouts(), st.lists(st.sampled_from(["a", "b/c", "d.0", "unknown"]), unique=True))
def test_what_heads_touch_is_shared_or_theirs(layout: Layout, heads: list[str]) -> None:
    touched = layout.touched(heads)
    assert touched.names == tuple(name for name in layout.names if head_of(name) is None or head_of(name) in heads)
    assert dict(zip(*touched, strict=True)).items() <= dict(zip(*layout, strict=True)).items()
