"""Merging the old and the new posterior: the weighted mean of natural parameters, and nothing else changes."""

from typing import Any

import pytest
import torch

from made import blob_tasks, shape_tasks, small_network, small_vae
from vcl.beliefs.mean_field import MeanField
from vcl.coresets import RandomK
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.models.base import roles
from vcl.ops.rng import Rng
from vcl.projections import Merged, Target, VariationalKL, merge
from vcl.recursion import Method, initial, learn

FIT = VariationalKL(Ascent(3, 16), 1, natural=NaturalGradient())


def test_natural_parameters_are_weighted() -> None:
    layout = small_network().prior({}).layout
    g = torch.Generator().manual_seed(0)
    old, new = (MeanField(layout, *torch.randn(2, 2, layout.size, generator=g)) for _ in range(2))
    q = merge(old, new, 0.3)
    (s_old, s_new), (m_old, m_new) = ((-p.log_var).exp() for p in (old, new)), (old.mean, new.mean)
    s = 0.7 * s_old + 0.3 * s_new
    torch.testing.assert_close((-q.log_var).exp(), s)
    torch.testing.assert_close(q.mean, (0.7 * s_old * m_old + 0.3 * s_new * m_new) / s)
    assert merge(old, new, 1.0) is new


def test_under_the_recursion_only_what_was_known_and_touched_is_merged() -> None:
    model, (first, second) = small_network(), blob_tasks(2)
    prior = model.prior({"h0": 2, "h1": 2})
    q = FIT(Target(prior, model, first.train, prior), Rng((0,)))
    assert torch.equal(Merged(FIT, 0.6)(Target(prior, model, first.train, prior), Rng((0,))).mean, q.mean)
    new = FIT(Target(q, model, second.train, prior), Rng((1,)))
    merged = Merged(FIT, 0.6)(Target(q, model, second.train, prior), Rng((1,)))
    expected = merge(q, new, 0.6)
    for place in (1, 2):
        parts = [prior.layout.split(each[place]) for each in (merged, new, q, expected)]
        for name in prior.layout.names:
            made, fitted, before, mixed = (part[name] for part in parts)
            if name.startswith("heads.h1."):
                assert torch.equal(made, fitted)
            elif name.startswith("heads.h0."):
                assert torch.equal(made, before)
            else:
                torch.testing.assert_close(made, mixed)
                assert not torch.equal(made, fitted)


def test_points_are_taken_as_they_were_fitted() -> None:
    vae, method = small_vae(), Method[Any](Merged(VariationalKL(Ascent(2, 16), 1, ml_start=False, init="glorot"), 0.5))
    *_, last = learn(initial(vae, method, 1), shape_tasks(2), vae, method, Rng((0,)))
    assert last.propagated.mean.isfinite().all()


def test_points_keep_the_values_of_their_fit() -> None:
    """A point has no density, so it is no part of the product."""
    vae, (task,) = small_vae(), shape_tasks(1)
    fit = VariationalKL(Ascent(2, 16), 1, ml_start=False, init="glorot")
    prior = vae.prior(task.heads)
    q = fit(Target(prior, vae, task.train, prior), Rng((0,)))
    new = fit(Target(q, vae, task.train, prior), Rng((1,)))  # so that the points of its encoder are known
    merged = Merged(fit, 0.5)(Target(q, vae, task.train, prior), Rng((1,)))
    points = roles(vae, prior.layout).points.names
    assert points
    made, fitted = (prior.layout.split(each.mean) for each in (merged, new))
    for name in points:
        assert torch.equal(made[name], fitted[name])
    assert any(not torch.equal(made[name], fitted[name]) for name in made if name not in points)


def test_a_coreset_is_fitted_without_merging() -> None:
    merged = Merged(FIT, 0.3)
    assert Method(merged, RandomK(3)).refit is FIT
    assert Method(merged, RandomK(3), merged).refit is merged
    assert Method(FIT, RandomK(3)).refit is FIT


@pytest.mark.parametrize("weight", [0.0, 1.5, float("nan")])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    model, (task,) = small_network(), blob_tasks(1)
    prior = model.prior({"h0": 2})
    with pytest.raises(VclError, match=r"give the new posterior's share, above 0 and up to 1 \(no merging\)"):
        Merged(FIT, weight)(Target(prior, model, task.train, prior), Rng((0,)))
    with pytest.raises(VclError, match="merging is for the family 'mean-field', not 'full'"):
        Merged(VariationalKL(family="full")).initial(prior)
