"""What every likelihood keeps, just by being listed here."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from vcl.beliefs.mean_field import MeanField
from vcl.data import Data, Source, concat, dataset
from vcl.engines.choose import choose
from vcl.engines.general import General
from vcl.engines.layered import Layered
from vcl.errors import VclError
from vcl.fitting.curvature import Curvature
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.models import Network, mlp
from vcl.models.likelihoods import (
    Categorical,
    HasCdf,
    HasLabelPoints,
    HasMoments,
    HeteroscedasticNormal,
    Likelihood,
    Normal,
    Poisson,
    Probit,
)
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict, predict_draws, predict_outputs
from vcl.projections import MomentMatching, Target, VariationalKL

DOUBLE = torch.float64


class Case(NamedTuple):
    likelihood: Likelihood
    units: int
    targets: int
    """Columns of y; 0 for labels [N]."""
    support: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """From outputs [units] to all y of the first target [K], or a fine grid, and log weights [K]."""


def labels(classes: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return lambda mean, sd: (torch.arange(classes), torch.zeros(classes, dtype=DOUBLE))


def line(mean: Tensor, sd: Tensor) -> tuple[Tensor, Tensor]:
    y = mean + sd * torch.linspace(-14, 14, 4001, dtype=DOUBLE)
    return y, (y[1] - y[0]).log().expand(len(y))


def counts(mean: Tensor, sd: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.arange(int(mean + 14 * sd + 60), dtype=DOUBLE)
    return y, torch.zeros_like(y)


CASES = {
    "two classes": Case(Categorical(), 2, 0, labels(2)),
    "classes": Case(Categorical(), 4, 0, labels(4)),
    "probit": Case(Probit(), 1, 0, labels(2)),
    "normal": Case(Normal(0.3), 1, 1, line),
    "normal, 3 targets": Case(Normal((0.3, 2.0, 0.9)), 3, 3, line),
    "predicted noise": Case(HeteroscedasticNormal(), 2, 1, line),
    "predicted noise, 2 targets": Case(HeteroscedasticNormal(3.0), 4, 2, line),
    "counts": Case(Poisson(), 1, 1, counts),
    "counts, 2 targets": Case(Poisson(), 2, 2, counts),
}
NUMBERS = {name: case for name, case in CASES.items() if case.targets}
ONE = {name: case for name, case in CASES.items() if case.targets < 2}


def outputs(case: Case, n: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, case.units, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def normals(case: Case, n: int, seed: int = 1) -> Tensor:
    shape = (n, case.targets) if case.targets else (n,)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def every_y(case: Case, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y [K] of a case with one target, its log weights, and log p(y | output) [K] with one output [units]."""
    mean = sd = torch.zeros((), dtype=DOUBLE)
    if isinstance(case.likelihood, HasMoments):
        first, var = case.likelihood.moments_of(output)
        mean, sd = first[0], var[0].sqrt()
    y, log_weight = case.support(mean, sd)
    return y, log_weight, case.likelihood.log_prob(output.expand(len(y), -1), y)


@pytest.mark.parametrize("case", ONE.values(), ids=ONE)
class TestEveryDistribution:
    def test_it_sums_to_one_and_its_sum_has_the_moments(self, case: Case) -> None:
        for output in outputs(case, 5, scale=2.0):
            y, log_weight, log_p = every_y(case, output)
            p = (log_p + log_weight).exp()
            assert p.sum().item() == pytest.approx(1, abs=1e-9)
            found = case.likelihood.expectation(output[None])[0]
            exact = torch.stack([(p * y).sum(), (p * y**2).sum()]) if case.targets else p
            assert torch.allclose(found, exact, rtol=1e-8)

    def test_samples_have_its_distribution(self, case: Case) -> None:
        output = outputs(case, 1)[0]
        drawn = case.likelihood.sample(output.expand(40_000, -1), normals(case, 40_000)).flatten().double()
        y, log_weight, log_p = every_y(case, output)
        p = (log_p + log_weight).exp()
        for at in (p.cumsum(0) < level for level in (0.1, 0.5, 0.9)):
            here = y[at].amax().double() if at.any() else torch.tensor(-1.0)
            below = p[y <= here].sum().item()
            share = (drawn <= here + 1e-9).double().mean().item()
            assert share == pytest.approx(below, abs=5 * (0.25 / 40_000) ** 0.5)

    def test_the_evidence_is_the_integral_over_the_outputs(self, case: Case) -> None:
        """A grid over each output; four classes are approximated and tested elsewhere."""
        if case.units > 2:
            pytest.skip("an approximation")
        mean, var = outputs(case, 3), outputs(case, 3, 1).square() + 0.1
        y = case.likelihood.sample(mean, normals(case, 3))
        found = case.likelihood.log_evidence(mean, var, y)
        steps = torch.linspace(-9, 9, 601 if case.units == 2 else 20_001, dtype=DOUBLE)
        for n in range(3):
            f = torch.cartesian_prod(*(mean[n] + var[n].sqrt() * steps[:, None]).unbind(-1)).view(-1, case.units)
            weight = -0.5 * ((f - mean[n]).square() / var[n]).sum(-1)
            log_p = case.likelihood.log_prob(f, y[n].expand(len(f)) if not case.targets else y[n].expand(len(f), -1))
            exact = (log_p + weight).logsumexp(0) - weight.logsumexp(0)
            assert found[n].item() == pytest.approx(exact.item(), rel=1e-7, abs=1e-7)

    def test_label_points_give_the_expected_product_of_gradients(self, case: Case) -> None:
        if not isinstance(case.likelihood, HasLabelPoints):
            pytest.fail("every likelihood of vcl has them")
        output = outputs(case, 1)
        y, log_weight, log_p = every_y(case, output[0])
        jacobian = torch.func.jacrev(lambda f: case.likelihood.log_prob(f.expand(len(y), -1), y))(output[0])
        exact = jacobian.T @ ((log_p + log_weight).exp()[:, None] * jacobian)
        assert torch.allclose(fisher(case, output), exact, rtol=1e-6, atol=1e-9)


def fisher(case: Case, output: Tensor) -> Tensor:
    """sum_k w_k g_k g_k^T at one output [1, units]."""
    assert isinstance(case.likelihood, HasLabelPoints)
    points, weights = case.likelihood.label_points(output)
    total = output.new_zeros(case.units, case.units)
    for y, weight in zip(points, weights, strict=True):
        g = torch.func.grad(lambda f, y=y: case.likelihood.log_prob(f, y).sum())(output)[0]
        total += weight[0] * torch.outer(g, g)
    return total


@pytest.mark.parametrize("case", NUMBERS.values(), ids=NUMBERS)
class TestEveryLikelihoodOfNumbers:
    def test_targets_are_independent_with_a_head_of_its_units(self, case: Case) -> None:
        assert isinstance(case.likelihood, HasCdf)
        assert case.likelihood.units(case.targets) == case.units
        output, noise = outputs(case, 6), normals(case, 6)
        y = case.likelihood.sample(output, noise)
        assert y.shape == noise.shape
        case.likelihood.check(y[None], case.units, "task 'x'")
        one: list[Likelihood] = [case.likelihood] * case.targets
        if isinstance(case.likelihood, Normal) and isinstance(case.likelihood.noise, tuple):
            one = [Normal(sd) for sd in case.likelihood.noise]
        parts = [output[:, c :: case.targets] for c in range(case.targets)]
        var = output.square() + 0.1
        spreads = [var[:, c :: case.targets] for c in range(case.targets)]
        for found, each in (
            (
                case.likelihood.log_prob(output, y),
                [a.log_prob(f, y[:, c]) for c, (a, f) in enumerate(zip(one, parts, strict=True))],
            ),
            (
                case.likelihood.log_evidence(output, var, y),
                [a.log_evidence(f, v, y[:, c]) for c, (a, f, v) in enumerate(zip(one, parts, spreads, strict=True))],
            ),
        ):
            assert found.shape == (6,)
            assert torch.allclose(found, torch.stack(each).sum(0))

    def test_label_points_of_several_targets_have_no_cross_terms(self, case: Case) -> None:
        output = outputs(case, 1)
        if isinstance(case.likelihood, Normal):
            noise = case.likelihood.noise
            exact = torch.diag(output.new_tensor(noise if isinstance(noise, tuple) else [noise]) ** -2.0)
        elif isinstance(case.likelihood, Poisson):
            exact = torch.diag(output[0].exp())
        else:
            s = output[0].chunk(2)[1]
            limit = case.likelihood.limit  # type: ignore[attr-defined]
            slope = 1 - (s / limit).tanh() ** 2
            exact = torch.diag(torch.cat([(-2 * limit * (s / limit).tanh()).exp(), 2 * slope**2]))
        assert torch.allclose(fisher(case, output), exact, atol=1e-10)

    def test_moments_are_those_of_the_expectation(self, case: Case) -> None:
        assert isinstance(case.likelihood, HasMoments)
        output = outputs(case, 6)
        mean, var = case.likelihood.moments_of(output)
        assert mean.shape == var.shape == (6, case.targets)
        assert torch.allclose(case.likelihood.expectation(output), torch.cat([mean, mean**2 + var], -1))
        turned = type(case.likelihood).moments(case.likelihood.expectation(output))  # type: ignore[attr-defined]
        assert torch.allclose(turned[0], mean)
        assert torch.allclose(turned[1], var)

    def test_the_distribution_function_is_the_sum_of_the_density(self, case: Case) -> None:
        assert isinstance(case.likelihood, HasCdf)
        if case.targets > 1:  # columns by themselves: as the last column of other numbers
            output, y = outputs(case, 4), outputs(case, 4, 3)[:, : case.targets]
            whole = case.likelihood.cdf(output, y)
            for c in range(case.targets):
                other = y + 1 - (torch.arange(case.targets) == c).double()
                assert torch.equal(case.likelihood.cdf(output, other)[:, c], whole[:, c])
            return
        for output in outputs(case, 4):
            y, log_weight, log_p = every_y(case, output)
            p = (log_p + log_weight).exp()
            exact = p.cumsum(0) if case.likelihood.whole else p.cumsum(0) - p / 2  # trapezoid
            found = case.likelihood.cdf(output.expand(len(y), -1), y[:, None])[:, 0]
            assert torch.allclose(found, exact, atol=1e-5 if not case.likelihood.whole else 1e-10)
        assert case.likelihood.cdf(output, torch.tensor([-1e9]).double()).item() == 0

    def test_draws_of_the_weights_broadcast_against_targets(self, case: Case) -> None:
        assert isinstance(case.likelihood, HasCdf)
        output, y = outputs(case, 12).view(2, 3, 2, -1), torch.rand(2, 1, 2, case.targets, dtype=DOUBLE)
        assert case.likelihood.cdf(output, y).shape == (2, 3, 2, case.targets)


EXTREME = (-1e5, -100.0, -30.0, 0.0, 30.0, 100.0, 1e5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
class TestArithmetic:
    def test_values_and_gradients_are_finite_at_extreme_outputs(self, case: Case, dtype: torch.dtype) -> None:
        for size in EXTREME:
            for column in range(case.units):
                output = torch.zeros(1, case.units, dtype=dtype)
                output[0, column] = size
                output.requires_grad_()
                for y in (0, 1) if case.targets == 0 else (0.0, 3.0, 1e4):
                    target = torch.full((1, case.targets) if case.targets else (1,), y)
                    target = target.to(dtype) if case.targets else target
                    value = case.likelihood.log_prob(output, target)
                    (g,) = torch.autograd.grad(value.sum(), output)
                    assert all(part.isfinite().all() for part in (value, g)), (size, column, y)
                    for var in (0.0, 1.0, 1e4):
                        spread = torch.full_like(output, var).requires_grad_()
                        value = case.likelihood.log_evidence(output, spread, target)
                        slopes = torch.autograd.grad(value.sum(), (output, spread))
                        assert all(part.isfinite().all() for part in (value, *slopes)), (size, column, y, var)
                assert case.likelihood.expectation(output).isfinite().all()

    def test_the_dtype_of_outputs_is_kept_and_results_agree(self, case: Case, dtype: torch.dtype) -> None:
        output, noise = outputs(case, 8).to(dtype), normals(case, 8).to(dtype)
        y = case.likelihood.sample(output, noise)
        var = output.square() + 0.1
        for found, wide in (
            (case.likelihood.log_prob(output, y), case.likelihood.log_prob(output.double(), _double(y))),
            (
                case.likelihood.log_evidence(output, var, y),
                case.likelihood.log_evidence(output.double(), var.double(), _double(y)),
            ),
            (case.likelihood.expectation(output), case.likelihood.expectation(output.double())),
        ):
            assert found.dtype == dtype
            assert torch.allclose(found.double(), wide, rtol=1e-4, atol=1e-4)

    def test_it_is_the_same_under_vmap(self, case: Case, dtype: torch.dtype) -> None:
        output, noise = outputs(case, 12).to(dtype), normals(case, 12).to(dtype)
        var, y = output.square() + 0.1, case.likelihood.sample(output, noise)
        stacked = [part.view(3, 4, *part.shape[1:]) for part in (output, noise, var, y)]
        many = torch.vmap(case.likelihood.sample)(*stacked[:2])
        assert torch.allclose(many.flatten(0, 1), y)
        close = {"rtol": 1e-4, "atol": 1e-5}
        many = torch.vmap(case.likelihood.log_prob)(stacked[0], stacked[3])
        assert torch.allclose(many.flatten(), case.likelihood.log_prob(output, y), **close)
        many = torch.vmap(case.likelihood.log_evidence)(stacked[0], stacked[2], stacked[3])
        assert torch.allclose(many.flatten(), case.likelihood.log_evidence(output, var, y), **close)


def _double(y: Tensor) -> Tensor:
    return y.double() if y.is_floating_point() else y


def task(case: Case, n: int, runs: int = 2) -> Data:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 5, generator=g, dtype=DOUBLE)
    return dataset(x, case.likelihood.sample(outputs(case, n, scale=0.5), normals(case, n)), "t", "h", runs)


def network(case: Case) -> Network:
    return Network(mlp(5, [4]).double(), 4, case.likelihood)


def belief(model: Network, case: Case) -> MeanField:
    layout = model.prior({"h": case.units}).layout
    mean, log_var = 0.3 * torch.randn(2, 2, layout.size, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    return MeanField(layout, mean, log_var - 3)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
class TestEnginesTakeIt:
    def test_both_engines_give_the_same_gradients_predictions_and_outputs(self, case: Case) -> None:
        model, data = network(case), task(case, 7)
        q = belief(model, case)
        engine = choose(model, q.layout, ("h",), q.mean)
        assert isinstance(engine, Layered)
        general = General(model, q.layout)
        theta = q.draw(torch.randn(2, 3, q.layout.size, generator=torch.Generator().manual_seed(3), dtype=DOUBLE))
        for found, exact in zip(engine.gradient(theta, data, 2.0), general.gradient(theta, data, 2.0), strict=True):
            assert torch.allclose(found, exact)
        assert torch.allclose(engine.squares(q.mean, data), general.squares(q.mean, data))
        assert torch.allclose(engine.predictions(theta, data.x, "h"), general.predictions(theta, data.x, "h"))
        assert torch.allclose(engine.outputs(theta, data.x, "h"), general.outputs(theta, data.x, "h"))

    def test_predictions_of_draws_are_the_expectation_at_their_outputs(self, case: Case) -> None:
        model, data, rng = network(case), task(case, 7), Rng((0, 1))
        q = belief(model, case)
        f = predict_outputs(q, model, data.x, "h", rng, draws=5)
        assert f.shape == (2, 5, 7, case.units)
        each = predict_draws(q, model, data.x, "h", rng, draws=5)
        assert torch.allclose(case.likelihood.expectation(f.flatten(0, 2)).view(each.shape), each)
        local, drawn = (predict(q, model, data.x, "h", rng, 4000, how) for how in ("local", "weights"))
        assert torch.allclose(local, drawn, rtol=0.1, atol=0.05)

    def test_fits_curvature_and_moment_matching_take_it(self, case: Case) -> None:
        model, data = network(case), task(case, 12)
        model.check(data, {"h": case.units})
        prior = model.prior({"h": case.units}).to(DOUBLE)
        target = Target(prior.expand(2), model, data, prior)
        for project in (VariationalKL(Ascent(2, 6, 0.01), 2), MomentMatching()):
            q = project(target, Rng((0, 1)))
            assert q.mean.isfinite().all()
            assert not torch.equal(q.mean[0], prior.mean[0])
        layout, theta = prior.layout, belief(model, case).mean
        for kind in ("true", "empirical"):
            phi = Curvature(kind)(model, layout, theta, data, Rng((0, 1)))  # type: ignore[arg-type]
            assert phi.isfinite().all()
            assert float(phi.amax()) > 0

    def test_drawn_labels_approach_exact_ones_in_kronecker_curvature(self, case: Case) -> None:
        model = Network(nn.Flatten(), 5, case.likelihood)
        few, many = task(case, 6), task(case, 1)
        many = dataset(few.x[0].repeat(2000, 1), few.y[0].repeat(2000, *(1,) * (few.y.dim() - 2)), "t", "h", 1)
        layout = model.prior({"h": case.units}).layout
        theta = 0.2 * torch.randn(1, layout.size, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
        found = []
        for labels, data in (("exact", few.select([0])), ("true", many)):
            curvature = KroneckerCurvature(labels=labels)  # type: ignore[arg-type]
            blocks = curvature.layers(model, layout, theta, data)
            information = curvature(model, layout, theta.unsqueeze(1), data, blocks, Rng((0,)))
            (pair,) = information.pairs.values()
            found.append(pair.G / data.size)
        assert torch.allclose(found[0], found[1], rtol=0.15, atol=0.05 * float(found[0].abs().amax()))


@pytest.mark.parametrize(
    ("likelihood", "y", "units", "words"),
    [
        (Normal((1.0, 2.0)), torch.zeros(1, 4, 3), 3, "the noise has 2 deviations but the head has 3 outputs"),
        (HeteroscedasticNormal(), torch.zeros(1, 4), 3, "3 units; a mean and a log deviation per target"),
        (
            HeteroscedasticNormal(),
            torch.zeros(1, 4, 2),
            2,
            "2 values per example but the head has 2 units.* for 1; give",
        ),
        (HeteroscedasticNormal(), torch.zeros(1, 4).long(), 2, "takes floating-point targets"),
        (Poisson(), torch.tensor([[1.0, 0.5]]), 1, "targets hold 0.5; .* counts"),
        (Poisson(), torch.tensor([[1, -2]]), 1, "targets hold -2; .* counts"),
        (Poisson(), torch.tensor([[True]]), 1, "counts have dtype torch.bool"),
        (Poisson(), torch.zeros(1, 4, 3), 2, "3 values per example but the head has 2; make them equal"),
    ],
)
def test_targets_that_do_not_fit_are_refused(likelihood: Likelihood, y: Tensor, units: int, words: str) -> None:
    with pytest.raises(VclError, match=f"task 'x': .*{words}"):
        likelihood.check(y, units, "task 'x'")


@pytest.mark.parametrize("noise", [(), (1.0, 0.0), (1.0, float("nan")), [1.0], "1"])
def test_deviations_that_are_none_are_refused(noise: object) -> None:
    with pytest.raises(VclError, match=r"noise is .*; a deviation must be a finite number above 0, or a tuple"):
        Normal(noise)  # type: ignore[arg-type]
    with pytest.raises(VclError, match="the noise has 2 deviations but there are 1 outputs"):
        Normal((1.0, 2.0)).log_prob(torch.zeros(3, 1), torch.zeros(3))


def test_too_many_targets_have_no_sum_over_labels() -> None:
    with pytest.raises(VclError, match=r"3\^5 terms; use labels='true'"):
        HeteroscedasticNormal().label_points(torch.zeros(2, 10))


def test_counts_of_integer_dtypes_and_floats_mean_the_same() -> None:
    output, y = outputs(CASES["counts"], 5), torch.tensor([0, 1, 7, 3, 250])
    Poisson().check(y[None].to(torch.uint8), 1, "x")
    for dtype in (torch.uint8, torch.int32, torch.float32):
        assert torch.equal(Poisson().log_prob(output, y.to(dtype)), Poisson().log_prob(output, y))
    exact = torch.distributions.Poisson(output[:, 0].exp()).log_prob(y)
    assert torch.allclose(Poisson().log_prob(output, y), exact)


def test_counts_keep_their_digits_in_float32_where_the_rate_is_near() -> None:
    """y log rate - rate - log y! would be a difference of numbers near 10^7."""
    y = torch.tensor([1e6])
    f = y.log()[:, None]
    exact = Poisson().log_prob(f.double(), y.double()).item()
    assert Poisson().log_prob(f, y).item() == pytest.approx(exact, abs=1e-4)
    large = torch.distributions.Poisson(f.double()[:, 0].exp()).log_prob(y.double()).item()
    assert exact == pytest.approx(large, abs=1e-6)


def test_counts_are_drawn_by_their_quantiles_at_any_rate() -> None:
    """The smallest y with P(Y <= y) >= Phi(z), whatever the expansion that the search starts from."""
    f, z = torch.meshgrid(torch.linspace(-15, 12, 109).double(), torch.linspace(-6.9, 6.9, 139).double(), indexing="ij")
    y = Poisson().sample(f.reshape(-1, 1), z.reshape(-1)).view(f.shape)
    level = torch.special.ndtr(z)
    assert bool((Poisson().cdf(f, y) >= level).all())
    assert bool((Poisson().cdf(f, y - 1) < level).all())


@pytest.mark.parametrize("whole", [True, False])
def test_counts_of_several_heads_are_each_scored_by_their_own(whole: bool) -> None:
    """One batch, in integers or floats, by both engines."""
    case = CASES["counts"]
    parts = [task(case, n, 1) for n in (4, 3)]
    if whole:
        parts = [part._replace(y=part.y.long()) for part in parts]
    a, b = (part._replace(sources=(Source(head, head),)) for part, head in zip(parts, ("h", "g"), strict=True))
    mixed, model = concat(a, b), network(case)
    layout = model.prior({"h": 1, "g": 1}).layout
    theta = 0.3 * torch.randn(1, 2, layout.size, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    engine, general = choose(model, layout, mixed.heads, theta), General(model, layout)
    assert isinstance(engine, Layered)
    for found, exact in zip(engine.gradient(theta, mixed, 1.0), general.gradient(theta, mixed, 1.0), strict=True):
        assert torch.allclose(found, exact)
    alone = [General(model, layout).log_lik(theta, part) for part in (a, b)]
    assert torch.allclose(general.log_lik(theta, mixed), torch.cat(alone, -1))
