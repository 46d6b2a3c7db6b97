"""What Data keeps whatever is done with it: examples with their labels and sources, run by run, and shared memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generated import INPUTS, LABELS, RUNS, SEEDS, SOURCES, data, few, numbers, only_run, orders, rows
from vcl.data import WHOLE, Data, as_labels, as_targets, concat, dataset, in_precision, labelled, ready
from vcl.errors import VclError
from vcl.fitting.step import gather

PAIRS = RUNS.flatmap(lambda runs: INPUTS.flatmap(lambda dtype: st.tuples(data(runs, dtype), data(runs, dtype))))
ONE = PAIRS.map(lambda pair: pair[0])


@few(100)
@given(ONE, SEEDS, st.data())
def test_divided_examples_are_those_chosen_and_all_the_others_in_their_order(
    whole: Data, seed: int, drawn: st.DataObject
) -> None:
    index = orders(whole.runs, whole.size, seed)[:, : drawn.draw(st.integers(0, whole.size))]
    chosen, others = whole.divide(index)
    for run in range(whole.runs):
        there, places = rows(whole, run), index[run].tolist()
        assert rows(chosen, run) == [there[place] for place in places]
        assert rows(others, run) == [row for place, row in enumerate(there) if place not in places]


@few(60)
@given(ONE.filter(lambda whole: whole.size > 1), SEEDS, st.data())
def test_an_index_with_a_repeated_or_missing_position_is_refused(whole: Data, seed: int, drawn: st.DataObject) -> None:
    index = orders(whole.runs, whole.size, seed)[:, : drawn.draw(st.integers(2, whole.size))]
    run = drawn.draw(st.integers(0, whole.runs - 1))
    index[run, 0] = drawn.draw(st.sampled_from([int(index[run, 1]), -1, whole.size]))
    with pytest.raises(VclError, match="examples are chosen"):
        whole.divide(index)


@few(60)
@given(ONE, SEEDS)
def test_taking_in_another_order_and_back_changes_nothing(whole: Data, seed: int) -> None:
    order = orders(whole.runs, whole.size, seed)
    again = whole.take(order).take(order.argsort(1))
    for run in range(whole.runs):
        assert rows(again, run) == rows(whole, run)
    assert torch.equal(again.x, whole.x)
    assert again.x.dtype == whole.x.dtype


@few(100)
@given(PAIRS)
def test_joined_examples_are_all_there_and_are_found_again_by_source(pair: tuple[Data, Data]) -> None:
    a, b = pair
    both = concat(a, b)
    assert set(both.sources) <= {*a.sources, *b.sources}
    for run in range(a.runs):
        assert rows(both, run) == rows(a, run) + rows(b, run)
        for source in SOURCES:
            mine = [row for row in rows(both, run) if row[2:] == tuple(source)]
            assert rows(both.where([source]), run) == mine
    everything = both.where(SOURCES)
    assert [rows(everything, run) for run in range(a.runs)] == [rows(both, run) for run in range(a.runs)]


@few(60)
@given(PAIRS)
def test_a_stack_is_treated_as_its_runs_alone(pair: tuple[Data, Data]) -> None:
    a, b = pair
    for run in range(a.runs):
        mine = concat(only_run(a, run), only_run(b, run))
        assert rows(concat(a, b), run) == rows(mine, 0)
        for source in SOURCES:
            assert rows(concat(a, b).where([source]), run) == rows(mine.where([source]), 0)


@few(80)
@given(RUNS, st.integers(0, 6), LABELS, st.booleans(), INPUTS, st.sampled_from([(2,), (2, 3)]), SEEDS)
def test_a_dataset_has_int64_labels_and_shared_runs_whatever_it_is_made_of(
    runs: int, size: int, dtype: torch.dtype, column: bool, inputs: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    x, y = numbers((size, *shape), seed, inputs), numbers((size,), seed, torch.int64, 100)
    given_y = (y[:, None] if column else y).to(dtype)
    made = dataset(x, given_y, runs=runs)
    by_hand = labelled(Data(made.x, given_y.expand(runs, *given_y.shape), made.source, made.sources))
    for one in (made, by_hand, made.to("cpu"), ready(made)):
        assert one.y.dtype == torch.int64
        assert torch.equal(one.y, y.expand(runs, size))
        assert one.size == 0 or runs == 1 or one.x.stride(0) == one.y.stride(0) == one.source.stride(0) == 0
    assert torch.equal(made.x, x.expand(runs, *x.shape))
    assert made.x.dtype == inputs


@few(60)
@given(st.lists(st.integers(1, 3), max_size=3), LABELS, st.booleans(), SEEDS)
def test_labels_are_the_same_numbers_in_every_dtype_and_as_a_column(
    lead: list[int], dtype: torch.dtype, column: bool, seed: int
) -> None:
    y = numbers(lead, seed, torch.int64, 100)
    made = as_labels((y[..., None] if column else y).to(dtype), len(lead))
    assert made.dtype == torch.int64
    assert torch.equal(made, y)
    assert torch.equal(as_targets(made, len(lead)), y), "once more changes nothing"


@few(40)
@given(
    st.lists(st.integers(2, 3), min_size=1, max_size=3),
    st.sampled_from([torch.bool, torch.float16, torch.float32, torch.float64, torch.complex64]),
    SEEDS,
)
def test_what_is_not_whole_stays_as_it_is_and_is_no_label(lead: list[int], dtype: torch.dtype, seed: int) -> None:
    assert dtype not in WHOLE
    y = numbers(lead, seed, dtype, 1)
    assert as_targets(y, len(lead)) is y
    with pytest.raises(VclError, match=f"have dtype {dtype}"):
        as_labels(y, len(lead))
    with pytest.raises(VclError, match="have shape"):
        as_labels(numbers(lead, seed, torch.int64), len(lead) - 1)


@few(60)
@given(ONE, st.data())
def test_selected_runs_are_those_runs_with_all_their_columns(whole: Data, drawn: st.DataObject) -> None:
    runs = drawn.draw(st.lists(st.integers(0, whole.runs - 1), min_size=1, max_size=3, unique=True))
    part = whole.select(runs)
    assert [rows(part, place) for place in range(len(runs))] == [rows(whole, run) for run in runs]
    if whole.runs > 1 and whole.x.stride(0) == 0:
        assert part.x.data_ptr() == whole.x.data_ptr()


@few(60)
@given(ONE, st.sampled_from([torch.float32, torch.float64]))
def test_further_columns_stay_and_follow_the_precision(whole: Data, dtype: torch.dtype) -> None:
    made = in_precision(whole, dtype)
    assert made.extra["old"].dtype == dtype
    assert made.x.dtype == (dtype if whole.x.is_floating_point() else whole.x.dtype)
    for one in (made, labelled(whole), ready(whole), whole.to("cpu")):
        assert torch.equal(one.extra["old"].float(), whole.extra["old"])
    assert whole.empty().extra["old"].shape == (whole.runs, 0, 2)


@few(60)
@given(ONE.filter(lambda whole: whole.size > 0), SEEDS)
def test_a_batch_has_the_further_columns_of_its_examples(whole: Data, seed: int) -> None:
    order = orders(whole.runs, whole.size, seed)
    assert [rows(gather(whole, order), run) for run in range(whole.runs)] == [
        rows(whole.take(order), run) for run in range(whole.runs)
    ]


def test_columns_that_differ_are_not_joined_and_rows_must_be_as_many_as_inputs() -> None:
    plain = dataset(torch.zeros(2, 3), torch.zeros(2))
    more = dataset(torch.zeros(2, 3), torch.zeros(2), extra={"old": torch.zeros(2, 5)})
    other = dataset(torch.zeros(2, 3), torch.zeros(2), extra={"old": torch.zeros(2, 4)})
    with pytest.raises(VclError, match=r"columns \['old'\] and examples with \[\] beside x and y; give every task"):
        concat(more, plain)
    with pytest.raises(VclError, match=r"whose old is torch.float32 \(5,\) with torch.float32 \(4,\)"):
        concat(more, other)
    assert concat(more, plain.empty()) is more
    with pytest.raises(VclError, match=r"2 inputs but old of shape \(3,\); give one row per input"):
        dataset(torch.zeros(2, 3), torch.zeros(2), extra={"old": torch.zeros(3)})
