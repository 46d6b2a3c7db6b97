"""Where fits begin in the new outputs of a head, and what holds them: the prior, and no lambda."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_starts import PROJECTIONS, STANDING
from torch import Tensor

from made import blobs, small_network
from vcl.beliefs import FullGaussian, Layout, MeanField
from vcl.beliefs.mean_field import standard_normal
from vcl.fitting.loop import Ascent, silent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import (
    KroneckerLaplace,
    LaplacePropagation,
    MaximumAPosteriori,
    Merged,
    Target,
    VariationalKL,
)
from vcl.projections.base import fresh, small_random
from vcl.projections.merged import merge
from vcl.projections.quadratic import weight_of_past

MODEL = small_network(40)
PRIOR = MODEL.prior({"a": 3, "b": 2})
GROWN = MODEL.prior({"a": 30, "b": 2})
"""Head a gets 27 outputs; head b behind it moves in the flat vector."""
NEW = {"heads.a.weight": 3, "heads.a.bias": 3}
MASK = GROWN.layout.mask(NEW)
DATA = blobs(60, 0, "t", "a", classes=30)
TOUCHED = GROWN.layout.mask(dict.fromkeys(GROWN.layout.touched(["a"]).names, 0))


def informed(project: Any) -> Any:
    """A belief of the projection's kind that knows 3 and 2 outputs, and has 30 and 2."""
    q = project.initial(PRIOR)
    q = q._replace(mean=torch.randn(q.mean.shape, generator=torch.Generator().manual_seed(0)))
    if isinstance(q, MeanField):
        q = q._replace(log_var=q.mean - 3)
    return q.grow(GROWN)


def fitted(project: Any, q: Any) -> Any:
    return project(Target(q, MODEL, DATA, GROWN), Rng((0,)))


BEGUN = {name: project for name, project in PROJECTIONS.items() if name != "vi, anew"} | {
    "vi full": VariationalKL(STANDING, 1, family="full"),
    "vi reset": VariationalKL(STANDING, 1, start="reset"),
    "kronecker": KroneckerLaplace(STANDING, init="normal"),
}


@pytest.mark.parametrize("name", BEGUN)
def test_new_rows_begin_at_small_random_means_and_old_ones_where_they_were(name: str) -> None:
    """1107 means; a normal cut at two deviations has 0.88 of its deviation."""
    q = informed(BEGUN[name])
    at = {sd: fitted(replace(BEGUN[name], init_sd=sd), q).mean for sd in (0.1, 0.4)}
    assert at[0.1][:, MASK].std().item() == pytest.approx(0.088, rel=0.07)
    torch.testing.assert_close(at[0.4][:, MASK], 4 * at[0.1][:, MASK], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(at[0.1][:, ~MASK], q.mean[:, ~MASK], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("natural", [None, NaturalGradient()], ids=["adam", "natural"])
def test_new_rows_begin_at_init_var_and_old_ones_at_their_own(natural: Any) -> None:
    ascent = STANDING if natural is None else Ascent(1)
    project = VariationalKL(ascent, 1, init_var=0.01, natural=natural)
    q = informed(project)
    start = project.first(q, Target(q, MODEL, DATA, GROWN), Rng((0,)), silent)
    torch.testing.assert_close(start.log_var[:, MASK].exp(), torch.full((1, int(MASK.sum())), 0.01))
    assert torch.equal(start.log_var[:, ~MASK], q.log_var[:, ~MASK])
    assert torch.equal(start.mean[:, ~MASK], q.mean[:, ~MASK])
    reset = replace(project, start="reset").first(q, Target(q, MODEL, DATA, GROWN), Rng((0,)), silent)
    torch.testing.assert_close(reset.log_var.exp(), torch.full_like(q.log_var, 0.01))
    if natural is None:
        after = fitted(project, q)
        torch.testing.assert_close(after.log_var[:, MASK & TOUCHED], start.log_var[:, MASK & TOUCHED])
        torch.testing.assert_close(after.log_var[:, ~MASK], q.log_var[:, ~MASK])


def test_a_fit_does_not_begin_at_maximum_likelihood_where_old_rows_know_something() -> None:
    """Only the first rows of a head do here; the trunk is at the prior."""
    old = GROWN.layout.mask({"heads.a.weight": 0, "heads.a.bias": 0}) & ~MASK
    q = GROWN._replace(mean=torch.where(old, 0.3, GROWN.mean))
    part = q.restrict(GROWN.layout.touched(["a"]))
    assert fresh(part, GROWN) == dict.fromkeys(("trunk.1.weight", "trunk.1.bias"), 0) | NEW
    start = VariationalKL(Ascent(3, None, 0.1), 1).first(part, Target(q, MODEL, DATA, GROWN), Rng((0,)), silent)
    assert (q.merge(start).mean[:, old] == 0.3).all()


def test_map_holds_new_rows_by_the_prior() -> None:
    """Its precision is 10^4 here, and 1 around what old tasks have found."""
    model = Network(mlp(6, [40]), 40, Categorical(), prior_var=1e-4)
    project = MaximumAPosteriori(Ascent(60, None, 0.01))
    after = project(Target(informed(project), model, DATA, model.prior({"a": 30, "b": 2})), Rng((0,)))
    assert after.mean[:, MASK].abs().max() < 0.02
    assert after.mean[:, ~MASK].abs().max() > 1


def test_a_full_gaussian_begins_there_and_keeps_its_covariances() -> None:
    project = VariationalKL(STANDING, 1, family="full", init_var=0.01)
    q = informed(project)
    old = PRIOR.layout.leading(GROWN.layout)
    root = torch.randn(1, len(old), len(old), generator=torch.Generator().manual_seed(1)) / len(old) ** 0.5
    precision = q.precision.clone()
    precision[:, old[:, None], old] = root @ root.mT + torch.eye(len(old))
    q = FullGaussian(q.layout, q.mean, precision)
    start = project.first(q, Target(q, MODEL, DATA, GROWN), Rng((0,)), silent)
    torch.testing.assert_close(start.precision[:, old][:, :, old], precision[:, old][:, :, old])
    torch.testing.assert_close(start.precision[:, MASK][:, :, MASK], 100 * torch.eye(int(MASK.sum()))[None])
    assert not start.precision[:, MASK][:, :, ~MASK].any()


def test_rows_are_fresh_where_weights_and_bias_stand_at_the_prior() -> None:
    q = informed(VariationalKL())
    assert fresh(q, GROWN) == NEW
    params = q.layout.split(q.mean.clone())

    def changed(**values: Tensor) -> Any:
        named = {f"heads.a.{name}": value for name, value in values.items()}
        return q._replace(mean=q.layout.join(params | named, lead=1))

    weight, bias = params["heads.a.weight"], params["heads.a.bias"]
    # A bias of an old output that ends at 0 by itself, as after glorot and without gradients.
    quiet = bias.clone()
    quiet[:, 2] = 0
    assert fresh(changed(bias=quiet), GROWN) == NEW
    # Data has moved the weights of output 5, or its bias alone: those from 6 on are new.
    for tensor in (weight, bias):
        moved = tensor.clone()
        moved[:, 5] = 1.0
        found = fresh(changed(**{"weight" if tensor is weight else "bias": moved}), GROWN)
        assert found == {"heads.a.weight": 6, "heads.a.bias": 6}
    # Rows of a trunk are never judged alone: a unit without inputs may stay at 0.
    still = {name: params[f"trunk.1.{name}"].clone() for name in ("weight", "bias")}
    for tensor in still.values():
        tensor[:, 4:] = 0
    trunk = {f"trunk.1.{name}": tensor for name, tensor in still.items()}
    assert fresh(q._replace(mean=q.layout.join(params | trunk, lead=1)), GROWN) == NEW
    # Nor those of a head that has no weights, whose biases may.
    layout = Layout(("heads.a.bias", "heads.a.scale"), ((4,), (4,)))
    plain = standard_normal(layout)
    assert fresh(plain._replace(mean=torch.tensor([[1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]])), plain) == {}
    # One run suffices to know a row.
    two = MeanField(q.layout, torch.cat([changed(bias=bias + 1).mean, q.mean]), q.log_var.expand(2, -1))
    assert fresh(two, GROWN) == {}


def test_glorot_rows_have_the_width_of_the_whole_head() -> None:
    q = informed(VariationalKL())
    found = q.layout.split(small_random(q.layout, NEW, q.mean, 0.1, Rng((0,)), "glorot"))
    reach = (6 / (40 + 30)) ** 0.5
    assert 0.95 * reach < found["heads.a.weight"][:, 3:].abs().max() <= reach
    assert not found["heads.a.bias"][:, 3:].any()
    assert torch.equal(found["heads.a.weight"][:, :3], q.layout.split(q.mean)["heads.a.weight"][:, :3])


@pytest.mark.parametrize("kind", [LaplacePropagation, MaximumAPosteriori, KroneckerLaplace])
def test_no_lambda_holds_new_rows(kind: Any) -> None:
    """At lambda 10^8 nothing old moves, and all new rows do as at lambda 0.1, for which the old ones move."""
    project = kind(Ascent(20, None, 0.01), 1e8)
    q = informed(project)
    if kind is KroneckerLaplace:
        q = q._replace(log_var=torch.where(MASK, q.log_var, q.log_var - 1))  # the old rows know something
    after, before = fitted(project, q), fitted(replace(project, ascent=STANDING), q)
    free = fitted(replace(project, lam=0.1), q)
    moved, freely = ((each.mean - before.mean).abs() for each in (after, free))
    assert moved[:, ~MASK].max() < 1e-2 < 0.05 < freely[:, ~MASK].max()
    assert (moved[:, MASK].view(27, -1).amax(1) > 0.05).all()


def test_the_past_of_new_rows_has_weight_1() -> None:
    weight = weight_of_past((7.0, 0.5), GROWN.layout, NEW, torch.zeros(2, GROWN.layout.size))
    assert torch.equal(weight[:, MASK], torch.ones(2, int(MASK.sum())))
    assert (weight[:, ~MASK] == torch.tensor([[7.0], [0.5]])).all()


def test_merging_takes_new_rows_as_they_were_fitted() -> None:
    within = VariationalKL(Ascent(2, 20, 0.01), 1, "local")
    q = informed(within)
    new, found = fitted(within, q), fitted(Merged(within, 0.6), q)
    assert torch.equal(found.mean[:, MASK], new.mean[:, MASK])
    assert torch.equal(found.log_var[:, MASK], new.log_var[:, MASK])
    wanted = merge(q, new, 0.6)
    torch.testing.assert_close(found.mean[:, ~MASK & TOUCHED], wanted.mean[:, ~MASK & TOUCHED])
    assert torch.equal(found.mean[:, ~TOUCHED], q.mean[:, ~TOUCHED])
