"""MAP, Laplace propagation, EWC and SI against exact answers, and against each other."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from made import blob_tasks, blobs, shapes, small_network, small_vae
from oracles import linear_posterior
from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.quadratic import Quadratic, without_past
from vcl.data import Data, dataset
from vcl.errors import VclError
from vcl.fitting.curvature import Curvature
from vcl.fitting.loop import Ascent
from vcl.fitting.step import by_autograd
from vcl.models import LinearGaussian
from vcl.models.base import Model, held
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    Exact,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    SynapticIntelligence,
    Target,
    VariationalKL,
)
from vcl.projections.quadratic import Penalised
from vcl.projections.si import add_path

MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)
PRIOR = MODEL.prior({}).to(torch.float64)
LONG = Ascent(1200, None, 0.2, "cosine")
HESSIAN = Curvature("hessian")
RNG = Rng((0,))
PENALISED: list[Any] = [
    MaximumAPosteriori(),
    LaplacePropagation(),
    ElasticWeightConsolidation(),
    SynapticIntelligence(),
]


def mild(n: int, seed: int) -> Data:
    """Correlated inputs, but so little that Adam gets to the bottom."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.eye(4, dtype=torch.float64) + 0.15
    x = torch.randn(n, 4, generator=g, dtype=torch.float64) @ mix
    return dataset(x, x @ torch.arange(1.0, 5, dtype=torch.float64) + 0.5 * torch.randn(n, generator=g).double())


def project(rule: Any, q: Any, data: Data) -> Any:
    return rule(Target(q, MODEL, data, PRIOR), RNG)


def diagonal_solution(q: MeanField, data: Data, noise: float = 0.5, lam: float = 1.0) -> tuple[Tensor, Tensor]:
    """The mean of the full posterior under the diagonal prior q^lambda, and precision_d = 1/v_d + sum_n x_d^2 / s^2."""
    X, y, before = data.x[0], data.y[0], (-q.log_var[0]).exp()
    A = lam * torch.diag(before) + X.T @ X / noise**2
    mean = torch.linalg.solve(A, lam * before * q.mean[0] + X.T @ y / noise**2)
    return mean, before + X.square().sum(0) / noise**2


class TestLaplacePropagation:
    def test_mode_and_diagonal_precision_are_exact_over_three_tasks(self) -> None:
        rule = LaplacePropagation(LONG, 1.0, HESSIAN)
        q = rule.initial(PRIOR)
        for t, n in enumerate((20, 8, 30)):
            data = mild(n, t)
            mean, precision = diagonal_solution(q, data)
            q = project(rule, q, data)
            assert torch.allclose(q.mean[0], mean, atol=1e-6)
            assert torch.allclose((-q.log_var[0]).exp(), precision, rtol=1e-10)

    def test_the_first_task_is_the_diagonal_of_the_exact_posterior(self) -> None:
        data = mild(20, 0)
        mean, precision = linear_posterior(data.x[0], data.y[0], 0.5, 2.0)
        q = project(LaplacePropagation(LONG, 1.0, HESSIAN), PRIOR, data)
        exact = project(Exact(), Exact().initial(PRIOR), data)
        assert torch.allclose(q.mean[0], mean, atol=1e-6)
        assert torch.allclose(q.mean, exact.mean, atol=1e-6)
        assert torch.allclose((-q.log_var[0]).exp(), precision.diagonal(), rtol=1e-6)

    def test_variational_kl_ends_at_the_same_diagonal_solution(self) -> None:
        """The paper's statement (appendix F), for two tasks."""
        vi = VariationalKL(Ascent(2000, None, 0.1, "cosine"), 64, "local", ml_start=False)
        lp = LaplacePropagation(LONG, 1.0, HESSIAN)
        a, b = PRIOR, PRIOR
        for t, n in enumerate((20, 30)):
            a, b = project(vi, a, mild(n, t)), project(lp, b, mild(n, t))
            assert torch.allclose(a.mean, b.mean, atol=0.01)
            assert torch.allclose(a.log_var, b.log_var, atol=0.03)

    def test_batch_and_sequential_diagonal_solutions_differ(self) -> None:
        """Also the paper's: with a diagonal posterior the order and the cut of the data matter, even here."""
        rule = LaplacePropagation(LONG, 1.0, HESSIAN)
        one, two = mild(6, 0), mild(6, 1)
        both = dataset(torch.cat([one.x[0], two.x[0]]), torch.cat([one.y[0], two.y[0]]))
        batch, sequential = project(rule, PRIOR, both), project(rule, project(rule, PRIOR, one), two)
        assert torch.allclose(batch.log_var, sequential.log_var, atol=1e-10)  # the precisions are the same sums
        assert (batch.mean - sequential.mean).abs().max() > 0.05
        exact = project(Exact(), Exact().initial(PRIOR), both)
        assert torch.allclose(batch.mean, exact.mean, atol=1e-6)

    def test_lambda_weighs_the_whole_past(self) -> None:
        q = project(LaplacePropagation(LONG, 1.0, HESSIAN), PRIOR, mild(10, 0))
        for lam in (0.1, 10.0):
            data = mild(12, 1)
            mean, precision = diagonal_solution(q, data, lam=lam)
            after = project(LaplacePropagation(LONG, lam, HESSIAN), q, data)
            assert torch.allclose(after.mean[0], mean, atol=1e-5)
            assert torch.allclose((-after.log_var[0]).exp(), precision, rtol=1e-10)


@pytest.mark.parametrize(
    ("model", "data", "units"),
    [(small_network(), blobs(9, 0, "t", "h", runs=3), 2), (small_vae(), shapes(5, 0, "h", runs=3), 16)],
    ids=["network", "vae"],
)
def test_the_gradient_with_the_penalty_written_out_is_torchs(model: Model, data: Data, units: int) -> None:
    """For a network, where all is held, and for a VAE, where only what stands first is; runs share the centre."""
    layout = model.prior({"h": units}).layout
    g = torch.Generator().manual_seed(0)
    theta, precision = (torch.randn(3, layout.size, generator=g, dtype=torch.float64) for _ in range(2))
    centre = torch.randn(1, layout.size, generator=g, dtype=torch.float64).expand(3, -1)
    penalty = DiagonalFactor(layout, centre, precision.square()).on(held(model, layout))
    assert (penalty.layout == layout) == (model.latent == 0)
    objective = Penalised(model, layout, penalty, draws=2)
    noise = torch.randn(3, objective.noise(data), generator=g, dtype=torch.float64)
    data = data._replace(x=data.x.double())
    ours, torchs = (
        way((theta,), data, 50, noise) for way in (objective.gradient, lambda *a: by_autograd(objective, *a))
    )
    assert torch.allclose(ours.value, torchs.value, rtol=1e-10)
    assert torch.allclose(ours.gradients[0], torchs.gradients[0], rtol=1e-10, atol=1e-10)


class TestElasticWeightConsolidation:
    def test_one_quadratic_is_the_explicit_sum_over_tasks(self) -> None:
        """Five tasks: sum_t' 1/2 (theta - a_t')^T Phi_t' (theta - a_t') up to a constant, gradients included."""
        g = torch.Generator().manual_seed(0)
        layout = Layout(("w",), ((6,),))
        anchors, phis = (torch.rand(5, 1, 6, generator=g, dtype=torch.float64) for _ in range(2))
        phis[:, :, 0] = 0  # a parameter that nothing holds
        phis[1:3, :, 1] = 0
        belief = without_past(MeanField(layout, torch.zeros(1, 6), torch.zeros(1, 6)).to(torch.float64))
        for anchor, phi in zip(anchors, phis, strict=True):
            belief = belief.add(anchor, phi)
        factor = belief.factor()

        def explicit(theta: Tensor) -> Tensor:
            return 0.5 * (phis * (theta - anchors).square()).sum((0, 2))

        points = torch.randn(7, 1, 6, generator=g, dtype=torch.float64)
        gaps = torch.stack([explicit(point) - factor.pull(point) for point in points])
        assert torch.allclose(gaps, gaps[0].expand_as(gaps), atol=1e-12)
        for point in points:
            leaf = point.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(explicit(leaf).sum(), leaf)
            taken = torch.zeros_like(point)
            assert torch.allclose(factor.pull(point, taken), factor.pull(point), atol=1e-12)
            assert torch.allclose(gradient, -taken, atol=1e-12)
        assert sum(part.numel() for part in belief[1:]) == 3 * 6  # whatever the number of tasks

    def test_linear_tasks_end_at_the_known_maximiser(self) -> None:
        """argmax log p(D_t) - lambda/2 sum_t' (w - w_t')^T Phi_t' (w - w_t'), solved by hand for three tasks."""
        lam = 0.3
        rule = ElasticWeightConsolidation(LONG, lam, HESSIAN)
        q = rule.initial(PRIOR)
        held: list[tuple[Tensor, Tensor]] = []
        for t in range(3):
            data = mild(15, t)
            X, y = data.x[0], data.y[0]
            A = X.T @ X / 0.25 + lam * sum((torch.diag(phi) for _, phi in held), torch.zeros(4, 4).double())
            b = X.T @ y / 0.25 + lam * sum((phi * anchor for anchor, phi in held), torch.zeros(4).double())
            q = project(rule, q, data)
            assert torch.allclose(q.mean[0], torch.linalg.solve(A, b), atol=1e-5)
            held.append((q.mean[0], X.square().sum(0) / 0.25))

    def test_every_task_keeps_the_lambda_that_it_was_learned_with(self) -> None:
        """Three tasks with three lambdas, against the explicit sum sum_t' lambda_t' Phi_t' solved by hand."""
        held: list[tuple[Tensor, Tensor]] = []
        q = without_past(PRIOR)
        for t, lam in enumerate((0.2, 3.0, 1.0)):
            data = mild(15, t)
            X, y = data.x[0], data.y[0]
            A = X.T @ X / 0.25 + sum((torch.diag(phi) for _, phi in held), torch.zeros(4, 4).double())
            b = X.T @ y / 0.25 + sum((phi * anchor for anchor, phi in held), torch.zeros(4).double())
            q = project(ElasticWeightConsolidation(LONG, lam, HESSIAN), q, data)
            assert torch.allclose(q.mean[0], torch.linalg.solve(A, b), atol=1e-5)
            held.append((q.mean[0], lam * X.square().sum(0) / 0.25))

    def test_the_anchor_may_be_where_the_task_began(self) -> None:
        """The paper prints theta_{t'-1}; then the second task is held at the first one's solution."""
        rule = ElasticWeightConsolidation(LONG, 1.0, HESSIAN, "previous")
        first = project(rule, rule.initial(PRIOR), mild(15, 0))
        second = project(rule, first, mild(15, 1))
        own = project(replace(rule, anchor="own"), first, mild(15, 1))
        assert torch.allclose(second.mean, own.mean)
        expected = first.add(first.mean, second.precision - first.precision)
        assert torch.allclose(second.centre, expected.centre)
        assert not torch.allclose(second.centre, own.centre, atol=1e-3)

    def test_there_is_no_prior_in_it(self) -> None:
        """The first task is plain maximum likelihood, whatever the lambda."""
        data = mild(40, 0)
        a = project(ElasticWeightConsolidation(LONG, 1e6), without_past(PRIOR), data)
        b = project(MaximumLikelihood(LONG), MaximumLikelihood().initial(PRIOR), data)
        assert torch.allclose(a.mean, b.mean, atol=1e-9)


class TestSynapticIntelligence:
    def test_importance_is_the_path_integral_of_the_steps_taken(self) -> None:
        """One parameter, full batch, plain arithmetic: Adam written out, and the sum of gradient times step."""
        x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        y = torch.tensor([2.0, 3.0], dtype=torch.float64)
        model = LinearGaussian(1, 1.0)
        prior = model.prior({}).to(torch.float64)
        lam, damping, lr, steps = 0.7, 0.05, 0.2, 6
        centre, precision = 0.4, 1.5
        q = Quadratic(prior.layout, *(torch.full((1, 1), v, dtype=torch.float64) for v in (0.5, centre, precision)))
        rule = SynapticIntelligence(Ascent(steps, None, lr), lam, damping)
        after = rule(Target(q, model, dataset(x, y), prior), RNG)

        w, m, v, omega = 0.5, 0.0, 0.0, 0.0
        for k in range(1, steps + 1):
            of_data = sum(float(xi) * (float(yi) - float(xi) * w) for xi, yi in zip(x[:, 0], y, strict=True))
            gradient = of_data - lam * precision * (w - centre)  # the optimiser sees the penalty, omega does not
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            step = lr * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)) ** 0.5 + 1e-8)
            omega += of_data * step
            w += step
        importance = max(0.0, omega) / ((w - 0.5) ** 2 + damping)
        assert after.mean.item() == pytest.approx(w, rel=1e-9)
        assert after.centre.item() == after.mean.item()
        assert importance > 0.1
        assert after.precision.item() == pytest.approx(precision + 2 * importance, rel=1e-9)

    def test_on_a_quadratic_the_importances_are_what_the_likelihood_gained(self) -> None:
        """sum_d omega_d is log p at the end less log p at the start, as the steps become small."""
        data = mild(30, 0)
        damping = 1e-3
        start = project(MaximumAPosteriori(LONG), MaximumAPosteriori().initial(PRIOR), mild(30, 5)).mean
        q = Quadratic(PRIOR.layout, start, start, torch.zeros_like(start))
        after = project(SynapticIntelligence(Ascent(3000, None, 2e-3), 1.0, damping), q, data)
        omega = 0.5 * after.precision * ((after.mean - start).square() + damping)

        def total(w: Tensor) -> Tensor:
            return MODEL.log_lik({"w": w}, Data(data.x[0], data.y[0], data.source[0], data.sources)).sum()

        gained = total(after.mean[0]) - total(start[0])
        assert gained > 10
        assert omega.sum().item() == pytest.approx(gained.item(), rel=0.02)

    def test_a_straight_way_to_the_bottom_of_a_bowl_gives_its_curvature(self) -> None:
        """Why 2 Omega is the precision: one parameter, tiny damping, so Omega = H/2."""
        model = LinearGaussian(1, 1.0)
        prior = model.prior({}).to(torch.float64)
        x = torch.tensor([[1.0], [2.0], [1.5]], dtype=torch.float64)
        rule = SynapticIntelligence(Ascent(3000, None, 2e-3), 1.0, 1e-9)
        q = without_past(prior)._replace(mean=torch.full((1, 1), -1.0, dtype=torch.float64))
        after = rule(Target(q, model, dataset(x, 3 * x[:, 0] - 2.5 * x[:, 0]), prior), RNG)
        assert after.mean.item() == pytest.approx(0.5, abs=1e-3)
        assert after.precision.item() == pytest.approx(x.square().sum().item(), rel=0.01)

    def test_a_steps_share_of_the_path(self) -> None:
        g = torch.Generator().manual_seed(0)
        omega, before, theta, gradient, precision = (torch.randn(3, 5, generator=g) for _ in range(5))
        centre = torch.randn(1, 5, generator=g).expand(3, -1)
        expected = omega + (gradient + precision * (before - centre)) * (theta - before)
        add_path(omega, before, theta, gradient, centre, precision)
        assert torch.allclose(omega, expected)
        assert torch.equal(before, theta)

    def test_importance_is_never_negative_and_accumulates(self) -> None:
        # Enough parameters that some path goes against the gradient, whatever random numbers a version of torch gives.
        model, tasks = small_network(hidden=32), blob_tasks(3, runs=4, single_head=True)
        prior = model.prior({"all": 2})
        rule = SynapticIntelligence(Ascent(20, 16, 0.05), 0.1)
        q = rule.initial(prior.expand(4))
        for task in tasks:
            after = rule(Target(q, model, task.train, prior), Rng((0, 1, 2, 3)))
            assert (after.precision >= q.precision).all()
            assert (after.precision > q.precision).float().mean() > 0.3
            assert (after.precision == q.precision).any()  # a path against the gradient counts as nothing
            q = after

    def test_without_optimiser_steps_it_is_refused(self) -> None:
        with pytest.raises(VclError, match="measures importance along the optimiser's steps"):
            SynapticIntelligence(Ascent(epochs=0)).check()


class TestMaximumAPosteriori:
    def test_the_first_task_is_the_mode_under_the_prior(self) -> None:
        data = mild(10, 0)
        mean, _ = linear_posterior(data.x[0], data.y[0], 0.5, 2.0)
        rule = MaximumAPosteriori(LONG, 50.0)
        assert torch.allclose(project(rule, rule.initial(PRIOR), data).mean[0], mean, atol=1e-6)

    def test_later_tasks_are_held_at_the_last_estimate_with_precision_lambda(self) -> None:
        rule = MaximumAPosteriori(LONG, 7.0)
        first = project(rule, rule.initial(PRIOR), mild(10, 0))
        data = mild(10, 1)
        A = data.x[0].T @ data.x[0] / 0.25 + 7 * torch.eye(4)
        expected = torch.linalg.solve(A, data.x[0].T @ data.y[0] / 0.25 + 7 * first.mean[0])
        assert torch.allclose(project(rule, first, data).mean[0], expected, atol=1e-6)

    def test_a_new_head_has_its_prior_and_the_old_parameters_have_lambda(self) -> None:
        """With a large lambda the trunk cannot move, but the new head learns all the same."""
        model, tasks = small_network(), blob_tasks(2)
        prior = model.prior({"h0": 2, "h1": 2})
        rule = MaximumAPosteriori(Ascent(60, None, 0.05), 1e6)
        first = rule(Target(rule.initial(prior), model, tasks[0].train, prior), RNG)
        second = rule(Target(first, model, tasks[1].train, prior), RNG)
        before, after = (first.layout.split(q.mean) for q in (first, second))
        # Over 16 seeds the trunk moves by at most 0.002, and the head by 0.35 to 1.2: how far it must go depends on the
        # features that it meets.
        assert (after["trunk.1.weight"] - before["trunk.1.weight"]).abs().max() < 0.01
        assert (after["heads.h1.weight"] - before["heads.h1.weight"]).abs().max() > 0.2


@pytest.mark.parametrize("rule", [ElasticWeightConsolidation(LONG, 0.0), MaximumAPosteriori(LONG, 0.0)], ids=str)
def test_lambda_zero_is_maximum_likelihood(rule: Any) -> None:
    first = project(rule, rule.initial(PRIOR), mild(20, 0))
    data = mild(40, 1)
    second = project(rule, first, data)
    assert torch.allclose(second.mean[0], torch.linalg.lstsq(data.x[0], data.y[0]).solution, atol=1e-3)


class TestLambdaPerRun:
    @pytest.mark.parametrize("rule", PENALISED, ids=lambda rule: type(rule).__name__)
    def test_a_stacked_grid_equals_separate_runs(self, rule: Any) -> None:
        """Three lambdas times two seeds as one stack, against each (lambda, seed) alone, two tasks, bit for bit."""
        lams, seeds = (0.0, 0.5, 20.0), (4, 9)
        model = small_network()
        prior = model.prior({"h0": 2, "h1": 2})

        def end(lam: Any, seeds: tuple[int, ...]) -> Any:
            tasks = blob_tasks(2, runs=len(seeds))
            one = replace(rule, ascent=Ascent(4, 16, 0.02), lam=lam)
            q = one.initial(prior.expand(len(seeds)))
            for t, task in enumerate(tasks):
                q = one(Target(q, model, task.train, prior), Rng(seeds).at(t))
            return q

        stack = end(tuple(lam for lam in lams for _ in seeds), seeds * 3)
        for i, lam in enumerate(lams):
            for j, seed in enumerate(seeds):
                alone = end(lam, (seed,))
                for a, b in zip(stack[1:], alone[1:], strict=True):
                    assert torch.equal(a[2 * i + j], b[0])
        assert not torch.equal(stack.mean[0], stack.mean[2])

    @pytest.mark.parametrize("rule", PENALISED, ids=lambda rule: type(rule).__name__)
    @pytest.mark.parametrize("lam", [-1.0, float("nan"), float("inf"), (1.0, -0.5)])
    def test_a_negative_lambda_is_one_sentence(self, rule: Any, lam: Any) -> None:
        with pytest.raises(VclError, match=r"lambda is .*; give a number from 0"):
            replace(rule, lam=lam).check()

    def test_as_many_lambdas_as_runs(self) -> None:
        rule = MaximumAPosteriori(Ascent(1), (1.0, 2.0))
        with pytest.raises(VclError, match="2 values of lambda were given for 1 runs"):
            project(rule, rule.initial(PRIOR), mild(5, 0))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (ElasticWeightConsolidation(curvature=Curvature(samples=0)), "number of Fisher samples is 0"),
        (LaplacePropagation(curvature=Curvature(samples=-3)), "number of Fisher samples is -3"),
        (ElasticWeightConsolidation(anchor="mine"), "unknown anchor 'mine'"),  # type: ignore[arg-type]
        (SynapticIntelligence(damping=0.0), "damping is 0.0"),
    ],
)
def test_bad_settings_are_one_sentence(bad: Any, words: str) -> None:
    with pytest.raises(VclError, match=words):
        bad.check()
