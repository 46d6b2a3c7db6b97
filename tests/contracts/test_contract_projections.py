"""What every projection keeps, just by being listed here."""

from typing import Any

import pytest
import torch
from torch import nn

from made import blob_tasks, linear_tasks, small_network
from vcl.coresets import RandomK
from vcl.fitting.curvature import Curvature
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.models import LinearGaussian, Model, Network
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import (
    ElasticWeightConsolidation,
    Exact,
    KroneckerLaplace,
    KroneckerVariational,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    Merged,
    MomentMatching,
    OnlineLinear,
    SequentialMonteCarlo,
    SynapticIntelligence,
    Target,
    VariationalKL,
)
from vcl.recursion import Method, Task, initial, learn

FEW = Ascent(2, 16, 0.01)
IN_CLOSED_FORM: dict[str, Any] = {
    "exact": Exact(),
    "online variational": OnlineLinear(),
    "online laplace": OnlineLinear("laplace"),
}
ON_NETWORKS: dict[str, Any] = {
    "vi local": VariationalKL(FEW, 2, "local"),
    "vi weights restart": VariationalKL(FEW, 1, "weights", "restart"),
    "vi reset": VariationalKL(FEW, 2, "weights", "reset", init="glorot", climbs="log_sd"),
    "vi natural": VariationalKL(FEW, 1, "local", natural=NaturalGradient()),
    "vi natural weights": VariationalKL(FEW, 1, "weights", "restart", climbs="log_sd", natural=NaturalGradient()),
    "merged": Merged(VariationalKL(FEW, 1, "local", natural=NaturalGradient()), 0.7),
    "mle": MaximumLikelihood(FEW),
    "mle glorot": MaximumLikelihood(FEW, init="glorot"),
    "map": MaximumAPosteriori(FEW),
    "lp": LaplacePropagation(FEW),
    "lp true 5": LaplacePropagation(FEW, curvature=Curvature("true", 5)),
    "lp hessian": LaplacePropagation(FEW, curvature=Curvature("hessian")),
    "ewc": ElasticWeightConsolidation(FEW),
    "ewc previous": ElasticWeightConsolidation(FEW, (0.0, 5.0), Curvature(samples=7), "previous"),
    "kronecker": KroneckerLaplace(FEW, (0.5, 1.0)),
    "kronecker mode": KroneckerLaplace(FEW, curvature=KroneckerCurvature("mode", "exact", rule="nearest")),
    "kronecker ewc": KroneckerLaplace(FEW, curvature=KroneckerCurvature(heads="diagonal", samples=9), prior=False),
    "kronecker vi": KroneckerVariational(KroneckerLaplace(FEW), FEW, 2),
    "kronecker vi weights": KroneckerVariational(KroneckerLaplace(FEW, (0.5, 1.0)), FEW, 1, "weights"),
    "kronecker vi natural": KroneckerVariational(KroneckerLaplace(FEW), FEW, natural=NaturalGradient()),
    "si": SynapticIntelligence(FEW),
    "moment matching": MomentMatching(3),
    "smc": SequentialMonteCarlo(30, moves=1, leapfrog=3),
    "smc local": SequentialMonteCarlo(30, moves=1, leapfrog=3, refit="local"),
}
PROJECTIONS = IN_CLOSED_FORM | ON_NETWORKS


def parts(q: Any) -> dict[str, torch.Tensor]:
    """All tensors of a belief, by name; those of layers' factors too."""
    found = {name: value for name, value in q._asdict().items() if isinstance(value, torch.Tensor)}
    for block, factors in getattr(q, "blocks", {}).items():
        found |= {f"{block.weight}.{name}": value for name, value in factors._asdict().items()}
    return found


def problem(project: Any, runs: int = 2) -> tuple[Model, list[Task], dict[str, int]]:
    if project in IN_CLOSED_FORM.values():
        return LinearGaussian(4, 0.5, 2.0), linear_tasks([20, 10], runs), {"all": 1}
    return small_network(), blob_tasks(2, runs), {"h0": 2, "h1": 2}


def partial_network() -> Network:
    """Its first layer is frozen, and its second starts at the module's values, which are the prior's mean."""
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 8), nn.ReLU())
    return Network(trunk, 8, Categorical(), frozen=("1.weight", "1.bias"), prior_mean="module")


def begin(project: Any, runs: int = 2) -> tuple[Any, Model, list[Task], Any]:
    model, tasks, heads = problem(project, runs)
    prior = model.prior(heads).to(tasks[0].train.x.dtype)
    return project.initial(prior.expand(runs)), model, tasks, prior


@pytest.mark.parametrize("project", PROJECTIONS.values(), ids=PROJECTIONS)
class TestEveryProjection:
    def test_no_data_returns_q_itself(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        assert project(Target(q, model, tasks[0].train.empty(), prior), Rng((0, 1))) is q

    def test_the_belief_keeps_its_kind_shape_and_layout_and_is_finite(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        after = project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
        assert type(after) is type(q)
        assert after.layout == q.layout
        assert parts(after).keys() >= parts(q).keys()
        for name, new in parts(after).items():
            assert new.shape == parts(q).get(name, new).shape
            assert new.dtype == parts(q).get(name, q.mean).dtype
            assert new.isfinite().all()
            assert not new.requires_grad

    def test_q_is_not_written_to_and_data_moves_the_belief(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        before = {name: part.clone() for name, part in parts(q).items()}
        after = project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
        assert all(torch.equal(before[name], part) for name, part in parts(q).items())
        assert not torch.equal(after.mean, q.mean)

    def test_the_same_seed_gives_the_same_bits(self, project: Any) -> None:
        q, model, tasks, prior = begin(project)
        one, two = (project(Target(q, model, tasks[0].train, prior), Rng((4, 5))) for _ in range(2))
        assert parts(one).keys() == parts(two).keys()
        assert all(torch.equal(part, parts(two)[name]) for name, part in parts(one).items())

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
        assert bool(told) == (project not in IN_CLOSED_FORM.values())

    def test_the_belief_grows_restricts_and_draws(self, project: Any) -> None:
        q, model, *_ = begin(project)
        heads = {"all": 1} if project in IN_CLOSED_FORM.values() else {"h0": 2, "h1": 2}
        assert q.grow(model.prior(heads)).layout == q.layout
        part = q.restrict(q.layout.touched([]))
        assert part.mean.shape == (2, part.layout.size)
        assert q.draw(torch.randn(2, 3, q.layout.size, dtype=q.mean.dtype)).shape == (2, 3, q.layout.size)


@pytest.mark.parametrize("project", ON_NETWORKS.values(), ids=ON_NETWORKS)
def test_heads_without_data_are_bitwise_unchanged(project: Any) -> None:
    q, model, tasks, prior = begin(project)
    one = project(Target(q, model, tasks[0].train, prior), Rng((0, 1)))
    two = project(Target(one, model, tasks[1].train, prior), Rng((2, 3)))
    for field in (name for name, part in parts(q).items() if part.shape[-1] == q.layout.size):
        before, after = q.layout.split(parts(one)[field]), q.layout.split(parts(two)[field])
        for name in q.layout.names:
            assert torch.equal(before[name], after[name]) == name.startswith("heads.h0."), name


@pytest.mark.parametrize("project", ON_NETWORKS.values(), ids=ON_NETWORKS)
@pytest.mark.parametrize("single_head", [False, True], ids=["multi-head", "single-head"])
def test_it_is_a_continual_learner_under_the_recursion(project: Any, single_head: bool) -> None:
    """Three tasks, each known only when it comes, with a coreset beside it: heads are met one by one."""
    model, tasks = small_network(), blob_tasks(3, runs=2, single_head=single_head)
    method: Method[Any] = Method(project, RandomK(6), project)
    states = list(learn(initial(model, method, 2), tasks, model, method, Rng((0, 1))))
    assert [state.t for state in states] == [1, 2, 3]
    heads = ["all"] if single_head else ["h0", "h1", "h2"]
    assert list(states[-1].predictive) == heads
    for head in heads:
        probabilities = predict(states[-1].predictive[head], model, tasks[0].test.x, head, Rng((0, 1)), draws=3)
        assert torch.allclose(probabilities.sum(-1), torch.ones(2, 20), atol=1e-5)
    # The coreset speaks in the prediction and never in what is propagated.
    assert not torch.equal(states[-1].predictive[heads[-1]].mean, states[-1].propagated.mean)


@pytest.mark.parametrize("project", ON_NETWORKS.values(), ids=ON_NETWORKS)
def test_it_learns_a_network_of_which_a_part_is_frozen(project: Any) -> None:
    """The state is saved after each task, and another copy of the network continues with it."""
    model, tasks = partial_network(), blob_tasks(2, runs=2)
    method: Method[Any] = Method(project)
    before = {name: value.clone() for name, value in model.fixed_values(torch.zeros(())).items()}
    begun = initial(model, method, 2)
    (one,) = learn(begun, tasks[:1], model, method, Rng((0, 1)))
    assert one.propagated.layout.touched([]).names == ("trunk.3.weight", "trunk.3.bias")
    assert not torch.equal(one.propagated.mean[:, :64], begun.propagated.mean[:, :64]), "data moves the rest"
    (two,) = learn(from_bytes(to_bytes(one)), tasks[1:], partial_network(), method, Rng((0, 1)))
    for head in ("h0", "h1"):
        found = predict(two.predictive[head], model, tasks[0].train.x, head, Rng((0, 1)), draws=3)
        assert torch.allclose(found.sum(-1), torch.ones(2, 40), atol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.fixed_values(torch.zeros(())).items())
