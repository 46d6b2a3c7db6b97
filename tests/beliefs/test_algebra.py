"""Product, quotient, power and combine against the exact posteriors of linear models."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from made import linear_data
from oracles import linear_posterior
from vcl.beliefs.algebra import COMBINE_RULES, combine, power, product, quotient, rule
from vcl.beliefs.factors import DiagonalFactor, FullFactor
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.data import Data
from vcl.errors import VclError
from vcl.models import LinearGaussian
from vcl.ops.rng import Rng
from vcl.projections import Exact, Target

MODEL = LinearGaussian(4, 0.5, 2.0)
PRIOR = FullGaussian.from_prior(MODEL.prior({}).to(torch.float64).expand(2))
TASKS = [linear_data(n, seed, runs=2) for seed, n in enumerate((3, 9, 20))]
"""The first has fewer examples than there are parameters, so that what it says alone is improper."""


def learned(q: FullGaussian, *tasks: Data) -> FullGaussian:
    for data in tasks:
        q = Exact()(Target(q, MODEL, data, MODEL.prior({})), Rng((0, 1)))
    return q


def of_all(*tasks: Data) -> tuple[Tensor, Tensor]:
    """The textbook's posterior of all these examples."""
    X, y = (torch.cat([getattr(data, part)[0] for data in tasks]) for part in ("x", "y"))
    return linear_posterior(X, y, 0.5, 2.0)


def same(q: Any, mean: Tensor, precision: Tensor) -> bool:
    pairs = ((q.mean, mean), (q.precision, precision))
    return all(torch.allclose(got, want.expand_as(got), rtol=1e-9, atol=1e-9) for got, want in pairs)


class TestExactPosteriors:
    def test_posteriors_of_tasks_over_the_prior_are_the_posterior_of_all_data(self) -> None:
        clients = [learned(PRIOR, data) for data in TASKS]
        together = quotient(product(product(clients[0], clients[1]), clients[2]), power(PRIOR, 2))
        assert same(together, *of_all(*TASKS))
        assert same(combine(clients, "product", PRIOR), *of_all(*TASKS))
        assert same(combine(clients[:1], "product", PRIOR), *of_all(TASKS[0]))

    def test_a_site_multiplied_in_is_its_data_learned(self) -> None:
        """Also where the data are fewer than the parameters: the site is improper, and the product is not."""
        site = quotient(learned(PRIOR, TASKS[0]).factor(), PRIOR.factor())
        assert isinstance(site, FullFactor)
        assert torch.linalg.matrix_rank(site.precision).tolist() == [3, 3]
        assert same(product(learned(PRIOR, TASKS[2]), site), *of_all(TASKS[2], TASKS[0]))
        assert same(product(site, learned(PRIOR, TASKS[2])), *of_all(TASKS[2], TASKS[0]))

    def test_a_site_is_the_log_likelihood_up_to_a_constant(self) -> None:
        site = quotient(learned(PRIOR, TASKS[0]).factor(), PRIOR.factor())
        theta = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        X, y = MODEL.design(TASKS[0])
        wanted = 0.5 * (y.unsqueeze(1) - theta @ X.mT).square().sum(-1) / MODEL.noise**2
        gaps = site.pull(theta) - wanted
        assert torch.allclose(gaps, gaps[:, :1].expand_as(gaps), atol=1e-9)

    def test_a_quotient_forgets_a_batch_of_data_exactly(self) -> None:
        all_data = learned(PRIOR, *TASKS)
        for gone in range(3):
            site = quotient(learned(PRIOR, TASKS[gone]).factor(), PRIOR.factor())
            assert same(quotient(all_data, site), *of_all(*(TASKS[t] for t in range(3) if t != gone)))

    def test_a_power_tempers(self) -> None:
        """q^{1/2} is the posterior of data with half the weight, from a prior of half the precision; by runs."""
        q = learned(PRIOR, TASKS[1])
        mean, precision = of_all(TASKS[1])
        tempered = power(q, torch.tensor([0.5, 3.0]))
        assert torch.allclose(tempered.mean, mean.expand(2, -1), rtol=1e-9)
        assert torch.allclose(tempered.precision[0], 0.5 * precision, rtol=1e-9)
        assert torch.allclose(tempered.precision[1], 3 * precision, rtol=1e-9)
        site = quotient(q.factor(), PRIOR.factor())
        halved = product(PRIOR, power(site, 0.5))
        X, y = TASKS[1].x[0], TASKS[1].y[0]
        assert same(halved, *linear_posterior(X, y, 0.5 * 2**0.5, 2.0))

    def test_one_run_stands_for_all(self) -> None:
        one = PRIOR.select(torch.tensor([0]))
        q = learned(PRIOR, TASKS[1])
        assert same(quotient(product(q, one), one), *of_all(TASKS[1]))
        assert quotient(product(one, q), one).mean.shape == (2, 4)


LAYOUT = Layout(("w", "b"), ((2, 2), ()))


def mean_field(seed: int, runs: int = 3) -> MeanField:
    draw = torch.randn(2, runs, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return MeanField(LAYOUT, draw[0], draw[1])


def as_full(q: MeanField) -> FullGaussian:
    return FullGaussian.from_prior(q)


class TestMeanField:
    def test_it_is_the_full_gaussian_without_correlations(self) -> None:
        a, b = mean_field(0), mean_field(1)
        wide = power(b, 0.01)
        for ours, full in (
            (product(a, b), product(as_full(a), as_full(b))),
            (quotient(a, wide), quotient(as_full(a), as_full(wide))),
            (power(a, 0.3), power(as_full(a), 0.3)),
            (product(a, b.factor()), product(as_full(a), b)),
        ):
            assert isinstance(ours, MeanField)
            assert isinstance(full, FullGaussian)
            assert torch.allclose(ours.mean, full.mean, rtol=1e-9)
            assert torch.allclose((-ours.log_var).exp().diag_embed(), full.precision, rtol=1e-9)

    def test_kinds_of_answers(self) -> None:
        q, factor = mean_field(0), mean_field(0).factor()
        assert isinstance(product(factor, q), MeanField)
        assert isinstance(product(factor, factor), DiagonalFactor)
        assert isinstance(quotient(factor, power(q, 2.0)), DiagonalFactor)
        assert isinstance(product(q, as_full(q)), FullGaussian)
        assert isinstance(product(factor, as_full(q).factor()), FullFactor)

    def test_factors_may_lose_all_and_more(self) -> None:
        q = mean_field(0)
        nothing = quotient(q.factor(), q.factor())
        assert not nothing.precision.any()
        assert torch.equal(nothing.centre, q.mean)
        below = quotient(q.factor(), power(q.factor(), 3.0))
        assert torch.allclose(below.precision, -2 * q.factor().precision)
        assert torch.allclose(below.centre, q.mean)
        assert torch.allclose(power(q.factor(), -1.5).precision, -1.5 * q.factor().precision)
        assert not power(q.factor(), 0.0).precision.any()

    def test_a_factor_with_a_slope_alone_has_no_centre(self) -> None:
        q = mean_field(0)
        moved = q._replace(mean=q.mean + LAYOUT.pad(torch.ones(1).double(), Layout(("b",), ((),))))
        with pytest.raises(VclError, match="precision 0 but a slope at b in run 0"):
            quotient(q.factor(), moved.factor())
        with pytest.raises(VclError, match="precision 0 but a slope at some direction of run 0"):
            quotient(as_full(q).factor(), as_full(moved).factor())


class TestPoints:
    def points(self, *places: float) -> MeanField:
        mean = torch.tensor([places])
        return MeanField(Layout(("p", "w"), ((1,), (1,))), mean, torch.tensor([[-torch.inf, 0.0]]))

    def test_a_point_stays_where_it_is(self) -> None:
        point, spread = self.points(3.0, 1.0), MeanField(self.points(0).layout, torch.zeros(1, 2), torch.zeros(1, 2))
        for found in (product(point, spread), product(spread, point), quotient(point, power(spread, 0.5))):
            assert found.mean[0, 0] == 3
            assert found.log_var[0, 0] == -torch.inf
            assert found.log_var.isfinite().tolist() == [[False, True]]
        for same in (product(point, point), quotient(product(point, point), point), power(point, 0.2)):
            assert same.mean.tolist() == point.mean.tolist()
            assert same.log_var[0, 0] == -torch.inf
        assert product(point, spread.factor()).mean[0, 0] == 3

    def test_two_points_must_be_one(self) -> None:
        for join in (product, quotient):
            with pytest.raises(VclError, match=r"no value at p\[0\] in run 0, where both are points"):
                join(self.points(3.0, 1.0), self.points(4.0, 1.0))

    def test_nothing_is_divided_by_a_point(self) -> None:
        spread = MeanField(self.points(0).layout, torch.zeros(1, 2), torch.zeros(1, 2))
        with pytest.raises(VclError, match=r"precision -inf at p\[0\] in run 0"):
            quotient(spread, self.points(0.0, 1.0))

    def test_a_full_gaussian_meets_no_points(self) -> None:
        full = FullGaussian(self.points(0).layout, torch.zeros(1, 2), torch.eye(2)[None])
        with pytest.raises(VclError, match="a belief with points cannot be combined with a full Gaussian"):
            product(self.points(1.0, 1.0), full)


class TestRefusals:
    def test_a_precision_that_would_not_stay_positive_is_named(self) -> None:
        a = MeanField(LAYOUT, torch.zeros(3, 5), torch.zeros(3, 5))
        narrow = torch.zeros(3, 5)
        narrow[1, 3] = -1.0
        b = power(MeanField(LAYOUT, torch.zeros(3, 5), narrow), 0.5)
        with pytest.raises(VclError, match=r"precision -0\.359\d* at w\[1, 1\] in run 1"):
            quotient(a, b)
        with pytest.raises(VclError, match=r"not positive definite at w\[1, 1\] in run 1"):
            quotient(as_full(a), as_full(b))
        with pytest.raises(VclError, match=r"precision 0 at w\[0, 0\] in run 0"):
            quotient(a, a)

    def test_layouts_runs_and_kinds_must_agree(self) -> None:
        q = mean_field(0)
        other = MeanField(Layout(("w", "c"), ((2, 2), ())), *q[1:])
        with pytest.raises(VclError, match="same layout, but 'b' in one is 'c' in the other"):
            product(q, other)
        with pytest.raises(VclError, match="same layout, but shapes or numbers differ"):
            product(q, MeanField(Layout(("w", "b"), ((4,), ())), *q[1:]))
        with pytest.raises(VclError, match="not 3 and 2"):
            quotient(q, q.select(torch.tensor([0, 1])))
        with pytest.raises(VclError, match="the product of a Point is not known"):
            product(q, Point(q.layout, q.mean))  # type: ignore[call-overload]
        with pytest.raises(VclError, match="the power of a Point is not known"):
            power(Point(q.layout, q.mean), 2.0)  # type: ignore[type-var]

    @pytest.mark.parametrize("exponent", [0.0, -1.0, float("nan"), torch.tensor([1.0, 0.0, 1.0])], ids=str)
    def test_the_power_of_a_belief_is_above_nought(self, exponent: Any) -> None:
        with pytest.raises(VclError, match="a belief takes one above 0"):
            power(mean_field(0), exponent)

    def test_one_exponent_or_one_for_each(self) -> None:
        with pytest.raises(VclError, match=r"the exponent has shape \(2,\) for 3 runs"):
            power(mean_field(0), torch.ones(2))


class TestCombine:
    @pytest.mark.parametrize("kind", [MeanField.from_prior, FullGaussian.from_prior], ids=["mean-field", "full"])
    def test_a_mixture_has_the_moments_of_its_draws(self, kind: Any) -> None:
        qs = [kind(mean_field(seed, 1)) for seed in range(3)]
        found = combine(qs, "mixture")
        n = 200_000
        g = torch.Generator().manual_seed(0)
        draws = torch.cat([q.draw(torch.randn(1, n, 5, generator=g, dtype=torch.float64))[0] for q in qs])
        var = found.log_var.exp()[0] if kind == MeanField.from_prior else found.precision.inverse()[0].diagonal()
        error = (var / len(draws)).sqrt()
        assert ((draws.mean(0) - found.mean[0]).abs() < 5 * error).all()
        fourth = (draws - draws.mean(0)).pow(4).mean(0)
        assert ((draws.var(0) - var).abs() < 5 * ((fourth - var**2) / len(draws)).sqrt()).all()
        if kind == FullGaussian.from_prior:
            assert torch.allclose(found.precision.inverse()[0], draws.T.cov(), atol=0.05)

    def test_the_geometric_mean_is_nearest_to_all(self) -> None:
        """No other mean or variance has a smaller sum_k KL(q || q_k)."""
        qs = [mean_field(seed) for seed in range(3)]
        found = combine(qs, "geometric")

        def far(mean: Tensor, log_var: Tensor) -> Tensor:
            here = Normal(mean, (0.5 * log_var).exp())
            return sum((kl_divergence(here, Normal(q.mean, (0.5 * q.log_var).exp())) for q in qs), torch.tensor(0.0))

        leaves = found.mean.clone().requires_grad_(), found.log_var.clone().requires_grad_()
        slopes = torch.autograd.grad(far(*leaves).sum(), leaves)
        assert all(torch.allclose(slope, torch.zeros_like(slope), atol=1e-10) for slope in slopes)

    def test_one_belief_is_its_own_combination(self) -> None:
        q = mean_field(0)
        for name, prior in (("product", q), ("geometric", None), ("mixture", None)):
            found = combine([q], name, prior)
            assert torch.allclose(found.mean, q.mean)
            assert torch.allclose(found.log_var, q.log_var)

    def test_mistakes_are_one_sentence(self) -> None:
        q = mean_field(0)
        point = Point(q.layout, q.mean)
        for given, words in (
            (([],), "no beliefs to combine"),
            (([q], "average"), "unknown rule 'average'; accepted: geometric, mixture, product"),
            (([q, q],), "give prior="),
            (([q, q], "mixture", q), "takes no prior"),
            (([q, q], "geometric", q), "takes no prior"),
            (([point],), "the rule 'product' does not know the family Point; it has no rule: add one"),
            (([q, as_full(q)], "mixture"), "MeanField and FullGaussian cannot be combined"),
            (([q, q], "product", as_full(q)), "MeanField and FullGaussian cannot be combined"),
            (([q, q.select(torch.tensor([0, 1]))], "mixture"), "not 3 and 2"),
        ):
            with pytest.raises(VclError, match=words):
                combine(*given)  # type: ignore[misc]

    def test_a_family_that_is_not_closed_adds_a_rule_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(COMBINE_RULES, "product", dict(COMBINE_RULES["product"]))
        monkeypatch.delitem(COMBINE_RULES, "average", raising=False)

        @rule("average", Point)
        def average(points: Any, prior: Any) -> Point:
            return Point(points[0].layout, torch.stack([point.mean for point in points]).mean(0))

        ends = [Point(LAYOUT, torch.full((1, 5), value)) for value in (1.0, 2.0)]
        assert combine(ends, "average").mean.unique().tolist() == [1.5]
        with pytest.raises(VclError, match="'product' does not know the family Point; its rules are average"):
            combine(ends)
        del COMBINE_RULES["average"]
