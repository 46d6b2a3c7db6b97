"""Heads that get outputs, against exact posteriors: linear regression with several outputs, y = W [x, 1] + noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracles import linear_posterior
from vcl.beliefs import FullGaussian, MeanField, kl, product
from vcl.beliefs.belief import Roles
from vcl.beliefs.blocks import joined
from vcl.beliefs.factors import FullFactor
from vcl.beliefs.kronecker import Factors, Kronecker
from vcl.beliefs.layout import Layout
from vcl.data import Data, dataset
from vcl.errors import VclError
from vcl.fitting.health import health_of
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.models import Network
from vcl.models.likelihoods import Normal
from vcl.ops.layer_weights import Block
from vcl.ops.rng import Rng
from vcl.ops.rotations import eigen
from vcl.projections import KroneckerLaplace, Target
from vcl.projections.kronecker import past, prior_precision

NOISE, PRIOR, INPUTS = 0.5, 2.0, 3
MODEL = Network(nn.Flatten(), INPUTS, Normal(NOISE), PRIOR)
LAYER = Block("heads.h.weight", "heads.h.bias")
EXACT = Ascent(epochs=3000, batch=None, lr=0.05, schedule="cosine")
LAPLACE = KroneckerLaplace(EXACT, curvature=KroneckerCurvature("mode", "exact"))


def prior(outputs: int) -> MeanField:
    return MODEL.prior({"h": outputs}).to(torch.float64)


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data(outputs: int, seed: int, inputs: int = 0) -> Data:
    x = numbers(inputs, 12, INPUTS)
    return dataset(x, x @ numbers(5, INPUTS, 5)[:, :outputs] + NOISE * numbers(seed, 12, outputs), head="h")


def design(data: Data) -> Tensor:
    """[x, 1]."""
    return torch.cat([data.x[0], torch.ones_like(data.x[0, :, :1])], 1)


def of_output(outputs: int, number: int) -> Tensor:
    """The positions of an output's weights and bias."""
    mask = Layout(("w", "b"), ((outputs, INPUTS), (outputs,)))
    found = mask.split(torch.arange(mask.size))
    return torch.cat([found["w"][number], found["b"][number : number + 1]])


def site(data: Data, outputs: int) -> FullFactor:
    """log p(D | theta) as a factor: each output has X^T X / noise^2 about its least squares."""
    layout, X = prior(outputs).layout, design(data)
    centre, precision = torch.zeros(1, layout.size).double(), torch.zeros(1, layout.size, layout.size).double()
    for number in range(outputs):
        at = of_output(outputs, number)
        centre[0, at] = torch.linalg.lstsq(X, data.y[0, :, number : number + 1]).solution[:, 0]
        precision[0, at[:, None], at] = X.T @ X / NOISE**2
    return FullFactor(layout, centre, precision)


def textbook(number: int, *given: Data) -> tuple[Tensor, Tensor]:
    """Mean and precision of an output's weights after those data that have it, learned alone."""
    known = [each for each in given if each.y.shape[2] > number]
    X, y = torch.cat([design(each) for each in known]), torch.cat([each.y[0, :, number] for each in known])
    return linear_posterior(X, y, NOISE, PRIOR)


def test_a_full_gaussian_learns_a_new_output_as_if_it_were_alone() -> None:
    """Old outputs are as they would be without it, too."""
    first, second = data(2, 1), data(4, 2, inputs=9)
    q = product(FullGaussian.from_prior(prior(2)), site(first, 2))
    q = product(q.grow(prior(4)), site(second, 4))
    for number in range(4):
        at = of_output(4, number)
        mean, precision = textbook(number, first, second)
        torch.testing.assert_close(q.mean[0, at], mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(q.precision[0, at][:, at], precision, rtol=1e-9, atol=1e-9)
    assert not q.precision[0, of_output(4, 0)][:, of_output(4, 3)].any()


@pytest.fixture(scope="module")
def first() -> Kronecker:
    return LAPLACE(Target(LAPLACE.initial(prior(2)), MODEL, data(2, 1), prior(2)), Rng(0))


def dense(q: Kronecker) -> Tensor:
    """The covariance [D, D]."""
    eye = torch.eye(q.layout.size, dtype=q.mean.dtype).unsqueeze(0)
    columns = q._replace(mean=torch.zeros_like(q.mean)).draw(eye)[0]
    return columns.T @ columns


def rotated(first: Kronecker) -> Kronecker:
    """The same layer with outputs that depend on each other."""
    root, factors = numbers(4, 1, 2, 2), first.blocks[LAYER]
    G = root @ root.mT
    (a, Q_A), (g, Q_G) = eigen(factors.A), eigen(G)
    V = 1 / (g.unsqueeze(2) * a.unsqueeze(1) + prior(1).log_var.exp()[0, 0].reciprocal())
    log_var = torch.cat([V[..., :-1].flatten(1), V[..., -1]], 1).log()
    return first._replace(log_var=log_var, blocks={LAYER: Factors(factors.A, G, factors.rows, Q_A, Q_G)})


def test_growing_a_layer_with_factors_is_exact(first: Kronecker) -> None:
    """The covariance of the old outputs, and the prior's for the new ones: nothing between."""
    q = rotated(first)
    grown = q.grow(prior(5))
    wanted = prior(5).log_var[0].exp().diag()
    old = q.layout.leading(grown.layout)
    wanted[old[:, None], old] = dense(q)
    assert dense(q)[0, 3].abs() > 1e-3  # weights of both old outputs
    torch.testing.assert_close(dense(grown), wanted, rtol=1e-10, atol=1e-12)
    before, after = q.blocks[LAYER], grown.blocks[LAYER]
    assert after.A is before.A
    assert after.Q_A is before.Q_A
    assert after.rows is before.rows
    assert torch.equal(after.G, torch.nn.functional.pad(before.G, (0, 3, 0, 3)))
    assert torch.equal(after.Q_G[0], torch.block_diag(before.Q_G[0], torch.eye(3).double()))
    assert q.grow(prior(2)) is q


def test_factors_learn_a_new_output_as_if_it_were_alone(first: Kronecker) -> None:
    """Both tasks have the same inputs, so that one A is exact for outputs of one task and of two."""
    one, two = data(2, 1), data(4, 2)
    q = LAPLACE(Target(first.grow(prior(4)), MODEL, two, prior(4)), Rng(1))
    covariance, params = dense(q), q.layout.split(q.mean)
    W = joined(params, LAYER, 1)[0]
    for number in range(4):
        mean, precision = textbook(number, one, two)
        at = of_output(4, number)
        torch.testing.assert_close(W[number], mean, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(torch.linalg.inv(covariance[at][:, at]), precision, rtol=1e-7, atol=1e-8)


def test_the_penalty_of_a_grown_layer_is_its_density(first: Kronecker) -> None:
    """lambda weights what data has said of the old outputs; the new ones have the prior alone, whatever lambda is."""
    grown = first.grow(prior(4))
    delta = prior_precision(MODEL, grown, prior(4))
    shift = numbers(3, 1, grown.layout.size)
    new = grown.layout.mask({"heads.h.weight": 2, "heads.h.bias": 2})
    theta = grown.mean + shift
    assert past(grown, delta, 1.0, True).pull(theta).item() == pytest.approx(grown.factor().pull(theta).item())
    of_new = past(grown, delta, 7.0, True).pull(grown.mean + shift * new)
    assert of_new.item() == pytest.approx(0.5 * float(shift[:, new].square().sum()) / PRIOR)
    assert past(grown, delta, 7.0, False).pull(grown.mean + shift * new).item() == 0


def test_a_layer_whose_prior_is_not_one_variance_does_not_grow(first: Kronecker) -> None:
    rough = prior(4)._replace(log_var=numbers(1, 1, prior(4).layout.size))
    with pytest.raises(VclError, match="give the layer one prior variance"):
        first.grow(rough)


def test_a_fit_that_stands_where_it_began_is_not_limited_in_new_rows() -> None:
    """New rows began at ``var``, the others at q_{t-1}: none has moved. Had all begun at q_{t-1}, three of five had."""
    layout = Layout(("heads.h.weight", "heads.h.bias"), ((5, 4), (5,)))
    q = MeanField(layout, numbers(0, 2, layout.size), numbers(1, 2, layout.size))
    new = {"heads.h.weight": 2, "heads.h.bias": 2}
    fit = q.bind(Roles(layout, layout, Layout((), ())), "log_var")
    begun = fit.parameters(q.start(q.mean, new, 1e-3))

    def limited(wide: dict[str, int]) -> list[float]:
        return health_of(fit, begun, q, wide, 1e-3, 0.5).limited.tolist()

    assert limited(new) == [0.0, 0.0]
    assert limited({}) == pytest.approx([0.6, 0.6])
    whole = dict.fromkeys(layout.names, 0)
    assert all(share == pytest.approx(0.4, abs=0.03) for share in limited(whole))
    health = health_of(fit, begun, q, new, 1e-3, 0.5)
    torch.testing.assert_close(torch.stack([*health.kl.values()]).sum(0), kl(q.start(q.mean, new, 1e-3), q))


def test_values_of_several_runs_grow_from_a_prior_of_one() -> None:
    q: Any = FullGaussian.from_prior(prior(2)).expand(3)
    grown = q.grow(prior(3))
    assert grown.mean.shape == (3, 12)
    assert torch.equal(grown.precision, FullGaussian.from_prior(prior(3)).expand(3).precision)
