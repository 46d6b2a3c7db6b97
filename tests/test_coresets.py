import pytest
import torch

from made import blobs, shapes, small_vae
from oracles import greedy_k_center
from vcl.coresets import Budget, Everything, KCenter, Nothing, Only, RandomK, k_center
from vcl.data import Source, dataset
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.learner.generative import GenerativeLearner
from vcl.ops.rng import Rng
from vcl.projections import VariationalKL
from vcl.recursion import Method

RNG = Rng((0, 1))


def test_k_center_on_pixels_is_exactly_the_plain_greedy_rule() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60, 7, 5), generator=g, dtype=torch.uint8)
    assert k_center(x[None], 25)[0].tolist() == greedy_k_center(x, 25)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_k_center_breaks_ties_by_the_first_point_and_takes_copies_last_in_their_order(dtype: torch.dtype) -> None:
    x = torch.tensor([[0], [10], [10], [5], [0]], dtype=dtype)
    assert k_center(x[None], 3)[0].tolist() == [0, 1, 3] == greedy_k_center(x, 3)
    assert k_center(x[None], 4)[0].tolist() == [0, 1, 3, 2]
    assert k_center(x[None], 5)[0].tolist() == [0, 1, 3, 2, 4] == greedy_k_center(x, 5)
    assert k_center(torch.zeros(2, 6, 3, dtype=dtype), 6).tolist() == [[0, 1, 2, 3, 4, 5]] * 2


def test_k_center_of_runs_with_few_distinct_points_mixes_no_rows_between_runs() -> None:
    x = torch.stack([torch.arange(8.0).remainder(2), 10 + torch.arange(8.0).remainder(8)]).unsqueeze(-1)
    new = blobs(8, 0, "t", "h", runs=2)._replace(x=x)
    coreset, rest = KCenter(5)(new.empty(), new, RNG)
    for run in range(2):
        both = torch.cat([coreset.x[run], rest.x[run]]).flatten()
        assert both.sort().values.tolist() == x[run].flatten().sort().values.tolist()


@pytest.mark.parametrize("rule", [RandomK(4), KCenter(4)])
def test_a_task_without_examples_is_refused(rule: RandomK | KCenter) -> None:
    none = blobs(0, 0, "t", "h")
    with pytest.raises(
        VclError, match=r"of 4 points cannot be taken from a task without examples; give it at least 4\."
    ):
        rule(none.empty(), none, Rng((0,)))


def test_k_center_is_exact_where_float32_products_are_not() -> None:
    """Two points whose distances to the first differ by one part in fifty million."""
    width = 784
    x = torch.zeros(3, width, dtype=torch.uint8)
    x[1] = 255
    x[2] = 255
    x[1, 0] = 254
    assert k_center(x[None], 2)[0].tolist() == [0, 2]
    x[1, 0], x[2, 0] = 255, 254
    assert k_center(x[None], 2)[0].tolist() == [0, 1]


def test_k_center_on_floats_and_on_wide_images_agrees_with_the_plain_rule() -> None:
    g = torch.Generator().manual_seed(1)
    whole = torch.randint(0, 50, (40, 6), generator=g)
    assert k_center(whole.float()[None], 12)[0].tolist() == greedy_k_center(whole, 12)
    wide = torch.randint(0, 256, (12, 5000), generator=g, dtype=torch.uint8)
    assert k_center(wide[None], 6)[0].tolist() == greedy_k_center(wide, 6)


def test_k_center_treats_runs_alike_whether_they_share_data_or_not() -> None:
    x = torch.randint(0, 256, (30, 9), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    shared = k_center(x.expand(3, -1, -1), 5)
    copied = k_center(torch.stack([x, x.flip(0), x]), 5)
    assert torch.equal(shared[0], copied[0])
    assert torch.equal(shared[2], copied[2])
    assert copied[1].tolist() == greedy_k_center(x.flip(0), 5)


def test_k_center_points_really_spread() -> None:
    """The greedy choice leaves no point farther than twice the best possible radius, unlike a random choice here."""
    x = torch.cat([torch.zeros(97, 2), torch.tensor([[100.0, 0], [0, 100], [100, 100]])])
    assert set(k_center(x[None], 4)[0].tolist()) == {0, 97, 98, 99}


def test_random_picks_are_of_the_task_without_repeats_and_differ_by_run() -> None:
    coreset, rest = RandomK(7)(blobs(0, 0, "none", "h", runs=2).empty(), blobs(50, 1, "t", "h", runs=2), RNG)
    assert (coreset.size, rest.size) == (7, 43)
    assert not torch.equal(coreset.x[0], coreset.x[1])
    assert coreset.x[0].unique(dim=0).shape[0] == 7


def test_with_a_fixed_budget_old_points_really_leave_and_go_to_the_posterior() -> None:
    rule = Budget(12)
    first = blobs(50, 0, "t0", "h", runs=2)
    coreset, rest = rule(first.empty(), first, RNG.at(1))
    assert (coreset.size, rest.size) == (12, 38)
    second = blobs(50, 1, "t1", "h", runs=2)
    coreset, rest = rule(coreset, second, RNG.at(2))
    assert coreset.size == 12
    assert coreset.where([Source("t0", "h")]).size == 6
    assert rest.where([Source("t0", "h")]).size == 6, "six points of the first task left for the posterior"
    assert rest.where([Source("t1", "h")]).size == 44
    third = blobs(50, 2, "t2", "h", runs=2)
    coreset, rest = rule(coreset, third, RNG.at(3))
    assert [coreset.where([Source(f"t{t}", "h")]).size for t in range(3)] == [4, 4, 4]


def test_a_task_that_returns_has_one_share_of_the_budget_drawn_from_old_and_new_points_alike() -> None:
    first, second = blobs(10, 0, "t0", "h", runs=2), blobs(30, 1, "t1", "h", runs=2)
    coreset, _ = Budget(20)(first, second, RNG.at(1))
    again = blobs(40, 2, "t0", "h", runs=2)
    after, rest = Budget(20)(coreset, again, RNG.at(2))
    t0, t1 = Source("t0", "h"), Source("t1", "h")
    assert [coreset.where([source]).size for source in (t0, t1)] == [10, 10]
    assert [after.where([source]).size for source in (t0, t1)] == [10, 10]
    assert [rest.where([source]).size for source in (t0, t1)] == [40, 0]
    new = set(map(tuple, again.x[0].tolist()))
    kept = [tuple(point) in new for point in after.where([t0]).x[0].tolist()]
    assert 4 < sum(kept) < 10, "of 10 old and 40 new points about 8 of 10 are new"


def test_a_returning_task_needs_no_more_of_a_budget() -> None:
    coreset, rest = Budget(1)(blobs(4, 0, "t0", "h"), blobs(4, 1, "t0", "h"), Rng((0,)))
    assert (coreset.size, rest.size) == (1, 7)


def test_a_generator_whose_task_returns_keeps_its_budget_in_equal_shares() -> None:
    fit = VariationalKL(Ascent(epochs=1, batch=10, lr=1e-3), 1)
    learner = GenerativeLearner(small_vae(), Method(fit, Budget(6), fit))
    for seed, task in ((0, "a"), (1, "b"), (2, "a")):
        learner.update(shapes(10, seed, task).x[0], task)
        assert learner.state.coreset is not None
        assert learner.state.coreset.size == 6
    assert {source.task: learner.state.coreset.where([source]).size for source in learner.state.coreset.sources} == {
        "a": 3,
        "b": 3,
    }


def test_a_budget_of_no_points_at_all_is_no_coreset() -> None:
    none = blobs(0, 0, "t0", "h").empty()
    assert [part.size for part in Budget(3)(none, none, Rng((0,)))] == [0, 0]


def test_a_budget_that_does_not_divide_gives_the_extra_points_to_the_earliest_tasks() -> None:
    coreset, _ = Budget(5)(blobs(9, 0, "t0", "h", runs=2), blobs(50, 1, "t1", "h", runs=2), RNG)
    assert [coreset.where([Source(f"t{t}", "h")]).size for t in range(2)] == [3, 2]


@pytest.mark.parametrize("rule", [RandomK(11), KCenter(11), RandomK(0), KCenter(-1)])
def test_a_coreset_that_cannot_be_taken_is_refused(rule: RandomK | KCenter) -> None:
    with pytest.raises(VclError, match=r"cannot be taken from a task of 10 examples; give a size from 1 to 10"):
        rule(blobs(0, 0, "x", "h").empty(), blobs(10, 0, "t", "h"), Rng((0,)))


def test_a_budget_below_the_number_of_tasks_is_refused() -> None:
    with pytest.raises(VclError, match="budget of at least 2"):
        Budget(1)(blobs(4, 0, "t0", "h"), blobs(4, 1, "t1", "h"), Rng((0,)))


def test_nothing_everything_and_only() -> None:
    old, new = blobs(3, 0, "t0", "h", runs=2), blobs(5, 1, "t1", "h", runs=2)
    assert [part.size for part in Nothing()(old, new, RNG)] == [0, 8]
    assert [part.size for part in Everything()(old, new, RNG)] == [8, 0]
    assert [part.size for part in Only(RandomK(2))(old, new, RNG)] == [5, 0]


def test_images_stay_uint8_in_a_coreset() -> None:
    data = dataset(torch.zeros(6, 4, 4, dtype=torch.uint8), torch.zeros(6, dtype=torch.int64), runs=2)
    assert KCenter(2)(data.empty(), data, RNG)[0].x.dtype == torch.uint8


@pytest.mark.parametrize("k", [0, 7, -1])
def test_k_center_takes_no_more_points_than_there_are(k: int) -> None:
    with pytest.raises(VclError, match=rf"^{k} points cannot be chosen out of 6; give a number from 1 to 6\.$"):
        k_center(torch.rand(2, 6, 3), k)
