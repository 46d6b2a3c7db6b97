"""Penalties: value, gradient, what they hold, and that they are log q of their belief."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from vcl.beliefs.factors import DiagonalFactor, FullFactor
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField

LAYOUT = Layout(("a", "heads.h.b", "c"), ((2,), (1,), (2,)))
FIRST = Layout(("a", "heads.h.b"), ((2,), (1,)))
ENDS = Layout(("a", "c"), ((2,), (2,)))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def diagonal() -> DiagonalFactor:
    return DiagonalFactor(LAYOUT, numbers(3, 5), numbers(3, 5, seed=1).square())


def full() -> FullFactor:
    root = numbers(3, 5, 5, seed=2)
    return FullFactor(LAYOUT, numbers(3, 5), root @ root.mT)


def dense(factor: DiagonalFactor | FullFactor) -> Tensor:
    return factor.precision.diag_embed() if isinstance(factor, DiagonalFactor) else factor.precision


BOTH = pytest.mark.parametrize("factor", [diagonal(), full()], ids=["diagonal", "full"])


@BOTH
@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 5), (3, 7), (3, 4, 7)], ids=str)
def test_the_penalty_is_the_quadratic_and_its_gradient_is_taken_from_g(
    factor: DiagonalFactor | FullFactor, shape: tuple[int, ...]
) -> None:
    """With theta of one or many particles, which may go on behind the factor's own coordinates."""
    theta, g = numbers(*shape, seed=3).requires_grad_(), numbers(*shape, seed=4)
    shift = theta[..., :5] - (factor.centre if theta.dim() == 2 else factor.centre[:, None])
    words = "rd,rde,re->r" if theta.dim() == 2 else "rkd,rde,rke->rk"
    expected = 0.5 * torch.einsum(words, shift, dense(factor), shift)
    (slope,) = torch.autograd.grad(expected.sum(), theta)
    taken = g.clone()
    with torch.no_grad():
        value = factor.pull(theta, taken)
    assert torch.allclose(value, expected, rtol=1e-12)
    assert torch.allclose(factor.pull(theta), expected, rtol=1e-12)
    assert torch.allclose(torch.autograd.grad(factor.pull(theta).sum(), theta)[0], slope, rtol=1e-12)
    assert torch.allclose(taken, g - slope, rtol=1e-12)
    assert torch.equal(taken[..., 5:], g[..., 5:])


@BOTH
def test_a_weight_multiplies_the_penalty_run_by_run(factor: DiagonalFactor | FullFactor) -> None:
    theta, weight = numbers(3, 5, seed=5), torch.tensor([[0.0], [1.0], [2.5]], dtype=torch.float64)
    assert torch.allclose(factor.scaled(weight).pull(theta), weight[:, 0] * factor.pull(theta), rtol=1e-12)


def test_a_full_factor_weighs_independent_tensors_independently() -> None:
    """lambda for what data has informed, 1 for a new head."""
    old, new = full().precision[:, :3, :3], full().precision[:, 3:, 3:]
    joint = torch.stack([torch.block_diag(a, b) for a, b in zip(old, new, strict=True)])
    weight = torch.tensor([7.0, 7, 7, 1, 1], dtype=torch.float64).expand(3, -1)
    found = full()._replace(precision=joint).scaled(weight).precision
    expected = torch.stack([torch.block_diag(7 * a, b) for a, b in zip(old, new, strict=True)])
    assert torch.allclose(found, expected, rtol=1e-12)


@BOTH
@pytest.mark.parametrize("part", [FIRST, ENDS], ids=["first", "ends"])
def test_only_a_part_is_held(factor: DiagonalFactor | FullFactor, part: Layout) -> None:
    """What is not held has no gradient, and its value is of no matter."""
    theta, g = numbers(3, 5, seed=6), torch.zeros(3, 5, dtype=torch.float64)
    held = factor.on(part)
    value = held.pull(theta, g)
    moved = LAYOUT.put(theta + 1, part, LAYOUT.pick(theta, part))
    assert torch.allclose(held.pull(moved), value, rtol=1e-12)
    rest = LAYOUT.where(lambda name: name not in part.names)
    assert not LAYOUT.pick(g, rest).any()
    at_centre = LAYOUT.put(factor.centre, part, LAYOUT.pick(theta, part))
    assert torch.allclose(value, factor.pull(at_centre), rtol=1e-12)


def test_a_part_that_stands_first_is_a_view_that_looks_at_no_more() -> None:
    factor = diagonal()
    held = factor.on(FIRST)
    assert held.layout == FIRST
    assert held.precision.data_ptr() == factor.precision.data_ptr()
    assert diagonal().on(ENDS).layout == LAYOUT


def test_factors_of_beliefs_are_their_log_densities_up_to_a_constant() -> None:
    theta = numbers(3, 6, 5, seed=7)
    mean_field = MeanField(LAYOUT, numbers(3, 5), numbers(3, 5, seed=1))
    log_q = Normal(mean_field.mean[:, None], (0.5 * mean_field.log_var).exp()[:, None]).log_prob(theta).sum(-1)
    gaps = log_q + mean_field.factor().pull(theta)
    assert torch.allclose(gaps, gaps[:, :1].expand_as(gaps), rtol=1e-10)
    q = FullGaussian(*full()._replace(precision=full().precision + torch.eye(5)))
    gaps = MultivariateNormal(q.mean[:, None], precision_matrix=q.precision[:, None]).log_prob(theta)
    gaps = gaps + q.factor().pull(theta)
    assert torch.allclose(gaps, gaps[:, :1].expand_as(gaps), rtol=1e-10)


def test_trap_points_are_not_held() -> None:
    """Variance 0 is precision infinity, and infinity times no shift is not a number."""
    log_var = torch.tensor([[0.0, -torch.inf]])
    q = MeanField(Layout(("w",), ((2,),)), torch.zeros(1, 2), log_var)
    g = torch.zeros(1, 2)
    assert q.factor().pull(torch.tensor([[2.0, 0.0]]), g).tolist() == [2.0]
    assert g.tolist() == [[-2.0, 0.0]]
    assert q.factor().pull(torch.tensor([[2.0, 9.0]])).tolist() == [2.0]
