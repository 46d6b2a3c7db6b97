"""R stacked runs are R runs alone: the same permutations, weights, batches, picks and noise, bit for bit (CPU).

Bits need batches whose rows of outputs fill whole cache lines (batch x outputs a multiple of 16, as the usual sizes
are): the matrix products of the CPU library round differently at other alignments. Then runs agree to rounding.
"""

import pytest
import torch
from torch import nn

from made import blob_tasks, small_network
from vcl.coresets import Budget, CoresetRule, KCenter, Nothing, RandomK
from vcl.engines.structure import Opaque
from vcl.fitting.loop import Ascent
from vcl.lab.streams import Arrays, permuted
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import MaximumLikelihood, VariationalKL
from vcl.recursion import Method, State, initial, learn

SEEDS = (3, 8, 21)


def vi(estimator: str, draws: int, schedule: str = "constant", start: str = "continue") -> VariationalKL:
    return VariationalKL(Ascent(3, 16, 0.01, schedule), draws, estimator, start)  # type: ignore[arg-type]


def end_of(project: object, rule: CoresetRule, seeds: tuple[int, ...], predictive: str = "joint") -> State:  # type: ignore[type-arg]
    model, tasks = small_network(), blob_tasks(2, runs=len(seeds))
    method = Method(project, rule, project, predictive)  # type: ignore[arg-type]
    return list(learn(initial(model, method, len(seeds)), tasks, model, method, Rng(seeds)))[-1]


@pytest.mark.parametrize(
    ("project", "rule", "predictive"),
    [
        (vi("local", 1), Nothing(), "joint"),
        (vi("local", 3), RandomK(8), "per-head"),
        (vi("weights", 1, "cosine"), KCenter(8), "joint"),
        (vi("weights", 3, start="restart"), Budget(16), "joint"),
        (MaximumLikelihood(Ascent(3, 16, 0.01)), Nothing(), "joint"),
    ],
    ids=["local 1", "local 3 random", "weights 1 k-center", "weights 3 budget", "mle"],
)
def test_each_seed_of_a_stack_is_bitwise_that_seed_alone(project: object, rule: CoresetRule, predictive: str) -> None:
    stack = end_of(project, rule, SEEDS, predictive)
    for run, seed in enumerate(SEEDS):
        alone = end_of(project, rule, (seed,), predictive)
        for together, single in (
            (stack.propagated, alone.propagated),
            (stack.predictive["h0"], alone.predictive["h0"]),
        ):
            assert all(torch.equal(a[run], b[0]) for a, b in zip(together[1:], single[1:], strict=True))
        assert torch.equal(stack.coreset.x[run], alone.coreset.x[0])
    assert not torch.equal(stack.propagated.mean[0], stack.propagated.mean[1])


def test_permuted_images_end_at_the_same_bits_alone_and_stacked() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (64, 8, 8), generator=g, dtype=torch.uint8)
    y = torch.randint(0, 10, (64,), generator=g)
    data = Arrays(x, y, x[:9], y[:9], tuple("0123456789"))
    model = Network(mlp(64, [20, 20]), 20, Categorical())
    project = VariationalKL(Ascent(2, 20, 1e-3), 2, "local")
    method = Method(project, RandomK(4), project)

    def end(seeds: tuple[int, ...]) -> State:  # type: ignore[type-arg]
        stream = permuted(data, 2, Rng(seeds))
        return list(learn(initial(model, method, len(seeds)), stream, model, method, Rng(seeds)))[-1]

    stack, alone = end((0, 1)), end((1,))
    assert torch.equal(stack.predictive["all"].mean[1], alone.predictive["all"].mean[0])
    assert torch.equal(stack.coreset.x[1], alone.coreset.x[0])


def test_other_batch_sizes_agree_to_rounding() -> None:
    project = VariationalKL(Ascent(3, 9, 0.01), 3, "weights")
    stack = end_of(project, RandomK(5), SEEDS)
    for run, seed in enumerate(SEEDS):
        alone = end_of(project, RandomK(5), (seed,))
        assert torch.allclose(stack.propagated.mean[run], alone.propagated.mean[0], atol=1e-5)
        assert torch.equal(stack.coreset.x[run], alone.coreset.x[0])


@pytest.mark.parametrize(("estimator", "draws"), [("local", 1), ("local", 3), ("weights", 1), ("weights", 3)])
def test_networks_of_any_kind_agree_to_rounding(estimator: str, draws: int) -> None:
    """A single run of one takes the general way without vmap, a stack with it."""
    trunk = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh())
    model, project = Network(trunk, 8, Categorical()), vi(estimator, draws)
    method = Method(project, Nothing(), project)
    assert isinstance(model.structure(("all",)), Opaque)

    def end(seeds: tuple[int, ...]) -> State:  # type: ignore[type-arg]
        tasks = blob_tasks(2, runs=len(seeds))
        return list(learn(initial(model, method, len(seeds)), tasks, model, method, Rng(seeds)))[-1]

    stack = end(SEEDS)
    for run, seed in enumerate(SEEDS):
        for together, single in zip(stack.propagated[1:], end((seed,)).propagated[1:], strict=True):
            assert torch.allclose(together[run], single[0], atol=1e-5)


def test_runs_do_not_couple() -> None:
    """Another seed beside it changes nothing in a run."""
    a, b = (end_of(vi("local", 2), RandomK(4), seeds) for seeds in ((0, 1), (0, 99)))
    assert torch.equal(a.propagated.mean[0], b.propagated.mean[0])
    assert not torch.equal(a.propagated.mean[1], b.propagated.mean[1])
