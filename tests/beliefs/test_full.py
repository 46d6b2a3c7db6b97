"""The full Gaussian: marginals, what a merge keeps, and variational inference with it."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from made import linear_data
from oracles import linear_posterior
from vcl.beliefs.belief import Roles
from vcl.beliefs.full import FullFit, FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data
from vcl.errors import VclError
from vcl.fitting.loop import Ascent, ascend
from vcl.models import LinearGaussian
from vcl.ops.rng import Rng

LAYOUT = Layout(("a", "b"), ((2,), (1,)))
NONE = Layout((), ())


def some(layout: Layout = LAYOUT, runs: int = 2, seed: int = 1) -> FullGaussian:
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(runs, layout.size, layout.size, generator=g, dtype=torch.float64)
    mean = torch.randn(runs, layout.size, generator=g, dtype=torch.float64)
    return FullGaussian(layout, mean, root @ root.mT + torch.eye(layout.size))


def normal(q: FullGaussian) -> MultivariateNormal:
    return MultivariateNormal(q.mean, precision_matrix=q.precision)


def all_held(layout: Layout) -> Roles:
    return Roles(layout, layout, NONE)


def test_draws_of_a_full_gaussian_have_its_covariance() -> None:
    data = linear_data(10, 0)
    mean, precision = linear_posterior(data.x[0], data.y[0], 0.5, 2.0)
    q = FullGaussian(Layout(("w",), ((4,),)), mean[None], precision[None])
    draws = q.draw(torch.randn(1, 200_000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    covariance = torch.linalg.inv(precision)
    assert torch.allclose(draws.T.cov(), covariance, atol=0.03 * covariance.abs().max().item())
    assert torch.allclose(draws.mean(0), mean, atol=0.01)


def test_a_full_gaussian_restricts_to_its_marginal_and_grows_independently() -> None:
    layout = Layout(("a", "b"), ((2,), (1,)))
    root = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    precision = root @ root.T + torch.eye(3)
    q = FullGaussian(layout, torch.arange(3.0, dtype=torch.float64)[None], precision[None])
    part = q.restrict(Layout(("b",), ((1,),)))
    assert part.precision.item() == pytest.approx(1 / torch.linalg.inv(precision)[2, 2].item())
    prior = MeanField(Layout(("a", "c"), ((2,), (1,))), torch.full((1, 3), 7.0), torch.full((1, 3), 2.0).log())
    grown = q.grow(prior)
    assert grown.layout.names == ("a", "b", "c")
    assert grown.mean[0].tolist() == [0, 1, 2, 7]
    assert torch.allclose(grown.precision[0, :3, :3], precision)
    assert grown.precision[0, 3].tolist() == pytest.approx([0, 0, 0, 0.5])


def test_a_marginal_is_a_block_of_the_covariance_whatever_the_order() -> None:
    q = some(Layout(("a", "b", "c"), ((2,), (2,), (1,))))
    part = q.restrict(Layout(("c", "a"), ((1,), (2,))))
    index = torch.tensor([4, 0, 1])
    assert torch.allclose(part.precision.inverse(), q.precision.inverse()[:, index][:, :, index], rtol=1e-10)
    assert torch.equal(part.mean, q.mean[:, index])
    assert q.restrict(q.layout) is q


def test_a_prior_with_points_is_refused() -> None:
    prior = MeanField(LAYOUT, torch.zeros(1, 3), torch.tensor([[0.0, 0.0, -torch.inf]]))
    with pytest.raises(VclError, match="no points, but the prior of 'b' has variance 0"):
        FullGaussian.from_prior(prior)
    with pytest.raises(VclError, match="no points, but the prior of 'b' has variance 0"):
        FullGaussian.from_prior(prior.restrict(Layout(("a",), ((2,),)))).grow(prior)


def test_a_start_is_wide_and_independent_where_it_is_asked_to_be() -> None:
    q = some()
    mean = q.mean + 1
    start = q.start(mean, {"b": 0}, 0.25)
    assert torch.equal(start.mean, mean)
    assert torch.allclose(start.precision[:, :2, :2], q.restrict(Layout(("a",), ((2,),))).precision)
    assert start.precision[:, 2].tolist() == [[0, 0, 4]] * 2
    assert torch.equal(q.start(mean, {}, 0.25).precision, q.precision)
    assert torch.equal(q.start(mean, {"a": 0, "b": 0}, 0.25).precision, 4 * torch.eye(3).double().expand(2, 3, 3))


class TestFit:
    @pytest.mark.parametrize("climbs", ["log_var", "log_sd"])
    def test_parameters_and_back(self, climbs: str) -> None:
        fit, q = some().bind(all_held(LAYOUT), climbs), some(seed=2)
        back = fit.belief(fit.parameters(q))
        assert torch.equal(back.mean, q.mean)
        assert torch.allclose(back.precision, q.precision, rtol=1e-10)
        assert not fit.parameters(q)[1].triu(1).any()

    def test_the_diagonal_is_the_log_of_a_conditional_variance_or_deviation(self) -> None:
        q = some()
        first = q.precision.inverse()[:, 0, 0].log()  # the first coordinate is given nothing
        log_var, log_sd = (q.bind(all_held(LAYOUT), climbs).parameters(q)[1] for climbs in ("log_var", "log_sd"))
        assert torch.allclose(log_var[:, 0, 0], first)
        assert torch.allclose(log_sd[:, 0, 0], 0.5 * first)

    def test_the_kl_is_torchs_and_that_to_itself_is_nothing(self) -> None:
        previous, q = some(), some(seed=2)
        fit = previous.bind(all_held(LAYOUT), "log_var")
        assert torch.allclose(fit.kl(fit.parameters(q)), kl_divergence(normal(q), normal(previous)), rtol=1e-10)
        assert torch.allclose(fit.kl(fit.parameters(previous)), torch.zeros(2).double(), atol=1e-12)

    def test_draws_are_those_of_the_covariance(self) -> None:
        fit, q = some().bind(all_held(LAYOUT), "log_sd"), some(seed=2)
        theta = fit.draw(fit.parameters(q), torch.eye(3).double().expand(2, 3, 3)) - q.mean.unsqueeze(1)
        assert torch.allclose(theta.mT @ theta, q.precision.inverse(), rtol=1e-10)
        assert fit.noise == 3

    def test_points_and_free_parameters_are_refused(self) -> None:
        a, b = Layout(("a",), ((2,),)), Layout(("b",), ((1,),))
        for roles in (Roles(a, a, b), Roles(a, LAYOUT, NONE)):
            with pytest.raises(VclError, match="over every parameter, but 'b' is a point or free; give"):
                some().bind(roles, "log_var")
        with pytest.raises(VclError, match="unknown climbs 'var'"):
            some().bind(all_held(LAYOUT), "var")


class Bound:
    """L(q) = E_q log p(D | theta) - KL(q || previous) for a linear model, without noise.

    The log-likelihood is quadratic, so its expectation is its mean at theta = m +- sqrt(D) L e_d exactly.
    """

    def __init__(self, model: LinearGaussian, fit: FullFit) -> None:
        self.model, self.fit = model, fit
        size = fit.noise
        self.ends = size**0.5 * torch.cat([torch.eye(size), -torch.eye(size)]).double()

    def noise(self, batch: Data) -> int:
        return 0

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        theta = self.fit.draw(parameters, self.ends.expand(len(noise), -1, -1))
        X, y = self.model.design(batch)
        expected = -0.5 * (y.unsqueeze(1) - theta @ X.mT).square().sum(-1).mean(1) / self.model.noise**2
        return expected - self.fit.kl(parameters)


def test_variational_inference_with_correlations_ends_at_the_exact_posterior() -> None:
    """Two tasks of correlated inputs, two runs from different starts; mean field cannot get there.

    The best mean field has the posterior's mean and the diagonal of its precision, and so is
    1/2 ( sum_d log Lambda_dd - log det Lambda ) away from it.
    """
    model = LinearGaussian(4, 0.5, 2.0)
    q = FullGaussian.from_prior(model.prior({}).to(torch.float64).expand(2))
    tasks = [linear_data(12, seed, runs=2) for seed in (0, 1)]
    for data in tasks:
        fit = q.bind(all_held(q.layout), "log_var")
        start = q.start(q.mean + torch.tensor([[0.1], [-0.3]]), {"w": 0} if data is tasks[0] else {}, 0.01)
        q = fit.belief(
            ascend(Bound(model, fit), fit.parameters(start), data, Ascent(3000, None, 0.1, "cosine"), Rng((0, 1)))
        )
    X, y = (torch.cat([getattr(data, part)[0] for data in tasks]) for part in ("x", "y"))
    mean, precision = linear_posterior(X, y, 0.5, 2.0)
    for run in range(2):
        assert torch.allclose(q.mean[run], mean, atol=1e-6)
        assert torch.allclose(q.precision[run].inverse(), precision.inverse(), rtol=1e-4, atol=1e-8)
    exact = MultivariateNormal(mean, precision_matrix=precision)
    assert (kl_divergence(normal(q), exact.expand([2])) < 1e-7).all()
    best_mean_field = 0.5 * (precision.diagonal().log().sum() - precision.logdet())
    assert best_mean_field > 0.5
