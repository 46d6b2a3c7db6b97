"""Importance sampling and sequential Monte Carlo against posteriors that are known: in closed form, and on a grid."""

from collections.abc import Callable
from math import log, pi
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from made import blob_tasks, blobs, linear_data, small_network
from oracles import linear_posterior
from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField, standard_normal
from vcl.coresets import Nothing
from vcl.data import Data, dataset
from vcl.engines.general import General
from vcl.engines.structure import Opaque, Structure
from vcl.errors import NonFiniteError, VclError
from vcl.models import LinearGaussian
from vcl.models.base import Heads, Role
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import Particles, SequentialMonteCarlo, Target, hmc
from vcl.projections.hmc import LogLikelihoods, Swarm, draw, move
from vcl.projections.particle_weights import moments, next_rise, systematic, weigh
from vcl.recursion import Method, Task, initial, learn

MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)
TASK = linear_data(20, seed=0)
SEEDS = tuple(range(12))


def of(model: Any, data: Data, heads: Heads | None = None) -> Target[MeanField]:
    prior = model.prior(heads or {})
    return Target(prior.expand(data.runs).to(data.x.dtype if heads is None else torch.float32), model, data, prior)


def linear(runs: int = 1, data: Data = TASK, model: LinearGaussian = MODEL) -> Target[MeanField]:
    return of(model, dataset(data.x[0], data.y[0], runs=runs))


def exact(data: Data = TASK, model: LinearGaussian = MODEL) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variances of the posterior, and the log marginal likelihood of y ~ N(0, v0 X X^T + s^2 I)."""
    X, y = data.x[0], data.y[0]
    mean, precision = linear_posterior(X, y, model.noise, model.prior_var)
    covariance = model.prior_var * X @ X.T + model.noise**2 * torch.eye(len(y), dtype=X.dtype)
    evidence = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y)
    return mean, torch.linalg.inv(precision).diagonal(), evidence


def errors(particles: Particles) -> tuple[Tensor, Tensor, Tensor]:
    """Of the mean (in posterior deviations) and the variance (as a ratio) [R, D], and of log Z [R]."""
    mean, var, evidence = exact()
    q = particles.refit()
    return (q.mean - mean) / var.sqrt(), q.log_var.exp() / var - 1, particles.log_evidence - evidence


def agree(q: MeanField, known: tuple[Tensor, Tensor, Tensor], K: int) -> None:
    """Assert that q has the known mean and variance within 4 standard errors of K independent draws."""
    mean, var, _ = known
    assert ((q.mean - mean) / var.sqrt()).abs().max() < 4 * K**-0.5
    assert (q.log_var.exp() / var - 1).abs().max() < 4 * (2 / K) ** 0.5


class TestAgainstTheExactPosterior:
    """Averages over 12 independent runs. The prior is broad: 20 examples take 13 stages."""

    def test_mean_variance_and_evidence_are_within_their_monte_carlo_errors(self) -> None:
        K = 400
        particles = SequentialMonteCarlo(K).sample(linear(12), Rng(SEEDS))
        mean, var, evidence = errors(particles)
        stages = particles.stages.double().mean()
        # Standard errors of K independent draws: 1/sqrt(K) of a mean, sqrt(2/K) of a variance.
        assert mean.square().mean().sqrt() < 1.5 * K**-0.5
        assert var.square().mean().sqrt() < 1.5 * (2 / K) ** 0.5
        assert mean.mean(0).abs().max() < 4 * (12 * K) ** -0.5
        assert var.mean(0).abs().max() < 4 * (2 / (12 * K)) ** 0.5
        assert evidence.mean().abs() < 4 * evidence.std() / 12**0.5
        # Where the effective sample size is half of K, a stage's mean weight has variance 1/K, relative to its square.
        assert evidence.square().mean().sqrt() < 1.5 * (stages / K) ** 0.5

    def test_errors_fall_as_particles_grow(self) -> None:
        """As 1/sqrt(K): 48 errors' root mean square is known to about 10 %, and few moves leave copies alike."""
        for K in (50, 200, 800, 3200):
            mean, var, _ = errors(SequentialMonteCarlo(K, moves=2, leapfrog=4).sample(linear(12), Rng(SEEDS)))
            assert 0.7 < mean.square().mean().sqrt() * K**0.5 < 1.6
            assert 0.7 < var.square().mean().sqrt() * (K / 2) ** 0.5 < 1.6

    def test_importance_sampling_is_right_where_the_data_says_little(self) -> None:
        data = TASK.take(torch.arange(3)[None])
        model = LinearGaussian(4, noise=4.0, prior_var=1.0)
        particles = SequentialMonteCarlo(4000, anneal=False).sample(linear(12, data, model), Rng(SEEDS))
        mean, var, evidence = exact(data, model)
        q = particles.refit()
        effective = particles.ess.mean().item()
        assert 500 < effective < 3500
        assert ((q.mean - mean) / var.sqrt()).square().mean().sqrt() < 2 * effective**-0.5
        assert (q.log_var.exp() / var - 1).square().mean().sqrt() < 2 * (2 / effective) ** 0.5
        assert (particles.log_evidence - evidence).square().mean().sqrt() < 2 * effective**-0.5
        assert particles.log_weight.exp().sum(1).tolist() == pytest.approx([1.0] * 12)
        assert torch.allclose(particles.ess, 1 / particles.log_weight.exp().square().sum(1))

    def test_local_refit_of_a_posterior_with_one_mode_is_the_same_posterior(self) -> None:
        q = SequentialMonteCarlo(1000, moves=10, leapfrog=5, refit="local")(linear(4), Rng(SEEDS[:4]))
        agree(q, exact(), 1000)

    def test_what_one_task_leaves_is_what_the_next_begins_with(self) -> None:
        """One example after another along the axes, where the mean-field refit loses nothing."""
        x = torch.diag(torch.tensor([0.5, 1.0, 1.5, 2.0]).double())
        parts = dataset(x, x.sum(1)).divide(torch.arange(2)[None])
        project, target = SequentialMonteCarlo(2000), linear(1, parts[0])
        q = project(target, Rng((0,)))
        q = project(target._replace(q=q, data=parts[1]), Rng((1,)))
        agree(q, exact(dataset(x, x.sum(1))), 2000)


class Logistic:
    """p(y = +-1 | w, x) = sigmoid(y w^T x), w ~ N(0, I): no closed form, two parameters."""

    latent = 0

    def structure(self, heads: tuple[str, ...]) -> Structure:
        return Opaque()

    def role(self, name: str) -> Role:
        return "random"

    def prior(self, heads: Heads) -> MeanField:
        return standard_normal(Layout(("w",), ((2,),)))

    def log_lik(self, params: Params, data: Data) -> Tensor:
        return F.logsigmoid(data.y * (data.x @ params["w"]))

    def predict(self, params: Params, x: Tensor, head: str) -> Tensor:
        p = torch.sigmoid(x @ params["w"])
        return torch.stack([1 - p, p], dim=-1)

    def check(self, data: Data, heads: Heads) -> None: ...


@pytest.mark.parametrize("anneal", [True, False])
def test_logistic_regression_against_a_grid(anneal: bool) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=g, dtype=torch.float64) @ torch.tensor([[1.0, 0.8], [0.0, 0.6]]).double()
    y = 2.0 * (torch.rand(30, generator=g) < torch.sigmoid(2 * x[:, 0] - x[:, 1])) - 1
    # All of the posterior on a grid: its cells' masses give every moment and the evidence.
    axis = torch.linspace(-6, 6, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    log_joint = F.logsigmoid(y * (grid @ x.T)).sum(1) - 0.5 * grid.square().sum(1) - log(2 * pi)
    evidence = log_joint.logsumexp(0) + 2 * log(12 / 600)
    mass = log_joint.softmax(0)
    mean = mass @ grid
    var = mass @ (grid - mean).square()
    particles = SequentialMonteCarlo(2000, anneal).sample(
        of(Logistic(), dataset(x, y.double(), runs=5)), Rng(SEEDS[:5])
    )
    q = particles.refit()
    error = 4 * float(particles.ess.min()) ** -0.5
    assert ((q.mean - mean) / var.sqrt()).abs().max() < error
    assert (q.log_var.exp() / var - 1).abs().max() < 1.5 * error
    assert (particles.log_evidence - evidence).abs().max() < 1.5 * error


class TestCollapse:
    SHARP = LinearGaussian(inputs=4, noise=0.01, prior_var=2.0)

    def test_importance_sampling_says_so_and_annealing_goes_there(self) -> None:
        target = linear(2, model=self.SHARP)
        words = r"effective sample size of 1\.0 of 500 particles, below min_ess=10, .*anneal=True.* \(seed 7, 9\)\."
        with pytest.raises(VclError, match=words):
            SequentialMonteCarlo(500, anneal=False)(target, Rng((7, 9)))
        particles = SequentialMonteCarlo(2000).sample(target, Rng((7, 9)))
        mean, var, evidence = exact(model=self.SHARP)
        agree(particles.refit(), (mean, var, evidence), 2000)
        assert (particles.log_evidence - evidence).abs().max() < 4 * float(particles.stages.max() / 2000) ** 0.5

    def test_without_moves_too_few_distinct_particles_are_left(self) -> None:
        with pytest.raises(VclError, match=r"only \d distinct particles of 100 are left at temperature .*more moves"):
            SequentialMonteCarlo(100, moves=0)(linear(), Rng((0,)))

    def test_a_ladder_that_stands_still_says_so(self) -> None:
        target = linear(model=LinearGaussian(4, noise=1e-9, prior_var=2.0))
        with pytest.raises(VclError, match=r"ladder is stuck at 0 of 1 \(a step of .*more particles"):
            SequentialMonteCarlo(100)(target, Rng((0,)))

    def test_likelihoods_that_are_no_numbers_weigh_nothing(self) -> None:
        """Half of the draws have no likelihood and the others go on; where all have none, it is an error."""

        class HalfBroken(Logistic):
            limit = 0.0

            def log_lik(self, params: Params, data: Data) -> Tensor:
                return F.logsigmoid(data.y * (data.x @ params["w"])) + (params["w"][0] - self.limit).log() * 0

        data = dataset(torch.ones(4, 2).double(), torch.ones(4).double())
        particles = SequentialMonteCarlo(400, threshold=0.3).sample(of(HalfBroken(), data), Rng((0,)))
        assert (particles.theta[..., 0] > 0).all()
        HalfBroken.limit = 100.0
        with pytest.raises(NonFiniteError, match="finite at only 0 of 400 draws from q; scale the inputs"):
            SequentialMonteCarlo(400).sample(of(HalfBroken(), data), Rng((0,)))


class TestParts:
    def test_the_next_temperature_has_the_wanted_effective_sample_size_in_each_run(self) -> None:
        log_lik = torch.randn(3, 200, generator=torch.Generator().manual_seed(0)).double() * torch.tensor(
            [[0.1], [5.0], [1e4]]
        )
        rise = next_rise(log_lik, torch.tensor([0.75, 1.0, 1.0]).double(), 0.5)
        assert rise[0] == 0.75, "a run whose likelihoods hardly differ goes all the way"
        assert weigh(rise[:, None] * log_lik)[2][1:].tolist() == pytest.approx([100, 100], rel=1e-6)
        assert rise[1] / rise[2] > 500

    def test_weights_are_normalised_and_equal_ones_are_worth_all_particles(self) -> None:
        log_weight = torch.tensor([[-1000.0, -1000.0], [0.0, -torch.inf], [log(3.0), 0.0]]).double()
        normalised, log_mean, ess = weigh(log_weight)
        assert normalised.exp().tolist() == [pytest.approx(row) for row in ([0.5, 0.5], [1, 0], [0.75, 0.25])]
        assert log_mean.tolist() == pytest.approx([-1000, log(0.5), log(2)])
        assert ess.tolist() == pytest.approx([2, 1, 1 / (0.75**2 + 0.25**2)])

    def test_systematic_resampling_keeps_each_particle_about_as_often_as_it_weighs(self) -> None:
        weight = torch.rand(5, 50, generator=torch.Generator().manual_seed(0)).double()
        weight = weight / weight.sum(1, keepdim=True)
        chosen = systematic(weight, Rng((0, 1, 2, 3, 4)))
        counts = torch.stack([torch.bincount(row, minlength=50) for row in chosen])
        assert (counts - 50 * weight).abs().max() < 1
        assert not torch.equal(counts[0], counts[1])
        many = Rng(tuple(range(2000)))
        average = torch.stack([torch.bincount(row, minlength=4) for row in systematic(
            torch.tensor([[0.1, 0.2, 0.3, 0.4]]).double().expand(2000, -1), many)]).double().mean(0)  # fmt: skip
        assert torch.allclose(average, torch.tensor([0.4, 0.8, 1.2, 1.6]).double(), atol=0.04), "without bias"

    def test_the_refit_has_weighted_means_and_unbiased_variances(self) -> None:
        theta = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        weight = torch.tensor([[0.2] * 5, [0.6, 0.4, 0, 0, 0]]).double()
        layout = Layout(("w",), ((3,),))
        q = Particles(layout, theta, weight.log(), *(torch.zeros(2),) * 4).refit()
        assert torch.allclose(q.mean[0], theta[0].mean(0))
        assert torch.allclose(q.log_var[0].exp(), theta[0].var(0)), "over K - 1"
        assert torch.allclose(q.mean[1], 0.6 * theta[1, 0] + 0.4 * theta[1, 1])
        # sum_k w_k (theta_k - m)^2 = 0.24 gap^2, over 1 - 0.6^2 - 0.4^2 = 0.48: half the squared gap, as of two draws.
        assert torch.allclose(q.log_var[1].exp(), (theta[1, 0] - theta[1, 1]).square() / 2)

    def test_the_kernel_leaves_the_tempered_posterior_where_it_is(self) -> None:
        """Exact draws of q p^beta are moved, badly preconditioned and at a rough step: their moments stay."""
        target, beta, K = linear(), 0.3, 20_000
        X, y = TASK.x[0], TASK.y[0]
        mean, precision = linear_posterior(X * beta**0.5, y * beta**0.5, 0.5, 2.0)
        upper = torch.linalg.cholesky(precision).T
        noise = torch.randn(K, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        theta = mean + torch.linalg.solve_triangular(upper, noise.T, upper=True).T
        likelihoods = LogLikelihoods(MODEL, target.q.layout, TASK)
        swarm, everyone = likelihoods(theta[None]), torch.zeros(1, K, dtype=torch.bool)
        step, scale = torch.tensor([0.3]).double(), torch.linalg.inv(precision).diagonal().sqrt()[None]
        for turn in range(4):
            tempered = torch.tensor([beta]).double()
            swarm, moved, _ = move(swarm, tempered, target.q.factor(), likelihoods, scale, step, 3, Rng((turn,)))
            everyone |= moved
            assert 0.2 < moved.double().mean() < 0.98, "so that refusing matters"
        assert everyone.double().mean() > 0.9
        after, var = moments(swarm.theta, torch.full((1, K), 1 / K).double())
        exact_var = torch.linalg.inv(precision).diagonal()
        assert ((after - mean) / exact_var.sqrt()).abs().max() < 4 * K**-0.5
        assert (var / exact_var - 1).abs().max() < 4 * (2 / K) ** 0.5

    def test_the_step_follows_the_acceptance_of_its_own_run(self) -> None:
        target = linear(2)
        likelihoods = LogLikelihoods(MODEL, target.q.layout, target.data)
        swarm = likelihoods(target.q.draw(draw(target.q.mean[:, None].expand(2, 50, 4), Rng((0, 1)))[0]))
        steps = torch.tensor([1e-4, 10.0]).double()
        one = torch.ones(2).double()
        _, moved, after = move(
            swarm, one, target.q.factor(), likelihoods, torch.ones(2, 4).double(), steps, 3, Rng((0, 1))
        )
        assert moved.double().mean(1).tolist() == [1, 0]
        assert after[0] > steps[0]
        assert after[1] < steps[1]

    @pytest.mark.parametrize("network", [True, False])
    def test_blocks_change_nothing(self, network: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        target = of(small_network(3), blobs(10, 0, "t", "h", 2), {"h": 2}) if network else linear(2)
        theta = target.q.draw(draw(target.q.mean[:, None].expand(2, 7, -1), Rng((0, 1)))[0])
        likelihoods = LogLikelihoods(target.model, target.q.layout, target.data)
        whole, plain = likelihoods(theta), likelihoods(theta, gradient=False)
        for rows in (2 * 10 * 3, 2 * 4, 1):
            monkeypatch.setattr(hmc, "ROWS_IN_FLIGHT", rows)
            assert all(torch.allclose(a, b, rtol=1e-4) for a, b in zip(likelihoods(theta), whole, strict=True))
        assert torch.allclose(plain.log_lik, whole.log_lik)
        one = Data(target.data.x[1], target.data.y[1], target.data.source[1], target.data.sources)
        brute = target.model.log_lik(target.q.layout.split(theta[1, 4]), one).sum()
        assert whole.log_lik[1, 4].item() == pytest.approx(brute.item(), rel=1e-5)

    def test_a_swarm_takes_and_mixes_whole_particles(self) -> None:
        a = Swarm(torch.arange(6.0).view(1, 3, 2), torch.arange(3.0).view(1, 3), torch.arange(6.0).view(1, 3, 2) + 10)
        taken = a.take(torch.tensor([[2, 2, 0]]))
        assert taken.theta[0].tolist() == [[4, 5], [4, 5], [0, 1]]
        assert taken.log_lik[0].tolist() == [2, 2, 0]
        mixed = a.where(torch.tensor([[True, False, True]]), taken)
        assert mixed.gradient[0].tolist() == [[10, 11], [14, 15], [14, 15]]


def test_runs_of_a_stack_are_the_same_runs_alone_each_at_its_own_temperatures() -> None:
    """Run 1 has data of its own that takes fewer stages, so it idles while the others go on."""
    easy = linear_data(20, seed=0)
    data = Data(
        torch.cat([TASK.x, 0.1 * easy.x, TASK.x]),
        torch.cat([TASK.y, 0.1 * easy.y, TASK.y]),
        torch.zeros(3, 20, dtype=torch.int64),
        TASK.sources,
    )
    project = SequentialMonteCarlo(60, refit="local")
    told: list[Any] = []
    stack = project.sample(of(MODEL, data), Rng((5, 6, 7)), told.append)
    assert stack.stages[1] < stack.stages[0]
    assert len(told) == int(stack.stages.max())
    fit = project(of(MODEL, data), Rng((5, 6, 7)))
    for run, seed in enumerate((5, 6, 7)):
        mine = Data(data.x[run : run + 1], data.y[run : run + 1], data.source[:1], data.sources)
        alone = project.sample(of(MODEL, mine), Rng((seed,)))
        for together, single in zip(stack[1:], alone[1:], strict=True):
            assert torch.allclose(together[run], single[0], rtol=1e-8)
        assert torch.allclose(fit.mean[run], project(of(MODEL, mine), Rng((seed,))).mean[0], rtol=1e-8)


def test_progress_tells_the_effective_sample_size_of_each_run() -> None:
    told: list[Any] = []
    particles = SequentialMonteCarlo(100).sample(linear(2), Rng((0, 1)), told.append)
    assert {step.what for step in told} == {"SMC, effective sample size"}
    assert [step.epoch for step in told] == sorted(step.epoch for step in told)
    assert (told[0].epoch, told[-1].epoch, told[-1].epochs) == (1, 100, 100)
    assert told[0][3].tolist() == pytest.approx([50, 50], rel=1e-6)
    assert torch.equal(torch.stack([step[3] for step in told]).min(0).values, particles.ess)


def test_no_data_leaves_q_and_its_draws() -> None:
    target = linear(2)._replace(data=linear_data(5, 0, runs=2).empty())
    assert SequentialMonteCarlo(50)(target, Rng((0, 1))) is target.q
    particles = SequentialMonteCarlo(5000).sample(target, Rng((0, 1)))
    assert particles.log_evidence.tolist() == [0, 0]
    agree(particles.refit(), (torch.zeros(4), torch.full((4,), 2.0), torch.tensor(0.0)), 5000)
    model, tasks = small_network(3), blob_tasks(1, 2)
    nothing = of(model, tasks[0].train.empty(), {"h0": 2})
    assert SequentialMonteCarlo(50).sample(nothing, Rng((0, 1))).layout == nothing.q.layout.touched([])


def test_too_many_parameters_are_refused_before_any_work() -> None:
    target = of(small_network(8), blobs(10, 0, "t", "h0"), {"h0": 2, "h1": 400})
    words = "74 parameters are too many for particles: the limit is max_parameters=73; take a smaller network or"
    with pytest.raises(VclError, match=words):
        SequentialMonteCarlo(50, max_parameters=73)(target, Rng((0,)), report=_never)
    few = SequentialMonteCarlo(20, moves=1, leapfrog=2, max_parameters=74, min_ess=2)
    assert few(target, Rng((0,))).mean.isfinite().all(), "heads without data do not count"


def _never(progress: object) -> None:
    raise AssertionError("work was done")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"particles": 1}, "particles is 1; give at least 2"),
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"threshold": 1.0}, "threshold is 1.0"),
        ({"moves": -1}, "moves is -1; give 0 or more"),
        ({"leapfrog": 0}, "leapfrog is 0; give at least 1"),
        ({"particles": 100, "min_ess": 51.0}, "min_ess is 51; give a number above 1 and up to 50, .*100 particles"),
        ({"min_ess": 1.0}, "min_ess is 1; give a number above 1"),
        ({"refit": "locally"}, "did you mean 'local'"),
        ({"refit": "local", "anneal": False}, "refit is 'local' with anneal=False"),
        ({"refit": "local", "moves": 0}, "refit is 'local' .* moves=0"),
    ],
)
def test_settings_that_cannot_be_run_are_refused_before_any_work(settings: dict[str, Any], words: str) -> None:
    calls: list[Callable[..., object]] = [SequentialMonteCarlo(**settings), SequentialMonteCarlo(**settings).sample]
    for call in calls:
        with pytest.raises(VclError, match=words):
            call(linear(), Rng((0,)), _never)


def accuracy(probabilities: Tensor, task: Task) -> Tensor:
    return (probabilities.argmax(-1) == task.test.y).double().mean(1)


class TestOnNetworks:
    def test_heads_without_data_stay_bitwise(self) -> None:
        model, heads = small_network(3), {"h0": 2, "h1": 2}
        target = of(model, blobs(20, 1, "t", "h1"), heads)
        after = SequentialMonteCarlo(30, moves=1, leapfrog=3)(target, Rng((0,)))
        for field in (1, 2):
            before, now = (target.q.layout.split(part[field]) for part in (target.q, after))
            kept = {name for name in before if torch.equal(before[name], now[name])}
            assert kept == {"heads.h0.weight", "heads.h0.bias"}

    def test_two_tasks_in_sequence_are_learned_and_kept(self) -> None:
        model, tasks, seeds = small_network(4), blob_tasks(2, runs=4), (0, 1, 2, 3)
        project = SequentialMonteCarlo(100, moves=2, leapfrog=5, refit="local")
        method = Method(project, Nothing(), project)
        *_, state = learn(initial(model, method, 4), tasks, model, method, Rng(seeds))
        for task, head in zip(tasks, ("h0", "h1"), strict=True):
            right = accuracy(predict(state.predictive[head], model, task.test.x, head, Rng(seeds)), task)
            assert right.mean() > 0.9, (head, right)

    def test_the_mean_over_all_modes_predicts_worse_than_the_particles_and_the_local_refit(self) -> None:
        """Why ``refit="local"`` is there: hidden units change places between particles, and means wash them out."""
        model, (task,), seeds = small_network(4), blob_tasks(1, runs=4), (0, 1, 2, 3)
        target = of(model, task.train, {"h0": 2})
        project = SequentialMonteCarlo(200, moves=2, leapfrog=5)
        particles = project.sample(target, Rng(seeds))

        mixture = General(model, particles.layout).predictions(particles.theta, task.test.x, "h0").mean(1)
        everywhere = predict(particles.refit(), model, task.test.x, "h0", Rng(seeds))
        around = project.around_one(particles, target, Rng(seeds))
        local = predict(around.refit(), model, task.test.x, "h0", Rng(seeds))
        assert accuracy(mixture, task).min() > 0.95
        assert accuracy(everywhere, task).mean() < 0.8
        assert accuracy(local, task).mean() > 0.95
        assert (around.refit().log_var < particles.refit().log_var).double().mean() > 0.5
