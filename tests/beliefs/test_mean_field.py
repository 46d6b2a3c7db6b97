import torch
from torch.distributions import Normal, kl_divergence

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import KlTo, MeanField, kl, standard_normal

LAYOUT = Layout(("trunk.w", "heads.a.w"), ((3, 2), (4,)))


def some(runs: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64) -> MeanField:
    g = torch.Generator().manual_seed(seed)
    draw = torch.randn(2, runs, LAYOUT.size, generator=g, dtype=dtype)
    return MeanField(LAYOUT, draw[0], draw[1])


def test_trap_kl_averaged_over_weights() -> None:
    """KL(q || p) is the sum over parameters of the textbook value, not their mean."""
    q, p = some(seed=1), some(seed=2)
    exact = kl_divergence(Normal(q.mean, (0.5 * q.log_var).exp()), Normal(p.mean, (0.5 * p.log_var).exp())).sum(-1)
    assert torch.allclose(kl(q, p), exact, rtol=1e-12)
    assert torch.equal(kl(q, q), torch.zeros(3, dtype=torch.float64))


def test_kl_gradient_written_out_is_the_gradient() -> None:
    q, p = some(seed=4), some(seed=3)
    mean, log_var = q.mean.requires_grad_(), q.log_var.requires_grad_()
    value = kl(q, p)
    expected = torch.autograd.grad(value.sum(), (mean, log_var))
    start = some(seed=5)
    g_mean, g_log_var = start.mean.clone(), start.log_var.clone()
    taken = KlTo(p).subtract_gradient(mean.detach(), log_var.detach(), g_mean, g_log_var)
    assert torch.allclose(taken, value.detach(), rtol=1e-12)
    assert torch.allclose(g_mean, start.mean - expected[0], rtol=1e-12)
    assert torch.allclose(g_log_var, start.log_var - expected[1], rtol=1e-12)


def test_growing_puts_new_heads_at_the_prior_and_moves_nothing() -> None:
    q = some()
    prior = standard_normal(LAYOUT.extend(Layout(("heads.b.w",), ((5,),))), var=2.0)
    grown = q.grow(prior)
    assert torch.equal(grown.mean[:, : LAYOUT.size], q.mean)
    assert torch.equal(grown.log_var[:, : LAYOUT.size], q.log_var)
    assert torch.equal(grown.mean[:, LAYOUT.size :], torch.zeros(3, 5, dtype=torch.float64))
    assert torch.allclose(grown.log_var[:, LAYOUT.size :].exp(), torch.tensor(2.0, dtype=torch.float64))
    assert grown.grow(prior).layout == grown.layout


def test_merging_a_restriction_back_changes_that_part_alone() -> None:
    q = some()
    part = q.restrict(LAYOUT.touched([]))
    merged = q.merge(MeanField(part.layout, part.mean + 1, part.log_var - 1))
    assert torch.equal(merged.mean[:, 6:], q.mean[:, 6:])
    assert torch.equal(merged.log_var[:, 6:], q.log_var[:, 6:])
    assert torch.equal(merged.mean[:, :6], q.mean[:, :6] + 1)
    assert torch.equal(q.merge(part).mean, q.mean)


def test_draws_have_the_mean_and_variance_of_q_whatever_axes_stand_between() -> None:
    q = some(runs=2)
    noise = torch.randn(2, 4, 50_000, LAYOUT.size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    theta = q.draw(noise)
    assert torch.allclose(theta.mean((1, 2)), q.mean, atol=0.03)
    assert torch.allclose(theta.var((1, 2)).log(), q.log_var, atol=0.03)


def test_it_is_its_own_prior_and_starts_wide_where_it_is_asked_to() -> None:
    q = some()
    assert MeanField.from_prior(q) is q
    start = q.start(q.mean + 1, {"heads.a.w": 0}, 0.25)
    assert torch.equal(start.mean, q.mean + 1)
    assert torch.equal(start.log_var[:, :6], q.log_var[:, :6])
    assert torch.allclose(start.log_var[:, 6:].exp(), torch.tensor(0.25, dtype=torch.float64))
