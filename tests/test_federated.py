"""Partitioned variational inference: exact where the projection is, and the same as the algebra's product."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from made import blobs, linear_data, small_network
from oracles import linear_posterior
from vcl import Ascent, PartitionedVI, Rng, VariationalKL, VclError
from vcl.beliefs import FullGaussian, MeanField, combine
from vcl.beliefs.natural import Natural
from vcl.data import Data, concat
from vcl.federated import Shared
from vcl.models import LinearGaussian
from vcl.projections import Exact, KroneckerLaplace, LaplacePropagation, OnlineLinear

MODEL = LinearGaussian(4, noise=0.5, prior_var=2.0)
SIZES = (3, 50, 7)


def clients(runs: int = 1) -> list[Data]:
    """Clients with very different numbers of examples; the first has fewer than parameters."""
    return [linear_data(n, k, f"client {k}", runs) for k, n in enumerate(SIZES)]


def begun(inference: PartitionedVI[Any], count: int = len(SIZES), runs: int = 1) -> Shared[Any]:
    """Before the first round, in float64."""
    state = inference.initial(MODEL, {}, count, runs)
    prior = inference.project.initial(MODEL.prior({}).to(torch.float64).expand(runs))
    nothing = Natural.of(prior).to_power(0)
    return state._replace(prior=prior, belief=prior, factors=(nothing,) * count)


def oracle() -> tuple[torch.Tensor, torch.Tensor]:
    """The posterior of all data in one place."""
    x, y = (torch.cat([getattr(data, name)[0] for data in clients()]) for name in ("x", "y"))
    return linear_posterior(x, y.flatten(), 0.5, 2.0)


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("runs", [1, 2])
def test_one_round_is_exact_and_more_rounds_leave_it(in_turn: bool, runs: int) -> None:
    inference = PartitionedVI(Exact(), in_turn=in_turn)
    state = begun(inference, runs=runs)
    mean, precision = oracle()
    for _ in range(4):
        state = inference.round(state, clients(runs), MODEL, Rng(range(runs)))
        for run in range(runs):
            torch.testing.assert_close(state.belief.mean[run], mean, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(state.belief.precision[run], precision, rtol=1e-8, atol=1e-8)
    assert state.rounds == 4


def test_damped_rounds_come_to_the_exact_posterior() -> None:
    inference = PartitionedVI(Exact(), damping=0.5)
    state, gaps = begun(inference), []
    for _ in range(30):
        state = inference.round(state, clients(), MODEL, Rng(0))
        gaps.append(float((state.belief.precision - oracle()[1]).abs().max()))
    assert gaps[1] == pytest.approx(gaps[0] / 2)
    torch.testing.assert_close(state.belief.mean[0], oracle()[0], rtol=1e-6, atol=1e-6)


def test_a_round_is_the_product_of_the_algebra() -> None:
    """combine(prior, posteriors): each client learns alone from the prior."""
    inference = PartitionedVI(Exact())
    state = begun(inference)
    after = inference.round(state, clients(), MODEL, Rng(0))
    alone = [inference.round(begun(inference, 1), [data], MODEL, Rng(0)).belief for data in clients()]
    product = combine(alone, prior=state.prior)
    torch.testing.assert_close(after.belief.mean, product.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(after.belief.precision, product.precision, rtol=1e-8, atol=1e-8)


def test_the_rounds_of_diagonal_gaussians_settle_at_the_mode_of_all_data() -> None:
    """The mode of the product is that of all data, whatever the diagonal curvatures are."""
    inference: PartitionedVI[MeanField] = PartitionedVI(
        LaplacePropagation(Ascent(400, None, 0.05, "cosine")), in_turn=True
    )
    data = [linear_data(40, k, f"client {k}") for k in range(2)]
    state = begun(inference, 2)
    for _ in range(12):  # a round halves the distance
        state = inference.round(state, data, MODEL, Rng(0))
    both = concat(*data)
    mean, _ = linear_posterior(both.x[0], both.y[0].flatten(), 0.5, 2.0)
    torch.testing.assert_close(state.belief.mean[0], mean, rtol=5e-3, atol=5e-3)


def test_networks_of_clients_with_one_class_each_learn_both() -> None:
    data = blobs(80, 0, "all", "all")
    parts = [data.take(torch.arange(first, 80, 2)[None]) for first in (0, 1)]
    model = small_network()
    project = VariationalKL(Ascent(30, None, 0.02), draws=2, ml_start=False, start="continue")
    inference = PartitionedVI(project, damping=0.5)
    state = inference.initial(model, {"all": 2}, 2)
    said: list[str] = []
    for _ in range(4):
        state = inference.round(state, parts, model, Rng(3), lambda progress: said.append(progress.what))
    assert said
    assert state.belief.mean.dtype == torch.float32
    params = state.belief.layout.split(state.belief.mean)
    outputs = model.outputs({name: value[0] for name, value in params.items()}, data.x[0], "all")
    assert (outputs.argmax(-1) == data.y[0]).float().mean() > 0.9
    after = inference.round(state, parts, model, Rng(3))
    again = inference.round(state, parts, model, Rng(3))
    assert torch.equal(after.belief.mean, again.belief.mean), "a round follows from its arguments"


def test_a_client_without_data_says_nothing() -> None:
    inference = PartitionedVI(Exact())
    given = [linear_data(9, 1), linear_data(9, 2).empty()]
    state = inference.round(begun(inference, 2), given, MODEL, Rng(0))
    assert float(state.factors[1].precision.abs().max()) == 0
    alone = inference.round(begun(inference, 1), given[:1], MODEL, Rng(0))
    assert torch.equal(state.belief.mean, alone.belief.mean)


def test_what_cannot_be_is_refused_by_a_sentence() -> None:
    inference = PartitionedVI(Exact())
    state = begun(inference)
    with pytest.raises(VclError, match=r"data of 2 clients, but 3 take part"):
        inference.round(state, clients()[:2], MODEL, Rng(0))
    with pytest.raises(VclError, match=r"client 0 has data for 1 runs, q has 1 and there are 2 seeds"):
        inference.round(state, clients(), MODEL, Rng((0, 1)))
    with pytest.raises(VclError, match=r"damping is 0; give a share above 0"):
        PartitionedVI(Exact(), damping=0).initial(MODEL, {}, 2)
    with pytest.raises(VclError, match=r"there are 0 clients"):
        inference.initial(MODEL, {}, 0)
    with pytest.raises(VclError, match=r"no natural parameters; use a projection whose belief"):
        PartitionedVI(KroneckerLaplace()).initial(small_network(), {"a": 2}, 2)  # type: ignore[type-var]


@pytest.mark.parametrize("full", [False, True])
def test_an_improper_product_is_refused_with_the_place_and_a_remedy(full: bool) -> None:
    inference = PartitionedVI(Exact() if full else OnlineLinear())
    state = begun(inference)
    negative = Natural.of(state.prior).to_power(-3)
    with pytest.raises(
        VclError, match=r"product of prior and factors would have .* at w\[0\] in run 0.*lower the damp"
    ):
        inference.together(state.prior, [negative])
    with pytest.raises(VclError, match=r"q without the factor of client 0 would have .* at w\[0\] in run 0"):
        inference.round(state._replace(factors=(Natural.of(state.prior).to_power(2),) * 3), clients(), MODEL, Rng(0))
    with pytest.raises(VclError, match=r"lower the damping \(now 1\)\.$"):
        PartitionedVI(inference.project, in_turn=True).together(state.prior, [negative])


def test_natural_parameters_go_there_and_back() -> None:
    prior = MODEL.prior({}).to(torch.float64)
    for q in (prior, FullGaussian.from_prior(prior)):
        back = Natural.of(q).belief(q, "it", "nothing")
        for ours, theirs in zip(back[1:], q[1:], strict=True):
            torch.testing.assert_close(ours, theirs)
    point = MeanField(prior.layout, prior.mean, torch.full_like(prior.log_var, -torch.inf))
    with pytest.raises(VclError, match=r"w\[0\] in run 0 is a point"):
        Natural.of(point)
    other = Natural.of(LinearGaussian(3).prior({}))
    with pytest.raises(VclError, match=r"one contribution has 4 parameters of 1 runs and the other 3"):
        Natural.of(prior).times(other)
