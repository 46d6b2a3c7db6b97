"""Fading against dense Gaussians in float64: precision (1-s) L_q + s L_p, natural mean (1-s) L_q m_q + s L_p m_p."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vcl.beliefs import FullGaussian, MeanField, Point, fade, power, product
from vcl.beliefs.information import Pair
from vcl.beliefs.kronecker import Factors, Kronecker
from vcl.beliefs.layout import Layout
from vcl.beliefs.quadratic import without_past
from vcl.data import dataset
from vcl.errors import VclError
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.models import Network
from vcl.models.likelihoods import Normal
from vcl.ops.layer_weights import Block
from vcl.ops.rng import Rng
from vcl.ops.rotations import eigen
from vcl.projections import KroneckerLaplace, Target

LAYOUT = Layout(("trunk.w", "trunk.b", "scale"), ((3, 3), (3,), ()))
LAYER = Block("trunk.w", "trunk.b")
RUNS, D = 2, LAYOUT.size
DELTA = 0.4
SHARES = (0.1, 0.5, 0.95)


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flat_prior() -> MeanField:
    """One variance 1/DELTA and a mean that is not 0, for one run."""
    return MeanField(LAYOUT, numbers(7, 1, D), torch.full((1, D), DELTA, dtype=torch.float64).log().neg())


def rough_prior() -> MeanField:
    return MeanField(LAYOUT, numbers(7, 1, D), numbers(8, 1, D))


def mean_field() -> MeanField:
    return MeanField(LAYOUT, *numbers(0, 2, RUNS, D))


def full() -> FullGaussian:
    root = numbers(1, RUNS, D, D)
    return FullGaussian(LAYOUT, numbers(2, RUNS, D), root @ root.mT + 0.1 * torch.eye(D))


def pair() -> Pair:
    A, G = numbers(3, RUNS, 4, 9), numbers(4, RUNS, 3, 5)
    return Pair(A @ A.mT / 9, G @ G.mT, torch.full((RUNS,), 9.0, dtype=torch.float64))


def kronecker(fitted: bool = False) -> Kronecker:
    """A (x) G + DELTA I in its layer, or any variances there; a diagonal for the rest."""
    A, G, rows = pair()
    (a, Q_A), (g, Q_G) = eigen(A), eigen(G)
    V = 1 / (g.unsqueeze(2) * a.unsqueeze(1) + DELTA)
    params = LAYOUT.split(numbers(5, RUNS, D))
    if not fitted:
        params |= {"trunk.w": V[..., :-1].log(), "trunk.b": V[..., -1].log()}
    blocks = {LAYER: Factors(A, G, rows, Q_A, Q_G)}
    return Kronecker(LAYOUT, numbers(6, RUNS, D), LAYOUT.join(params, lead=1), blocks)


def dense(q: Any) -> Tensor:
    """The precision [R, D, D]."""
    if isinstance(q, FullGaussian):
        return q.precision
    unit = torch.eye(D, dtype=torch.float64).expand(len(q.mean), D, D)
    columns = q._replace(mean=torch.zeros_like(q.mean)).draw(unit)
    return torch.linalg.inv(columns.mT @ columns)


MADE = {
    "mean-field": (mean_field, rough_prior),
    "full": (full, rough_prior),
    "kronecker": (kronecker, flat_prior),
    "kronecker, fitted variances": (lambda: kronecker(fitted=True), flat_prior),
}


@pytest.mark.parametrize("name", MADE)
class TestEveryGaussian:
    @pytest.mark.parametrize("share", SHARES)
    def test_it_is_the_weighted_product_of_both(self, name: str, share: float) -> None:
        q, prior = (make() for make in MADE[name])
        L_q, L_p = dense(q), dense(prior.expand(RUNS))
        L = (1 - share) * L_q + share * L_p
        natural = (1 - share) * L_q @ q.mean.unsqueeze(-1) + share * L_p @ prior.mean.unsqueeze(-1)
        found = fade(q, prior, share)
        assert type(found) is type(q)
        assert found.layout == q.layout
        torch.testing.assert_close(dense(found), L, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found.mean, torch.linalg.solve(L, natural).squeeze(-1), rtol=1e-10, atol=1e-10)

    def test_share_0_is_the_belief_and_share_1_the_prior(self, name: str) -> None:
        q, prior = (make() for make in MADE[name])
        assert fade(q, prior, 0.0) is q
        found, wanted = fade(q, prior, 1.0), type(q).from_prior(prior.expand(RUNS))
        assert found.tensors().keys() == wanted.tensors().keys()
        assert all(torch.equal(value, wanted.tensors()[key]) for key, value in found.tensors().items())

    def test_it_moves_from_the_belief_to_the_prior(self, name: str) -> None:
        q, prior = (make() for make in MADE[name])
        little, much = fade(q, prior, 1e-9), fade(q, prior, 1 - 1e-9)
        torch.testing.assert_close(little.mean, q.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(dense(little), dense(q), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(much.mean, prior.mean.expand(RUNS, -1), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(dense(much), dense(prior.expand(RUNS)), rtol=1e-6, atol=1e-6)

    def test_what_stands_at_the_prior_keeps_its_bits(self, name: str) -> None:
        q, prior = (make() for make in MADE[name])
        start = type(q).from_prior(prior.expand(RUNS))
        found = fade(start, prior, 0.3)
        assert torch.equal(found.mean, start.mean)
        torch.testing.assert_close(dense(found), dense(start), rtol=1e-14, atol=0.0)
        if not isinstance(q, FullGaussian):
            assert torch.equal(found.log_var, start.log_var)

    def test_each_run_is_as_it_is_alone_and_single_precision_works(self, name: str) -> None:
        q, prior = (make() for make in MADE[name])
        both = fade(q, prior, 0.3)
        for run in range(RUNS):
            alone = fade(q.select(torch.tensor([run])), prior, 0.3)
            assert all(torch.equal(value[0], both.tensors()[key][run]) for key, value in alone.tensors().items())
        single = fade(q.to(torch.float32), prior, 0.3)
        assert single.mean.dtype == torch.float32
        torch.testing.assert_close(single.mean.double(), both.mean, rtol=1e-4, atol=1e-4)


def test_a_mean_field_fades_by_product_and_power() -> None:
    q, prior = mean_field(), rough_prior().expand(RUNS)
    found, wanted = fade(q, prior, 0.3), product(power(q, 0.7), power(prior, 0.3))
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.log_var, wanted.log_var, rtol=1e-12, atol=1e-12)


def test_factors_fade_as_if_there_had_been_less_data() -> None:
    """What is faded is the belief of (1-s) times the examples: G, rows and V fit together."""
    q, (A, G, rows) = kronecker(), pair()
    factors = fade(q, flat_prior(), 0.25).blocks[LAYER]
    assert torch.equal(factors.A, A)
    torch.testing.assert_close(factors.G, 0.75 * G)
    torch.testing.assert_close(factors.rows, 0.75 * rows)
    (a, _), (g, _) = eigen(A), eigen(0.75 * G)
    V = LAYOUT.split(fade(q, flat_prior(), 0.25).log_var.exp())
    wanted = 1 / (g.unsqueeze(2) * a.unsqueeze(1) + DELTA)
    torch.testing.assert_close(torch.cat([V["trunk.w"], V["trunk.b"].unsqueeze(-1)], -1), wanted)


def test_after_fading_factors_learn_as_if_old_examples_had_less_weight() -> None:
    """Linear regression with two outputs and other inputs in each task: the posterior of weighted data, exactly."""
    model, share = Network(nn.Flatten(), 3, Normal(0.5), 2.0), 0.3
    project = KroneckerLaplace(
        Ascent(epochs=3000, batch=None, lr=0.05, schedule="cosine"), curvature=KroneckerCurvature("mode", "exact")
    )
    prior = model.prior({"h": 2}).to(torch.float64)
    data = [(numbers(20 + t, n, 3) @ numbers(30 + t, 3, 3), numbers(40 + t, n, 2)) for t, n in enumerate((9, 14))]
    one, two = (dataset(x, y, head="h") for x, y in data)
    q = project(Target(project.initial(prior), model, one, prior), Rng(0))
    q = project(Target(fade(q, prior, share), model, two, prior), Rng(1))
    X = torch.cat([torch.cat([x, torch.ones_like(x[:, :1])], 1) for x, _ in data])
    weight = torch.tensor([1 - share] * 9 + [1.0] * 14, dtype=torch.float64).sqrt().unsqueeze(1) / 0.5
    precision = (weight * X).T @ (weight * X) + torch.eye(4) / 2.0
    W = torch.linalg.solve(precision, (weight * X).T @ (weight * torch.cat([y for _, y in data]))).T
    params = q.layout.split(q.mean[0])
    found = torch.cat([params["heads.h.weight"], params["heads.h.bias"].unsqueeze(1)], 1)
    torch.testing.assert_close(found, W, rtol=1e-6, atol=1e-7)
    (factors,) = q.blocks.values()
    torch.testing.assert_close(
        torch.kron(factors.G[0], factors.A[0]), torch.kron(torch.eye(2), precision - torch.eye(4) / 2.0)
    )


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("family", ["mean-field", "kronecker"])
def test_points_stay(family: str, share: float) -> None:
    """An encoder of a VAE is a point in belief and prior; its value is no matter of belief."""
    prior = flat_prior()
    point = LAYOUT.mask({"scale": 0})
    prior = prior._replace(log_var=prior.log_var.masked_fill(point, -inf))
    q: Any = mean_field() if family == "mean-field" else kronecker()
    q = q._replace(log_var=q.log_var.masked_fill(point, -inf))
    found = fade(q, prior, share)
    assert torch.equal(found.mean[:, point], q.mean[:, point])
    assert (found.log_var[:, point] == -inf).all()
    assert found.mean.isfinite().all()
    assert not torch.equal(found.mean[:, ~point], q.mean[:, ~point])


def test_precisions_beyond_single_precision_are_no_trouble() -> None:
    q = MeanField(LAYOUT, torch.ones(1, D), torch.full((1, D), -95.0))
    found = fade(q, MeanField(LAYOUT, torch.zeros(1, D), torch.zeros(1, D)), 0.5)
    assert torch.equal(found.mean, q.mean)
    torch.testing.assert_close(found.log_var, q.log_var + torch.tensor(2.0).log())


class TestRefusals:
    @pytest.mark.parametrize(
        "belief", [Point(LAYOUT, numbers(0, RUNS, D)), without_past(flat_prior())], ids=["point", "quadratic"]
    )
    def test_families_without_a_prior_of_their_own(self, belief: Any) -> None:
        with pytest.raises(VclError, match=rf"fading a {type(belief).__name__} is not known in closed form; carry a"):
            fade(belief, flat_prior(), 0.5)

    @pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
    def test_no_share(self, share: float) -> None:
        with pytest.raises(VclError, match="give the prior's share, from 0"):
            fade(mean_field(), flat_prior(), share)

    def test_other_parameters_and_other_runs(self) -> None:
        with pytest.raises(VclError, match="over different parameters"):
            fade(mean_field(), flat_prior().restrict(Layout(("scale",), ((),))), 0.5)
        with pytest.raises(VclError, match="has 2 runs and the prior 3"):
            fade(mean_field(), flat_prior().expand(3), 0.5)

    def test_a_layer_with_factors_whose_prior_is_not_one_variance(self) -> None:
        with pytest.raises(VclError, match=r"'trunk.w' has Kronecker factors, and the prior gives .* different"):
            fade(kronecker(), rough_prior(), 0.5)

    def test_a_full_gaussian_has_no_points(self) -> None:
        prior = flat_prior()._replace(log_var=torch.full((1, D), -inf, dtype=torch.float64))
        with pytest.raises(VclError, match="no points"):
            fade(full(), prior, 0.5)
