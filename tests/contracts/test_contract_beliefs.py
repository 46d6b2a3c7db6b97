"""What every family of beliefs keeps, just by being registered: see vcl/beliefs/registry.py."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from vcl.beliefs.belief import Roles
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.kronecker import Factors, Kronecker
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField, standard_normal
from vcl.beliefs.point import Point
from vcl.beliefs.quadratic import Quadratic
from vcl.beliefs.registry import FAMILIES, name_of
from vcl.errors import VclError
from vcl.ops.layer_weights import Block

LAYOUT = Layout(("trunk.w", "heads.a.w", "heads.b.w"), ((2, 2), (3,), ()))
PART = LAYOUT.touched(["b"])
"""Neither the first nor the last tensors alone."""
REST = LAYOUT.touched(["a"]).where(lambda name: name.startswith("heads"))
GROWN = LAYOUT.extend(Layout(("heads.c.w",), ((2,),)))
NONE = Layout((), ())
RUNS, D = 3, LAYOUT.size


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive(seed: int, layout: Layout) -> Tensor:
    root = numbers(seed, RUNS, layout.size, layout.size)
    return root @ root.mT + torch.eye(layout.size)


def kronecker(seed: int, layout: Layout) -> Kronecker:
    """Its matrix has factors and rotations; the rest is independent as it is."""
    A, G, *roots = (numbers(seed + at, RUNS, 2, 2) for at in range(4))
    turns = (torch.linalg.qr(root).Q for root in roots)
    factors = Factors(A @ A.mT, G @ G.mT, numbers(seed, RUNS).square(), *turns)
    blocks = {Block("trunk.w", None): factors} if "trunk.w" in layout.names else {}
    return Kronecker(layout, *numbers(seed, 2, RUNS, layout.size), blocks)


def kronecker_covariance(q: Kronecker) -> Tensor:
    """Q V Q^T with Q = Q_G (x) Q_A for the matrix, which comes first."""
    factors = q.blocks[Block("trunk.w", None)]
    turns = [
        torch.block_diag(torch.kron(G, A), torch.eye(D - 4))
        for G, A in zip(factors.Q_G, factors.Q_A, strict=True)
    ]  # fmt: skip
    turn = torch.stack(turns).double()
    return turn @ q.log_var.exp().diag_embed() @ turn.mT


MADE: dict[str, Callable[[int, Layout], Any]] = {
    "mean-field": lambda seed, layout: MeanField(layout, *numbers(seed, 2, RUNS, layout.size)),
    "full": lambda seed, layout: FullGaussian(layout, numbers(seed, RUNS, layout.size), positive(seed, layout)),
    "kronecker": kronecker,
    "point": lambda seed, layout: Point(layout, numbers(seed, RUNS, layout.size)),
    "quadratic": lambda seed, layout: Quadratic(
        layout, *numbers(seed, 2, RUNS, layout.size), numbers(seed + 1, RUNS, layout.size).square()
    ),
}
"""A member of each family, from a seed, for RUNS runs."""

COVARIANCE: dict[str, Callable[[Any], Tensor]] = {
    "mean-field": lambda q: q.log_var.exp().diag_embed(),
    "full": lambda q: q.precision.inverse(),
    "kronecker": kronecker_covariance,
    "point": lambda q: q.mean.new_zeros(RUNS, D, D),
    "quadratic": lambda q: q.mean.new_zeros(RUNS, D, D),
}
INDEPENDENT = [name for name in FAMILIES if name != "full"]
"""Families whose tensors are independent of each other."""
WITH_FACTOR = [name for name, family in FAMILIES.items() if hasattr(family, "factor")]
VARIATIONAL = [name for name, family in FAMILIES.items() if hasattr(family, "bind")]


def same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    one, two = a.tensors(), b.tensors()
    return a.layout == b.layout and one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def near(a: Any, b: Any) -> bool:
    one, two = a.tensors(), b.tensors()
    return a.layout == b.layout and all(torch.allclose(one[key], two[key], rtol=1e-9, atol=1e-12) for key in one)


def test_every_registered_family_is_listed() -> None:
    assert set(MADE) == set(COVARIANCE) == set(FAMILIES)
    assert set(VARIATIONAL) >= {"full"}
    assert set(WITH_FACTOR) >= {"mean-field", "full", "quadratic"}


@pytest.mark.parametrize("name", FAMILIES)
class TestEveryFamily:
    def test_its_name_is_its_own(self, name: str) -> None:
        assert name_of(MADE[name](0, LAYOUT)) == name

    def test_growing_appends_at_the_prior_and_leaves_the_old_as_it_was(self, name: str) -> None:
        q, prior = MADE[name](0, LAYOUT), standard_normal(GROWN, 0.25)
        grown = q.grow(prior)
        assert grown.layout == GROWN
        assert near(grown.restrict(LAYOUT), q)
        for key, value in grown.tensors().items():
            old = value[(slice(None), *(slice(D),) * (value.dim() - 1))]
            assert torch.equal(old, q.tensors()[key])
        assert not grown.mean[:, D:].any()
        noise = numbers(1, RUNS, 5, GROWN.size)
        stands_at_prior = {0.0, 0.5}  # deviations: a point, or the prior's
        spread = (grown.draw(noise)[..., D:] / noise[..., D:]).abs()
        assert {round(value, 6) for value in spread.flatten().tolist()} <= stands_at_prior
        assert grown.grow(prior).layout == GROWN

    def test_a_head_gets_outputs_at_the_prior_and_the_old_ones_stay(self, name: str) -> None:
        """heads.a has two outputs more, and stands before heads.b; heads.c is new."""
        q, more = MADE[name](0, LAYOUT), Layout(GROWN.names, ((2, 2), (5,), (), (2,)))
        q = q.grow(standard_normal(LAYOUT, 0.25))
        old, new = LAYOUT.leading(more), more.mask({"heads.a.w": 3, "heads.c.w": 0})
        grown = q.grow(standard_normal(more, 0.25))
        assert grown.layout == more
        for key, value in grown.tensors().items():
            square = value.shape[1:] == (more.size, more.size)
            if value.shape[-1] == more.size:
                kept = value[:, old][:, :, old] if square else value[:, old]
                assert torch.equal(kept, q.tensors()[key])
                assert not (square and value[:, new][:, :, ~new].any())
            else:
                assert torch.equal(value, q.tensors()[key])
        assert not grown.mean[:, new].any()
        noise = numbers(1, RUNS, 5, more.size)
        spread = (grown.draw(noise)[..., new] / noise[..., new]).abs()
        assert {round(value, 6) for value in spread.flatten().tolist()} <= {0.0, 0.5}
        assert same(grown.grow(standard_normal(more, 9.0)), grown)
        assert near(grown.restrict(LAYOUT.touched(["b"])), q.restrict(LAYOUT.touched(["b"])))
        with pytest.raises(VclError, match="a head may only get more outputs"):
            grown.grow(standard_normal(LAYOUT))

    def test_a_restriction_merged_back_changes_nothing(self, name: str) -> None:
        q = MADE[name](0, LAYOUT)
        assert near(q.merge(q.restrict(PART)), q)
        assert same(q.merge(q), q)
        assert same(q.restrict(LAYOUT), q)

    def test_a_merged_part_is_there(self, name: str) -> None:
        q, part = MADE[name](0, LAYOUT), MADE[name](5, PART)
        merged = q.merge(part)
        assert merged.layout == LAYOUT
        assert near(merged.restrict(PART), part)
        assert torch.equal(LAYOUT.pick(merged.mean, PART), part.mean)

    def test_a_selection_is_its_runs_alone(self, name: str) -> None:
        q, runs = MADE[name](0, LAYOUT), torch.tensor([2, 0])
        chosen = q.select(runs)
        assert all(torch.equal(value, q.tensors()[key][runs]) for key, value in chosen.tensors().items())
        noise = numbers(1, RUNS, 4, D)
        assert torch.allclose(chosen.draw(noise[runs]), q.draw(noise)[runs], rtol=1e-12)
        part = MADE[name](5, PART)
        assert near(chosen.merge(part.select(runs)), q.merge(part).select(runs))

    def test_one_run_expands_to_many(self, name: str) -> None:
        one = MADE[name](0, LAYOUT).select(torch.tensor([1]))
        many = one.expand(4)
        assert all(value.shape[0] == 4 for value in many.tensors().values())
        assert all(same(many.select(torch.tensor([run])), one) for run in range(4))

    def test_it_goes_to_another_precision_and_back(self, name: str) -> None:
        q = MADE[name](0, LAYOUT)
        there = q.to(torch.float32)
        assert all(value.dtype == torch.float32 for value in there.tensors().values())
        back = there.to(torch.float64)
        assert all(torch.allclose(back.tensors()[key], value, rtol=1e-6) for key, value in q.tensors().items())
        assert same(q.to("cpu"), q)

    def test_draws_have_its_mean_and_covariance(self, name: str) -> None:
        """Within five standard errors, for 3 runs of 8 coordinates."""
        q, n = MADE[name](0, LAYOUT), 40_000
        draws = q.draw(numbers(1, RUNS, 2, n // 2, D))
        assert draws.shape == (RUNS, 2, n // 2, D)
        flat, covariance = draws.flatten(1, 2), COVARIANCE[name](q)
        var = covariance.diagonal(dim1=-2, dim2=-1)
        assert ((flat.mean(1) - q.mean).abs() <= 5 * (var / n).sqrt() + 1e-12).all()
        shift = flat - q.mean.unsqueeze(1)
        found = shift.mT @ shift / n
        error = ((var.unsqueeze(-1) * var.unsqueeze(-2) + covariance.square()) / n).sqrt()
        assert ((found - covariance).abs() <= 5 * error + 1e-12).all()
        assert torch.allclose(q.draw(torch.zeros(RUNS, D, dtype=torch.float64)), q.mean)

    def test_its_tensors_are_all_of_it(self, name: str) -> None:
        q = MADE[name](0, LAYOUT)
        back = type(q).from_tensors(LAYOUT, q.tensors())
        assert type(back) is type(q)
        assert same(back, q)
        assert all(value.shape[0] == RUNS for value in q.tensors().values())


@pytest.mark.parametrize("name", INDEPENDENT)
def test_merging_leaves_what_is_independent_bitwise_as_it_was(name: str) -> None:
    q, part = MADE[name](0, LAYOUT), MADE[name](5, PART)
    merged = q.merge(part)
    assert same(merged.restrict(REST), q.restrict(REST))
    assert same(merged.restrict(PART), part)


def test_a_full_gaussian_keeps_its_conditional() -> None:
    """q(rest | part) is the same before and after: its precision, and its mean at any value of the part."""
    q, part = MADE["full"](0, LAYOUT), MADE["full"](5, PART)
    merged = q.merge(part)
    a, b = LAYOUT.positions(PART), LAYOUT.positions(REST)

    def conditional(q: Any, at: Tensor) -> tuple[Tensor, Tensor]:
        covariance = q.precision.inverse()
        gain = covariance[:, b][:, :, a] @ covariance[:, a][:, :, a].inverse()
        mean = q.mean[:, b] + (gain @ (at - q.mean[:, a]).unsqueeze(-1)).squeeze(-1)
        return mean, covariance[:, b][:, :, b] - gain @ covariance[:, a][:, :, b]

    for at in (part.mean, q.mean[:, a], numbers(8, RUNS, PART.size)):
        for before, after in zip(conditional(q, at), conditional(merged, at), strict=True):
            assert torch.allclose(before, after, rtol=1e-8, atol=1e-10)


def test_a_full_gaussian_without_correlations_leaves_the_rest_bitwise() -> None:
    prior = MADE["mean-field"](0, LAYOUT)
    q = FullGaussian.from_prior(prior)
    merged = q.merge(MADE["full"](5, PART))
    assert same(merged.restrict(REST), q.restrict(REST))
    assert same(merged.restrict(PART), MADE["full"](5, PART))


@pytest.mark.parametrize("name", WITH_FACTOR)
@pytest.mark.parametrize("shape", [(RUNS, D), (RUNS, 4, D)], ids=str)
def test_the_gradient_of_a_factor_is_that_of_its_value(name: str, shape: tuple[int, ...]) -> None:
    factor = MADE[name](0, LAYOUT).factor()
    theta, g = numbers(2, *shape).requires_grad_(), numbers(3, *shape)
    value = factor.pull(theta)
    assert value.shape == shape[:-1]
    (slope,) = torch.autograd.grad(value.sum(), theta)
    taken = g.clone()
    with torch.no_grad():
        assert torch.allclose(factor.pull(theta, taken), value, rtol=1e-12)
    assert torch.allclose(taken, g - slope, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", VARIATIONAL)
@pytest.mark.parametrize("climbs", ["log_var", "log_sd"])
class TestVariationalFamilies:
    def fit(self, name: str, climbs: str) -> tuple[Any, Any]:
        """How to climb from a belief, and another belief."""
        return MADE[name](0, LAYOUT).bind(Roles(LAYOUT, LAYOUT, NONE), climbs), MADE[name](7, LAYOUT)

    def test_parameters_and_back(self, name: str, climbs: str) -> None:
        fit, q = self.fit(name, climbs)
        parameters = fit.parameters(q)
        assert all(value.shape[0] == RUNS for value in parameters)
        back = fit.belief(parameters)
        assert all(torch.allclose(back.tensors()[key], value, rtol=1e-9) for key, value in q.tensors().items())

    def test_it_is_no_distance_from_itself(self, name: str, climbs: str) -> None:
        fit, _ = self.fit(name, climbs)
        assert torch.allclose(fit.kl(fit.parameters(MADE[name](0, LAYOUT))), torch.zeros(RUNS).double(), atol=1e-10)

    def test_the_kl_is_that_of_draws(self, name: str, climbs: str) -> None:
        """E_q [log q - log p], whose constants come from the determinants; within five standard errors."""
        fit, q = self.fit(name, climbs)
        parameters, n = fit.parameters(q), 40_000
        theta = fit.draw(parameters, numbers(4, RUNS, n, fit.noise))
        p = MADE[name](0, LAYOUT)
        constant = 0.5 * (COVARIANCE[name](p).logdet() - COVARIANCE[name](q).logdet())
        each = constant.unsqueeze(1) + p.factor().pull(theta) - q.factor().pull(theta)
        assert ((each.mean(1) - fit.kl(parameters)).abs() < 5 * each.std(1) / n**0.5).all()

    def test_draw_and_kl_can_be_differentiated(self, name: str, climbs: str) -> None:
        fit, q = self.fit(name, climbs)
        leaves = tuple(value.clone().requires_grad_() for value in fit.parameters(q))
        value = fit.draw(leaves, numbers(4, RUNS, 2, fit.noise)).square().sum() + fit.kl(leaves).sum()
        slopes = torch.autograd.grad(value, leaves)
        for leaf, slope in zip(leaves, slopes, strict=True):
            assert slope.shape == leaf.shape
            assert slope.isfinite().all()
            assert slope.flatten(1).any(1).all()

    def test_runs_never_meet(self, name: str, climbs: str) -> None:
        fit, q = self.fit(name, climbs)
        leaves = tuple(value.clone().requires_grad_() for value in fit.parameters(q))
        for slope in torch.autograd.grad(fit.kl(leaves)[0], leaves):
            assert not slope[1:].any()

    def test_a_start_is_at_the_mean_and_wide_where_asked(self, name: str, climbs: str) -> None:
        q, mean = MADE[name](0, LAYOUT), numbers(9, RUNS, D)
        start = q.start(mean, {"heads.a.w": 0}, 0.04)
        assert torch.equal(start.mean, mean)
        wide, others = LAYOUT.positions(REST), LAYOUT.positions(PART)
        covariance, before = COVARIANCE[name](start), COVARIANCE[name](q)
        assert torch.allclose(covariance[:, wide][:, :, wide], 0.04 * torch.eye(3).double().expand(RUNS, 3, 3))
        assert not covariance[:, wide][:, :, others].any()
        assert torch.allclose(covariance[:, others][:, :, others], before[:, others][:, :, others], rtol=1e-9)

    def test_a_start_is_wide_in_single_rows(self, name: str, climbs: str) -> None:
        q = MADE[name](0, LAYOUT)
        mask = LAYOUT.mask({"heads.a.w": 1, "heads.b.w": 0})
        covariance, before = (
            COVARIANCE[name](q.start(q.mean, {"heads.a.w": 1, "heads.b.w": 0}, 0.04)),
            COVARIANCE[name](q),
        )
        assert torch.allclose(covariance[:, mask][:, :, mask], 0.04 * torch.eye(3).double().expand(RUNS, 3, 3))
        assert not covariance[:, mask][:, :, ~mask].any()
        assert torch.allclose(covariance[:, ~mask][:, :, ~mask], before[:, ~mask][:, :, ~mask], rtol=1e-9)

    def test_the_prior_is_a_member(self, name: str, climbs: str) -> None:
        prior = standard_normal(LAYOUT, 2.0).to(torch.float64).expand(RUNS)
        q = FAMILIES[name].from_prior(prior)  # type: ignore[attr-defined]
        assert torch.equal(q.mean, prior.mean)
        assert torch.allclose(COVARIANCE[name](q), 2 * torch.eye(D).double().expand(RUNS, D, D))
