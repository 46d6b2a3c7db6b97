"""What every coreset rule keeps, just by being listed here."""

import pytest
import torch

from made import blobs
from vcl.coresets import Budget, CoresetRule, Everything, KCenter, Nothing, Only, RandomK, sizes
from vcl.data import Data, concat
from vcl.ops.rng import Rng

KEEPING: list[CoresetRule] = [Nothing(), Everything(), RandomK(4), KCenter(4), Budget(7)]
DROPPING: list[CoresetRule] = [Only(rule) for rule in KEEPING]
SEEDS = (0, 1, 2)


def rows(data: Data, run: int) -> list[tuple[object, ...]]:
    """Every example with its label, task and head, in an order that does not matter."""
    return sorted(
        (tuple(x.tolist()), int(y), data.sources[s].task, data.sources[s].head)
        for x, y, s in zip(data.x[run], data.y[run], data.source[run].tolist(), strict=True)
    )


def history(rule: CoresetRule, seeds: tuple[int, ...] = SEEDS) -> list[tuple[Data, Data, Data, Data]]:
    """(C_{t-1}, D_t, C_t, rest): five tasks, of which some share a head and some return, once together with another."""
    made = []
    coreset = blobs(0, 0, "none", "h0", runs=len(seeds)).empty()
    steps = ["t0/h0", "t1/h1", "t2/h0", "t3/h2", "t1/h1", "t0/h0", "t0/h0 t4/h2", "t4/h2"]
    for t, step in enumerate(steps):
        new = coreset.empty()
        for number, source in enumerate(step.split()):
            new = concat(new, blobs(15, 10 * t + number, *source.split("/"), runs=len(seeds)))
        # Every run has points of its own, by its seed.
        shift = torch.tensor(seeds, dtype=new.x.dtype).view(-1, 1, 1)
        new = new._replace(x=new.x + 100 * shift)
        after, rest = rule(coreset, new, Rng(seeds).at("task", t))
        made.append((coreset, new, after, rest))
        coreset = after
    return made


@pytest.mark.parametrize("rule", KEEPING + DROPPING, ids=str)
class TestEveryRule:
    def test_nothing_is_invented_and_nothing_stands_on_both_sides(self, rule: CoresetRule) -> None:
        for old, new, coreset, rest in history(rule):
            for run in range(3):
                given, made = rows(concat(old, new), run), rows(concat(coreset, rest), run)
                assert len(set(made)) == len(made)
                assert set(made) <= set(given)

    def test_the_same_seed_picks_the_same_points_alone_and_in_a_stack(self, rule: CoresetRule) -> None:
        stack, alone = history(rule)[-1], history(rule, (1,))[-1]
        assert torch.equal(stack[2].x[1], alone[2].x[0])
        assert torch.equal(stack[3].x[1], alone[3].x[0])

    def test_its_sizes_are_known_beforehand(self, rule: CoresetRule) -> None:
        coreset, rests = blobs(0, 0, "none", "h0").empty(), [0]
        for t in range(1, 5):
            coreset, rest = rule(coreset, blobs(15, t, f"t{t}", f"h{t}"), Rng((0,)).at("task", t))
            rests.append(rest.size)
            assert sizes(rule, t, 15).kept == coreset.size
            assert max(rests) <= sizes(rule, t, 15).rest <= max(rests) + 7, (
                "a budget's rest is larger from the second on"
            )

    def test_inputs_are_not_written_to(self, rule: CoresetRule) -> None:
        old, new = blobs(6, 0, "a", "h0", runs=3), blobs(15, 1, "b", "h1", runs=3)
        before = old.x.clone(), new.x.clone()
        rule(old, new, Rng(SEEDS))
        assert torch.equal(old.x, before[0])
        assert torch.equal(new.x, before[1])

    def test_dtype_and_runs_are_kept(self, rule: CoresetRule) -> None:
        for _, new, coreset, rest in history(rule):
            for part in (coreset, rest):
                assert part.runs == 3
                assert part.x.dtype == new.x.dtype
                assert part.y.dtype == new.y.dtype


@pytest.mark.parametrize("rule", KEEPING, ids=str)
def test_coreset_and_rest_are_together_exactly_the_old_coreset_and_the_new_data(rule: CoresetRule) -> None:
    for old, new, coreset, rest in history(rule):
        for run in range(3):
            assert rows(concat(coreset, rest), run) == rows(concat(old, new), run)


@pytest.mark.parametrize("rule", KEEPING, ids=str)
def test_a_coreset_alone_is_that_of_the_rule_without_the_rest(rule: CoresetRule) -> None:
    for (*_, whole, _), (*_, coreset, rest) in zip(history(rule), history(Only(rule)), strict=True):
        assert rest.size == 0
        assert torch.equal(coreset.x, whole.x)
        assert torch.equal(coreset.y, whole.y)


@pytest.mark.parametrize("rule", [RandomK(4), KCenter(4)], ids=str)
def test_rules_of_k_points_keep_k_of_every_task_that_comes(rule: CoresetRule) -> None:
    assert [coreset.size for _, _, coreset, _ in history(rule)] == [4, 8, 12, 16, 20, 24, 28, 32]
