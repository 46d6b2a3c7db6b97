"""What every projection keeps where a head gets outputs: classes 0 to 2 come first, then 3 and 4."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from test_contract_projections import FEW, ON_NETWORKS, parts
from torch import Tensor
from torch.nn import functional as F

from made import small_network
from vcl.beliefs.belief import Belief
from vcl.coresets import RandomK
from vcl.data import Data, dataset
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.models import Network
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import KroneckerLaplace, KroneckerVariational, VariationalKL
from vcl.recursion import Method, State, Task, initial, learn

MODEL = small_network()
PROJECTIONS = ON_NETWORKS | {
    "kronecker": KroneckerLaplace(FEW, 0.5),  # one lambda: the number of runs differs here
    "kronecker vi weights": KroneckerVariational(KroneckerLaplace(FEW, 0.5), FEW, 1, "weights"),
    "ewc previous": ON_NETWORKS["ewc previous"].__class__(FEW, 5.0, anchor="previous"),
    "vi full": VariationalKL(FEW, 2, family="full"),
    "vi natural reset": VariationalKL(FEW, 1, "local", "reset", natural=NaturalGradient()),
}
SAVED_AND_STACKED = (
    "vi local", "vi weights restart", "vi natural", "vi full", "merged", "mle", "map", "lp", "ewc", "si", "kronecker",
    "kronecker vi", "moment matching", "smc",
)  # fmt: skip
"""One of each kind."""
BITWISE = [name for name in SAVED_AND_STACKED if name not in ("vi full", "moment matching", "smc")]
"""Those whose stacked runs have the bits of runs alone."""


def classes(labels: tuple[int, ...], task: str, runs: int = 1) -> Data:
    """48 examples of these classes, in float32; each class has a place of its own."""
    g = torch.Generator().manual_seed(len(task))
    centres = 2 * torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
    y = torch.tensor(labels)[torch.arange(48) % len(labels)]
    return dataset(centres[y] + 0.5 * torch.randn(48, 6, generator=g), y, task, "all", runs)


def stream(runs: int = 1) -> list[Task]:
    return [
        Task("a", classes((0, 1, 2), "a", runs), heads={"all": 3}),
        Task("bb", classes((3, 4), "bb", runs), heads={"all": 5}),
        Task("ccc", classes((1, 4), "ccc", runs), heads={"all": 5}),
    ]


def method(project: Any, predictive: Any = "joint") -> Method[Any]:
    return Method(project, RandomK(16), project, predictive)


@cache
def learned(name: str, *seeds: int, tasks: int = 3) -> list[State[Any]]:
    """The states of a stream; several tests look at those of seed 0."""
    how = method(PROJECTIONS[name])
    return list(learn(initial(MODEL, how, len(seeds)), stream(len(seeds))[:tasks], MODEL, how, Rng(seeds)))


def logits(model: Network, theta: dict[str, Tensor], x: Tensor) -> Tensor:
    """By sums, whose rounding does not depend on the number of outputs."""
    hidden = F.relu(F.linear(x, theta["trunk.1.weight"], theta["trunk.1.bias"]))
    return (hidden.unsqueeze(1) * theta["heads.all.weight"]).sum(-1) + theta["heads.all.bias"]


def same(a: Belief, b: Belief) -> bool:
    one, two = parts(a), parts(b)
    return a.layout == b.layout and one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("name", PROJECTIONS)
class TestEveryProjection:
    def test_old_logits_are_bitwise_unchanged_right_after_growing(self, name: str) -> None:
        """At the mean, and the prior's mean 0 is each new logit; all that a belief says of old values stays, too."""
        q, x = learned(name, 0)[0].propagated, stream()[0].train.x[0]
        grown = q.grow(MODEL.prior({"all": 5}))
        before, after = (logits(MODEL, each.layout.split(each.mean[0]), x) for each in (q, grown))
        assert before.shape == (48, 3)
        assert before.std() > 0.01
        assert torch.equal(after[:, :3], before)
        assert not after[:, 3:].any()
        old = q.layout.leading(grown.layout)
        for key, value in parts(q).items():
            now = parts(grown)[key]
            if value.shape[-1] == q.layout.size:
                now = now[:, old][:, :, old] if value.dim() == 3 else now[:, old]
            elif key.startswith("heads.all.weight.") and key.rpartition(".")[2] in ("G", "Q_G"):
                now = now[:, :3, :3]
            assert torch.equal(now, value), key

    def test_new_classes_are_learned_and_new_rows_leave_the_prior(self, name: str) -> None:
        states = learned(name, 0)
        assert [dict(state.heads) for state in states] == [{"all": 3}, {"all": 5}, {"all": 5}]
        q = states[1].propagated
        assert q.layout.split(q.mean)["heads.all.weight"].shape == (1, 5, 8)
        new = q.layout.mask({"heads.all.weight": 3, "heads.all.bias": 3})
        rows = q.mean[:, new].view(-1)
        assert (rows[:16].view(2, 8) != 0).any(1).all()
        assert not torch.equal(rows[:8], rows[8:16])
        for state in states[1:]:
            assert all(value.isfinite().all() for value in parts(state.propagated).values())
            found = predict(state.predictive["all"], MODEL, stream()[1].train.x, "all", Rng((0,)), draws=3)
            assert found.shape == (1, 48, 5)
        assert states[1].coreset is not None
        assert {*states[1].coreset.y[0].tolist()} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("name", SAVED_AND_STACKED)
class TestOneOfEachKind:
    def test_a_saved_state_grows_to_the_same_bits(self, name: str) -> None:
        """Saved before the head grows, and after."""
        project, tasks, straight = PROJECTIONS[name], stream(), learned(name, 0)
        for done in (1, 2):
            loaded = from_bytes(to_bytes(straight[done - 1]))
            assert loaded.heads == straight[done - 1].heads
            assert loaded.fingerprint == straight[0].fingerprint
            *_, resumed = learn(loaded, tasks[done:], MODEL, method(project), Rng((0,)))
            assert same(resumed.propagated, straight[2].propagated)
            assert same(resumed.predictive["all"], straight[2].predictive["all"])

    def test_three_runs_are_three_runs_alone(self, name: str) -> None:
        seeds = (3, 8, 21)
        stack = learned(name, *seeds, tasks=2)[-1]
        assert not torch.equal(stack.propagated.mean[0], stack.propagated.mean[1])
        for run, seed in enumerate(seeds):
            alone = learned(name, seed, tasks=2)[-1]
            for one, two in ((stack.propagated, alone.propagated), (stack.predictive["all"], alone.predictive["all"])):
                for key, value in parts(one).items():
                    if name in BITWISE:
                        assert torch.equal(value[run], parts(two)[key][0]), key
                    else:
                        scale = value[run].abs().max().item()
                        torch.testing.assert_close(value[run], parts(two)[key][0], rtol=1e-3, atol=1e-4 * scale)
