"""What every projection keeps, just by being listed here."""

from typing import Any

import pytest
import torch

from made import blob_tasks, linear_tasks, small_network
from vcl.models import LinearGaussian, Model
from vcl.optimise import Ascent
from vcl.projections import Exact, MaximumLikelihood, MomentMatching, SequentialMonteCarlo, Target, VariationalKL
from vcl.recursion import Task
from vcl.rng import Rng

FEW = Ascent(2, 16, 0.01)
ON_NETWORKS: list[Any] = [
    VariationalKL(FEW, 2, "local"),
    VariationalKL(FEW, 1, "weights", "restart"),
    MaximumLikelihood(FEW),
    MomentMatching(3),
    SequentialMonteCarlo(30, moves=1, leapfrog=3),
    SequentialMonteCarlo(30, moves=1, leapfrog=3, refit="local"),
]
PROJECTIONS: list[Any] = [Exact(), *ON_NETWORKS]
NAMES = ["exact", "vi local", "vi weights restart", "mle", "moment matching", "smc", "smc local"]


def problem(project: Any, runs: int = 2) -> tuple[Model, list[Task], dict[str, int]]:
    if isinstance(project, Exact):
        return LinearGaussian(4, 0.5, 2.0), linear_tasks([20, 10], runs), {"all": 1}
    return small_network(), blob_tasks(2, runs), {"h0": 2, "h1": 2}


def begin(project: Any, runs: int = 2) -> tuple[Any, Model, list[Task], Any]:
    model, tasks, heads = problem(project, runs)
    prior = model.prior(heads).to(tasks[0].train.x.dtype)
    return project.initial(prior.expand(runs)), model, tasks, prior


@pytest.mark.parametrize("project", PROJECTIONS, ids=NAMES)
class TestEveryProjection:
    def test_no_data_returns_q_itself(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        assert project(Target(q, model, tasks[0].train.empty(), prior), Rng((0, 1))) is q

    def test_the_belief_keeps_its_kind_shape_and_layout_and_is_finite(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        after = project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
        assert type(after) is type(q)
        assert after.layout == q.layout
        for new, old in zip(after[1:], q[1:], strict=True):
            assert new.shape == old.shape
            assert new.dtype == old.dtype
            assert new.isfinite().all()
            assert not new.requires_grad

    def test_q_is_not_written_to_and_data_moves_the_belief(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        before = [part.clone() for part in q[1:]]
        after = project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
        assert all(torch.equal(a, b) for a, b in zip(before, q[1:], strict=True))
        assert not torch.equal(after.mean, q.mean)

    def test_the_same_seed_gives_the_same_bits(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        one, two = (project(Target(q, model, tasks[0].train, prior), Rng((4, 5))) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(one[1:], two[1:], strict=True))

    def test_no_global_randomness_is_used(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        before = torch.get_rng_state()
        project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
        assert torch.equal(before, torch.get_rng_state())

    def test_progress_is_told_in_order(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        told: list[Any] = []
        project(Target(q, model, tasks[0].train, prior), Rng((0, 1)), told.append)
        assert all(1 <= step.epoch <= step.epochs for step in told)
        assert bool(told) == (not isinstance(project, Exact))

    def test_the_belief_grows_restricts_and_draws(self, project: Any) -> None:
        q, model, *_ = begin(project)
        assert q.grow(model.prior({"all": 1} if isinstance(project, Exact) else {"h0": 2, "h1": 2})).layout == q.layout
        part = q.restrict(q.layout.touched([]))
        assert part.mean.shape == (2, part.layout.size)
        assert q.draw(torch.randn(2, 3, q.layout.size, dtype=q.mean.dtype)).shape == (2, 3, q.layout.size)


@pytest.mark.parametrize("project", ON_NETWORKS, ids=NAMES[1:])
def test_heads_without_data_are_bitwise_unchanged(project: Any) -> None:
    q, model, tasks, prior = begin(project)
    one = project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
    two = project(Target(one, model, tasks[1].train, prior), Rng((2, 3)))
    for field in range(1, len(q)):
        before, after = q.layout.split(one[field]), q.layout.split(two[field])
        for name in q.layout.names:
            assert torch.equal(before[name], after[name]) == name.startswith("heads.h0."), name
