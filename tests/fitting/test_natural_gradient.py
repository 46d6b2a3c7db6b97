"""Natural gradients against their equations, exact optima, autograd's Hessian and invariances."""

from __future__ import annotations

from dataclasses import replace
from math import cos, exp, log, pi
from typing import Any

import pytest
import torch
from torch import Tensor

from made import blob_tasks, blobs, linear_data, shape_tasks, small_network, small_vae
from oracles import linear_posterior
from vcl.beliefs.mean_field import MeanField
from vcl.coresets import RandomK
from vcl.data import Data, dataset
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError
from vcl.fitting.loop import Ascent, Progress
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.models import LinearGaussian, Network
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.rng import Rng
from vcl.projections import Target, VariationalKL
from vcl.projections.vi import Elbo
from vcl.recursion import Method, Task, initial, learn

NATURAL = NaturalGradient()
MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)


def fitted(project: VariationalKL, model: Any, data: Data, outputs: int = 2) -> MeanField:
    prior = model.prior({source.head: outputs for source in data.sources})
    start = prior.to(data.x.dtype).expand(data.runs)
    q: MeanField = project(Target(start, model, data, prior), Rng(tuple(range(data.runs))))
    return q


@pytest.mark.parametrize("scale", [1, 2])
def test_a_step_is_what_the_equations_say(scale: int) -> None:
    """Written with precisions, in the order of the file's head."""
    g = torch.Generator().manual_seed(0)
    steps, parameters = 7, tuple(torch.randn(2, 2, 5, generator=g, dtype=torch.float64))
    gradients = [tuple(10.0**size * torch.randn(2, 2, 5, generator=g, dtype=torch.float64)) for size in range(-3, 4)]
    mu, s = parameters[0].clone(), (-scale * parameters[1]).exp()
    m, v = torch.zeros_like(mu), torch.zeros_like(mu)
    optimiser = NATURAL.optimiser(steps, scale)(parameters, 1.0)
    for k, (g_mean, g_log) in enumerate(gradients):
        optimiser.step((g_mean, g_log))
        u = -2 * (1 - exp(-75 / steps)) * (1 - k / steps) ** 2 * g_log / scale  # d log sigma^2 = scale d log
        s = s * (1 + u + u**2 / 2)
        gain = max(1 / (k + 1), 0.1)
        v = v + gain * ((g_mean - m) ** 2 - v)
        m = m + gain * (g_mean - m)
        sigma = s**-0.5
        rate = min(1, k / (0.3 * steps)) ** 2 * (1 + cos(pi * k / steps)) / 2
        mu = mu + sigma * (rate * sigma * m / (1 + sigma**2 * v)).clamp(-1, 1)
        torch.testing.assert_close(parameters[0], mu, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close((-scale * parameters[1]).exp(), s, rtol=1e-10, atol=0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_mean_moves_by_one_standard_deviation_at_most(sign: int) -> None:
    """A gradient that stays the same has less and less noise, so that Newton's step grows beyond sigma."""
    steps, mean, log_var = 40, torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[-4.0, 0.0, 2.0]]).double()
    optimiser = NaturalGradient(momentum=0.0).optimiser(steps)((mean, log_var), 1.0)
    sigma, moves = (0.5 * log_var).exp(), []
    for _ in range(steps):
        before = mean.clone()
        optimiser.step((torch.full_like(mean, sign * 1e3), torch.zeros_like(mean)))
        moves.append(sign * (mean - before) / sigma)
    torch.testing.assert_close(torch.stack(moves).amax(0), torch.ones_like(mean), rtol=1e-12, atol=0)


def test_pieces_and_runs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, 101, generator=g)
    gradients = [tuple(torch.randn(2, 3, 101, generator=g)) for _ in range(4)]

    def end(values: Tensor, runs: slice) -> tuple[Tensor, ...]:
        parameters = tuple(part[runs].clone() for part in values)
        optimiser = NATURAL.optimiser(4)(parameters, 1.0)
        for each in gradients:
            optimiser.step(tuple(part[runs].contiguous() for part in each))
        return parameters

    whole = end(start, slice(0, 3))
    for run in range(3):
        alone = end(start, slice(run, run + 1))
        assert all(torch.equal(a[run : run + 1], b) for a, b in zip(whole, alone, strict=True))
    monkeypatch.setattr("vcl.fitting.natural_gradient.PIECE", 16)
    for one, other in zip(whole, end(start, slice(0, 3)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("estimator", "init_var"), [("weights", exp(-12)), ("local", exp(-6)), ("weights", 1.0)])
def test_it_finds_the_mean_field_optimum_of_a_linear_gaussian_model(estimator: Estimator, init_var: float) -> None:
    """Mean of the exact posterior, and precision equal to the diagonal of the exact precision, from any variance.

    At the end about K / 9 steps are remembered, ten draws each, whose curvatures have relative deviations of order 1:
    an error of some sqrt(9 / 10 K) = 0.02 in the log.
    """
    data, model = linear_data(40, seed=0), Network(torch.nn.Identity(), 4, Normal(0.5), prior_var=2.0)
    x = torch.cat([data.x[0], torch.ones(40, 1, dtype=torch.float64)], 1)
    mean, precision = linear_posterior(x, data.y[0], noise=0.5, prior_var=2.0)
    project = VariationalKL(Ascent(2500, None), 10, estimator, ml_start=False, init_var=init_var, natural=NATURAL)
    q = fitted(project, model, data, outputs=1)
    assert ((q.mean[0] - mean).abs() * precision.diagonal().sqrt()).max() < 0.2
    assert (q.log_var[0] + precision.diagonal().log()).abs().max() < 0.15


def test_task_after_task_it_is_the_exact_recursion() -> None:
    """s_t = s_{t-1} + diag(X^T X) / noise^2 and mu_t from the whole curvature, given the q_{t-1} that was found."""
    model = Network(torch.nn.Identity(), 2, Normal(0.5), prior_var=2.0)
    tasks = [Task(str(t), linear_data(30, t, str(t), inputs=2), heads={"all": 1}) for t in range(3)]
    method: Method[Any] = Method(VariationalKL(Ascent(2000, None), 4, "local", ml_start=False, natural=NATURAL))
    state = initial(model, method, 1)
    state = state._replace(propagated=state.propagated.to(torch.float64))
    for task in tasks:
        y, q = task.train.y[0], state.propagated.grow(model.prior({"all": 1}))
        x = torch.cat([task.train.x[0], torch.ones(30, 1, dtype=torch.float64)], 1)
        curvature, precision = x.T @ x / 0.25, (-q.log_var[0]).exp()
        shift = torch.linalg.solve(curvature + precision.diag(), x.T @ (y - x @ q.mean[0]) / 0.25)
        mean, precision = q.mean[0] + shift, precision + curvature.diagonal()
        (state,) = learn(state, [task], model, method, Rng((0,)))
        assert ((state.propagated.mean[0] - mean).abs() * precision.sqrt()).max() < 0.2
        assert (state.propagated.log_var[0] + precision.log()).abs().max() < 0.15


def test_it_does_not_depend_on_the_units_of_the_parameters() -> None:
    """theta' = c theta: inputs in units c times as large, a prior as many times as wide, and the same noise."""
    data, units = linear_data(30, seed=2), torch.tensor([1e-3, 0.5, 7.0, 300.0], dtype=torch.float64)
    prior = MODEL.prior({}).to(torch.float64)

    def fit(c: Tensor) -> MeanField:
        previous = MeanField(prior.layout, prior.mean + c, prior.log_var + 2 * c.log())  # informed, so no random start
        scaled = data._replace(x=data.x / c)
        project = VariationalKL(Ascent(50, 7), 1, natural=NATURAL)
        q: MeanField = project(Target(previous, MODEL, scaled, prior), Rng((0,)))
        return q

    plain, scaled = fit(torch.ones_like(units)), fit(units)
    torch.testing.assert_close(scaled.mean / units, plain.mean, rtol=1e-8, atol=0)
    torch.testing.assert_close(scaled.log_var - 2 * units.log(), plain.log_var, rtol=1e-8, atol=1e-8)


def test_log_deviations_give_the_same_fit_as_log_variances() -> None:
    (task,) = blob_tasks(1)
    data = task.train._replace(x=task.train.x.double())
    one, two = (
        fitted(VariationalKL(Ascent(5, 16), 1, ml_start=False, climbs=climbs, natural=NATURAL), small_network(), data)
        for climbs in ("log_var", "log_sd")
    )
    torch.testing.assert_close(one.mean, two.mean)
    torch.testing.assert_close(one.log_var, two.log_var)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_curvature_is_that_of_autograd_without_bias(estimator: Estimator) -> None:
    """s (1 - 2 dL/dlog sigma^2) - s0 against E_q of the Hessian's diagonal; both by draws, with standard errors."""
    # Autograd's Hessian misses the kinks of relu, so the network has none.
    trunk = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())
    model, data = Network(trunk, 3, Categorical()), blobs(6, 0, "t", "h", width=2)
    data = data._replace(x=data.x.double())
    prior = model.prior({"h": 2}).to(torch.float64)
    layout, g = prior.layout, torch.Generator().manual_seed(0)
    mean = 0.7 * torch.randn(1, layout.size, generator=g, dtype=torch.float64)
    log_var = torch.full_like(mean, log(0.3))
    one = Data(data.x[0], data.y[0], data.source[0], data.sources)

    def log_lik(theta: Tensor) -> Tensor:
        return model.log_lik(layout.split(theta), one).sum()

    theta = MeanField(layout, mean, log_var).draw(torch.randn(1, 1500, layout.size, generator=g, dtype=torch.float64))[
        0
    ]
    slope = torch.func.grad(log_lik)
    hessian = torch.vmap(lambda at: -torch.func.jacrev(slope)(at).diagonal(), chunk_size=500)(theta)
    elbo = Elbo(model, prior, 1, estimator)
    found = []
    for _ in range(1500):
        noise = torch.randn(1, elbo.noise(data), generator=g, dtype=torch.float64)
        g_log = elbo.gradient((mean, log_var), data, data.size, noise).gradients[1][0]
        found.append((1 - 2 * g_log) / log_var[0].exp() - (-prior.log_var[0]).exp())
    ours = torch.stack(found)
    error = (ours.var(0) / len(ours) + hessian.var(0) / len(hessian)).sqrt()
    assert ((ours.mean(0) - hessian.mean(0)).abs() / error).max() < 4.5


def test_stacked_runs_are_the_runs_alone_and_one_that_diverges_is_set_aside() -> None:
    tasks = blob_tasks(2, runs=3)
    wild = tasks[1].train.x.clone()
    wild[1] = torch.finfo(torch.float32).max
    model, method = small_network(), Method[Any](VariationalKL(Ascent(4, 16), 1, "local", natural=NATURAL))
    given = [tasks[0], tasks[1]._replace(train=tasks[1].train._replace(x=wild))]
    *_, last = learn(initial(model, method, 3), given, model, method, Rng((5, 6, 7)), lambda _: None)
    assert [(each.run, each.seed, each.task) for each in last.set_aside] == [(1, 6, 2)]
    for place, run in enumerate((0, 2)):
        alone = [task._replace(train=task.train.select([run]), test=None) for task in tasks]
        *_, one = learn(initial(model, method, 1), alone, model, method, Rng((5 + run,)))
        assert torch.equal(one.propagated.mean[0], last.propagated.mean[place])
        assert torch.equal(one.propagated.log_var[0], last.propagated.log_var[place])


def test_coresets_refit_heads_grow_and_points_move_by_adam() -> None:
    project = VariationalKL(Ascent(3, 16), 1, natural=NATURAL)
    model, method = small_network(), Method[Any](project, RandomK(6))
    *_, last = learn(initial(model, method, 1), blob_tasks(3), model, method, Rng((0,)))
    assert list(last.predictive) == ["h0", "h1", "h2"]
    assert last.propagated.log_var.isfinite().all()
    vae, method = small_vae(), Method[Any](replace(project, ml_start=False, init="glorot"))
    *_, last = learn(initial(vae, method, 1), shape_tasks(2), vae, method, Rng((0,)))
    assert last.propagated.mean.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"natural": NaturalGradient(rate=0)}, "rate is 0; give Newton steps"),
        ({"natural": NaturalGradient(forget=float("inf"))}, "forget is inf; give a finite number"),
        ({"natural": NaturalGradient(momentum=1.0)}, "momentum is 1.0; give a share"),
        ({"natural": NATURAL, "family": "full"}, "natural gradients are for the family 'mean-field', not 'full'"),
    ],
)
def test_settings_that_cannot_be_run_are_refused_by_a_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(VclError, match=words):
        VariationalKL(**settings).check()


def test_the_start_has_the_weight_that_is_asked_for() -> None:
    """Where no data holds it, a precision falls by e^-forget; a few steps, of at most 1/2 each, allow less."""
    assert NATURAL.reach(10_000) == pytest.approx(25, rel=0.01)
    assert NATURAL.reach(1000) == pytest.approx(25, rel=0.05)
    assert NATURAL.reach(100) > 15
    assert NATURAL.reach(30) > 8
    rhos = [(1 - exp(-3 * 25 / 3)) * (1 - k / 3) ** 2 for k in range(3)]
    assert NATURAL.reach(3) == pytest.approx(-sum(log(1 - rho + rho**2 / 2) for rho in rhos))


def test_variances_end_where_ten_times_the_steps_end_wherever_they_began() -> None:
    """Mean absolute difference of the log variances, each tensor's sorted: units of a layer may change places.

    The median over nine seeds, since the bound has several optima, with more or fewer units that are used.
    """
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g)
    data, model = dataset(x, (x[:, 0] > 0).long(), "t", "h", runs=9), small_network(hidden=6, width=3)
    layout = model.prior({"h": 2}).layout

    def log_vars(epochs: int, init_var: float, natural: NaturalGradient | None = NATURAL) -> Tensor:
        ascent = Ascent(epochs, None, 0.01)
        project = VariationalKL(ascent, 4, "local", ml_start=False, init_var=init_var, natural=natural)
        parts = layout.split(fitted(project, model, data).log_var).values()
        return torch.cat([part.flatten(1).sort(1).values for part in parts], 1)

    def apart(one: Tensor, other: Tensor) -> float:
        return float((one - other).abs().mean(1).median())

    end = log_vars(3000, exp(-6))
    for init_var in (exp(-12), exp(-6), 1.0):
        assert apart(log_vars(300, init_var), end) < 0.1
    assert apart(*(log_vars(300, init_var, None) for init_var in (exp(-12), exp(-6)))) > 1, "Adam's show the start"


class TestHealth:
    def told(self, project: VariationalKL) -> list[Progress]:
        (task,), model, told = blob_tasks(1, runs=2), small_network(), list[Progress]()
        prior = model.prior({"h0": 2})
        project(Target(prior.expand(2), model, task.train, prior), Rng((0, 1)), told.append)
        return [each for each in told if each.what == "variational fit"]

    def test_a_fit_whose_variances_still_moved_says_so_with_its_last_epoch(self) -> None:
        told = self.told(VariationalKL(Ascent(3, 20, 1e-3), 1))
        *before, last = told
        assert all(each.health is None for each in before)
        assert last.health is not None
        assert last.health.reach == pytest.approx(6e-3)
        assert (last.health.limited > 0.5).all()
        assert last.health.warning().startswith(f"{float(last.health.limited.max()):.0%} of the log variances moved")
        deviations = self.told(VariationalKL(Ascent(3, 20, 1e-3), 1, climbs="log_sd"))[-1].health
        assert deviations is not None
        assert deviations.reach == pytest.approx(12e-3)

    def test_of_a_natural_fit_only_variances_that_grew_are_limited(self) -> None:
        """From the prior's variances many labels pull all variances down, farther than steps could let them grow."""
        natural = NaturalGradient(forget=0.5)
        model, (task,) = small_network(), blob_tasks(1)
        prior, told = model.prior({"h0": 2}), list[Progress]()
        data = task.train._replace(x=30 * task.train.x)
        project = VariationalKL(Ascent(20, None), 1, init_var=1.0, ml_start=False, natural=natural)
        q = project(Target(prior, model, data, prior), Rng((0,)), told.append)
        health = told[-1].health
        assert health is not None
        assert health.growth
        reach = 0.9 * natural.reach(20)
        assert bool((q.log_var < -reach).any()), "falls that are longer than the limit of growth"
        torch.testing.assert_close(health.limited, (q.log_var > reach).float().mean(1))
        wide = health._replace(limited=torch.tensor([0.4])).warning()
        assert wide.startswith("40% of the log variances grew as far as the steps allow")
        assert wide.endswith("take more steps")

    @pytest.mark.parametrize("init_var", [0.3, 0.5])
    def test_new_tensors_are_compared_with_the_variance_that_they_started_at(self, init_var: float) -> None:
        """Two of Adam's steps of 1e-3 move most log variances by nearly 2e-3 from init_var, and none that far else."""
        model, (task,), told = small_network(), blob_tasks(1), list[Progress]()
        project, prior = VariationalKL(Ascent(2, None, 1e-3), 1, init_var=init_var), model.prior({"h0": 2})
        q = project(Target(prior, model, task.train, prior), Rng((0,)), told.append)
        health = told[-1].health
        assert health is not None
        far = (q.log_var - log(init_var)).abs() >= 0.9 * 2e-3
        assert 0 < far.float().mean() < 1
        torch.testing.assert_close(health.limited, far.float().mean(1))

    def test_a_full_gaussian_has_no_health(self) -> None:
        model, (task,), told = small_network(), blob_tasks(1), list[Progress]()
        project, prior = VariationalKL(Ascent(3, 20, 1e-3), 1, family="full"), model.prior({"h0": 2})
        project(Target(project.initial(prior), model, task.train, prior), Rng((0,)), told.append)
        assert told
        assert all(each.health is None for each in told)

    def test_a_natural_fit_is_not_limited_and_its_kl_and_pruned_units_are_known(self) -> None:
        project, model, (task,) = VariationalKL(Ascent(100, None), 1, natural=NATURAL), small_network(), blob_tasks(1)
        prior, told = model.prior({"h0": 2}), list[Progress]()
        q = project(Target(prior, model, task.train, prior), Rng((0,)), told.append)
        health = told[-1].health
        assert health is not None
        assert health.warning() == ""
        assert health.limited.tolist() == [0.0]
        from vcl.beliefs.mean_field import kl

        assert list(health.kl) == list(prior.layout.names)
        torch.testing.assert_close(torch.stack([*health.kl.values()]).sum(0), kl(q, prior))
        means, deviations = prior.layout.split(q.mean), prior.layout.split((0.5 * q.log_var).exp())
        assert list(health.sd) == list(prior.layout.names)
        for name, sd in health.sd.items():
            torch.testing.assert_close(sd, deviations[name].flatten(1).mean(1))
        weights = [name for name, shape in zip(*prior.layout, strict=True) if len(shape) == 2]
        assert list(health.pruned) == weights
        for name in weights:
            rows = zip(means[name][0].tolist(), deviations[name][0].tolist(), strict=True)
            silent = [all(abs(mu) < sigma for mu, sigma in zip(*row, strict=True)) for row in rows]
            assert health.pruned[name].item() == pytest.approx(sum(silent) / len(silent))
