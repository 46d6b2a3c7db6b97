"""Variational KL against models whose mean-field optimum and lower bound are known exactly."""

from math import exp, log
from typing import Any

import pytest
import torch

from made import blob_tasks, blobs, linear_data, small_network
from oracles import linear_elbo, linear_posterior
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.mean_field import MeanField, kl
from vcl.beliefs.mean_field_fit import CLIMBS, Climbs
from vcl.coresets import Nothing
from vcl.data import Data, dataset
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.fitting.step import by_autograd
from vcl.models import LinearGaussian, Network
from vcl.models.likelihoods import Normal
from vcl.ops.rng import Rng
from vcl.projections import Exact, Target, VariationalKL
from vcl.projections.point import maximum_likelihood
from vcl.projections.vi import Elbo
from vcl.recursion import Method, Task, initial, learn

MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)


def target(data: Data, runs: int = 1) -> Target[MeanField]:
    prior = MODEL.prior({})
    return Target(prior.expand(runs).to(data.x.dtype), MODEL, data, prior)


def as_network() -> Network:
    """The same regression written as a network, so that the local estimator has a linear layer to work on."""
    return Network(torch.nn.Identity(), 4, Normal(0.5), prior_var=2.0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_it_finds_the_mean_field_optimum_of_a_linear_gaussian_model(estimator: Estimator) -> None:
    """Mean of the exact posterior, and precision equal to the diagonal of the exact precision (paper, appendix F)."""
    data = linear_data(40, seed=0)
    mean, precision = linear_posterior(data.x[0], data.y[0], noise=0.5, prior_var=2.0)
    project = VariationalKL(Ascent(3000, None, 0.1, "cosine"), draws=30, estimator=estimator, ml_start=False)
    q = project(target(data), Rng((0,)))
    assert torch.allclose(q.mean[0], mean, atol=0.01)
    assert torch.allclose((-q.log_var[0]).exp(), precision.diagonal(), rtol=0.05)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_estimate_is_the_exact_lower_bound_on_average(estimator: Estimator) -> None:
    """Against all expectations by hand, for a network with a bias whose variance is shut off."""
    model, data = as_network(), linear_data(12, seed=1)
    prior = model.prior({"all": 1}).to(torch.float64)
    g = torch.Generator().manual_seed(2)
    mean = torch.randn(1, 5, generator=g, dtype=torch.float64)
    log_var = torch.randn(1, 5, generator=g, dtype=torch.float64) - 2
    draws = 40_000
    elbo = Elbo(model, prior, draws, estimator)
    noise = torch.randn(1, elbo.noise(data), generator=g, dtype=torch.float64)
    estimate = elbo((mean, log_var), data, data.size, noise).item()
    ones = torch.cat([data.x[0], torch.ones(12, 1, dtype=torch.float64)], dim=1)
    exact = linear_elbo(ones, data.y[0], 0.5, mean[0], log_var[0].exp(), 2.0).item()
    assert estimate == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_both_estimators_agree_with_brute_force_on_a_network(estimator: Estimator) -> None:
    """sum_n E_q log p by drawing whole weight vectors, one at a time, minus the textbook KL."""
    model, data = small_network(hidden=5), blobs(10, 0, "t", "h")
    prior = model.prior({"h": 2})
    g = torch.Generator().manual_seed(0)
    q = MeanField(
        prior.layout, 0.5 * torch.randn(1, prior.layout.size, generator=g), torch.full((1, prior.layout.size), -2.0)
    )
    theta = q.draw(torch.randn(1, 20_000, prior.layout.size, generator=g))[0]
    one = Data(data.x[0], data.y[0], data.source[0], data.sources)
    brute = torch.vmap(lambda flat: model.log_lik(prior.layout.split(flat), one).sum())(theta).mean() - kl(q, prior)[0]
    elbo = Elbo(model, prior, 20_000, estimator)
    noise = torch.randn(1, elbo.noise(data), generator=g)
    assert elbo((q.mean, q.log_var), data, 10, noise).item() == pytest.approx(brute.item(), rel=0.01)


def test_a_batch_estimates_the_bound_of_all_data_and_the_kl_is_not_rescaled() -> None:
    """The traps: KL divided by the number of parameters, averaged over weights, or scaled with the batch."""
    model, data = as_network(), linear_data(12, seed=1)
    prior = model.prior({"all": 1}).to(torch.float64)
    q = MeanField(prior.layout, prior.mean + 0.7, prior.log_var - 40)  # hardly any variance, so no Monte Carlo error
    elbo = Elbo(model, prior, 1, "weights")

    def value(part: Data) -> float:
        return elbo((q.mean, q.log_var), part, 12, torch.zeros(1, elbo.noise(part), dtype=torch.float64)).item()

    whole = value(data)
    halves = [value(data.take(torch.arange(first, first + 6)[None])) for first in (0, 6)]
    assert sum(halves) / 2 == pytest.approx(whole, rel=1e-12)
    ones = torch.cat([data.x[0], torch.ones(12, 1, dtype=torch.float64)], dim=1)
    exact = linear_elbo(ones, data.y[0], 0.5, q.mean[0], q.log_var[0].exp(), 2.0).item()
    assert whole == pytest.approx(exact, rel=1e-9)


def test_trap_kl_divided_by_the_number_of_parameters_would_give_another_posterior() -> None:
    """With the right weighting the posterior variance of one repeated observation is 1 / (1/v0 + N/s^2)."""
    model = LinearGaussian(inputs=1, noise=1.0, prior_var=1.0)
    x, y = torch.ones(20, 1, dtype=torch.float64), torch.ones(20, dtype=torch.float64)
    from vcl.data import dataset

    prior = model.prior({})
    project = VariationalKL(Ascent(1500, None, 0.05, "cosine"), draws=20, ml_start=False)
    q = project(Target(prior.to(torch.float64), model, dataset(x, y), prior), Rng((0,)))
    assert q.log_var.exp().item() == pytest.approx(1 / 21, rel=0.05)
    assert q.mean.item() == pytest.approx(20 / 21, abs=0.01)


def test_no_data_returns_q_itself() -> None:
    nothing = linear_data(5, 0).empty()
    problem = target(nothing)
    assert VariationalKL()(problem, Rng((0,))) is problem.q


def test_the_first_task_starts_at_the_maximum_likelihood_solution_and_later_ones_at_q() -> None:
    model, tasks = small_network(), blob_tasks(2)
    project = VariationalKL(Ascent(15, None, 0.02), draws=1)
    prior = model.prior({"h0": 2})
    first = project.first(prior, Target(prior, model, tasks[0].train, prior), Rng((0,)), lambda _: None)
    assert torch.allclose(first.log_var, torch.tensor(-6.0)), "log variance -6 (the authors' code), not variance 1e-6"
    assert model.log_lik(prior.layout.split(first.mean[0]), _one(tasks[0].train)).exp().mean() > 0.7
    no_start = VariationalKL(Ascent(15, None, 0.02), ml_start=False)
    random = no_start.first(prior, Target(prior, model, tasks[0].train, prior), Rng((0,)), lambda _: None)
    assert random.mean.abs().max() <= 0.2
    climbed = maximum_likelihood(
        model, prior.layout, random.mean, tasks[0].train, Ascent(15, None, 0.02), Rng((0,)).at("ml")
    )
    assert torch.equal(climbed, first.mean)

    q = MeanField(prior.layout, first.mean, first.log_var + 1).grow(model.prior({"h0": 2, "h1": 2}))
    part = q.restrict(q.layout.touched(["h1"]))
    later = project.first(
        part, Target(q, model, tasks[1].train, model.prior({"h0": 2, "h1": 2})), Rng((0,)), lambda _: None
    )
    trunk = part.layout.touched([])
    assert torch.equal(part.layout.pick(later.mean, trunk), part.layout.pick(part.mean, trunk))
    assert torch.equal(part.layout.pick(later.log_var, trunk), part.layout.pick(part.log_var, trunk))
    head = part.layout.split(later.mean)["heads.h1.weight"]
    assert head.any(), "a new head starts at small random means, since zero is a saddle point"
    assert head.abs().max() <= 0.2
    assert torch.allclose(part.layout.split(later.log_var)["heads.h1.weight"], torch.tensor(-6.0))


def test_restart_starts_every_task_at_small_random_means_with_q_as_the_prior_only() -> None:
    model, (task,) = small_network(), blob_tasks(1)
    prior = model.prior({"h0": 2})
    q = MeanField(prior.layout, prior.mean + 5, prior.log_var - 3)
    project = VariationalKL(start="restart", init_var=0.01)
    first = project.first(q, Target(q, model, task.train, prior), Rng((0,)), lambda _: None)
    assert first.mean.abs().max() <= 0.2
    assert torch.allclose(first.log_var, torch.tensor(log(0.01)))


def test_trap_the_number_of_future_tasks_or_classes_does_not_leak_into_initialisation() -> None:
    model = small_network()
    project = VariationalKL(ml_start=False)

    def start_of(heads: dict[str, int]) -> torch.Tensor:
        prior = model.prior(heads)
        part = prior.restrict(prior.layout.touched(["h0"]))
        problem = Target(prior, model, blobs(4, 0, "t", "h0"), prior)
        return project.first(part, problem, Rng((0,)), lambda _: None).mean

    assert torch.equal(start_of({"h0": 2}), start_of({"h0": 2, "h1": 7, "h2": 3}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draws": 0}, "draws is 0; give at least 1"),
        ({"init_var": 0.0}, "init_var is 0.0"),
        ({"estimator": "weight"}, "did you mean 'weights'"),
        ({"start": "continu"}, "did you mean 'continue'"),
        ({"ascent": Ascent(epochs=-1)}, "epochs is -1"),
    ],
)
def test_settings_that_cannot_be_run_are_refused_before_any_work(settings: dict[str, object], words: str) -> None:
    with pytest.raises(VclError, match=words):
        VariationalKL(**settings)(target(linear_data(5, 0)), Rng((0,)))  # type: ignore[arg-type]


def test_the_default_initial_variance_is_that_of_the_authors_code() -> None:
    assert VariationalKL().init_var == exp(-6) == pytest.approx(2.5e-3, rel=0.01)


def _one(data: Data) -> Data:
    return Data(data.x[0], data.y[0], data.source[0], data.sources)


@pytest.mark.parametrize("climbs", CLIMBS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_gradient_with_the_kl_written_out_is_torchs(estimator: Estimator, climbs: Climbs) -> None:
    model, data = small_network(hidden=5), blobs(10, 0, "t", "h")
    prior = model.prior({"h": 2}).to(torch.float64)
    data = data._replace(x=data.x.double())
    elbo = Elbo(model, prior, 3, estimator, climbs)
    g = torch.Generator().manual_seed(0)
    at = elbo.parameters(MeanField(prior.layout, *torch.randn(2, 1, prior.layout.size, generator=g).double()))
    noise = torch.randn(1, elbo.noise(data), generator=g).double()
    ours, torchs = elbo.gradient(at, data, 50, noise), by_autograd(elbo, at, data, 50, noise)
    assert torch.allclose(ours.value, torchs.value, rtol=1e-12)
    for mine, other in zip(ours.gradients, torchs.gradients, strict=True):
        assert torch.allclose(mine, other, rtol=1e-10)


class TestTheFullGaussian:
    """Variational inference with the right family finds the exact posterior."""

    def problem(self) -> tuple[LinearGaussian, list[Task]]:
        g = torch.Generator().manual_seed(0)
        mixed = torch.tensor([[1.0, 0.9, 0.0], [0.0, 0.5, 0.4], [0.0, 0.0, 0.6]], dtype=torch.float64)
        tasks = []
        for t in range(2):
            x = torch.randn(20, 3, generator=g, dtype=torch.float64) @ mixed
            y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
            tasks.append(Task(f"t{t}", dataset(x, y + 0.5 * torch.randn(20, generator=g, dtype=torch.float64))))
        return LinearGaussian(3, 0.5, 2.0), tasks

    def end(self, family: str) -> tuple[Any, Any]:
        model, tasks = self.problem()
        ends = []
        for project in (VariationalKL(Ascent(800, None, 0.05, "cosine", 0.3), 20, family=family), Exact()):
            method = Method(project, Nothing())
            state = initial(model, method, 1)
            state = state._replace(propagated=state.propagated.to(torch.float64))
            *_, last = learn(state, tasks, model, method, Rng((0,)))
            ends.append(last.propagated)
        return ends[0], ends[1]

    def test_it_ends_at_the_exact_posterior_over_two_tasks(self) -> None:
        q, exact = self.end("full")
        assert isinstance(q, FullGaussian)
        covariance, true = torch.linalg.inv(q.precision), torch.linalg.inv(exact.precision)
        deviation = true.diagonal(dim1=1, dim2=2).sqrt()
        assert ((q.mean - exact.mean).abs() / deviation).max() < 0.1
        assert ((covariance - true).abs() / (deviation.unsqueeze(2) * deviation.unsqueeze(1))).max() < 0.1

    def test_mean_field_cannot(self) -> None:
        q, exact = self.end("mean-field")
        true = torch.linalg.inv(exact.precision).diagonal(dim1=1, dim2=2)
        assert (q.log_var.exp() / true).min() < 0.5, "its variances are those of the conditionals"

    def test_an_unknown_family_is_refused(self) -> None:
        with pytest.raises(VclError, match="unknown family 'ful': did you mean 'full'"):
            VariationalKL(family="ful").check()
        with pytest.raises(VclError, match=r"unknown family 'point'; accepted: full, mean-field"):
            VariationalKL(family="point").check()
