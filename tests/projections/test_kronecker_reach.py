"""Where the curvature of the default is taken, and that it holds a deep network where draws alone lose it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vcl.data import dataset
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.models import Network
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import KroneckerLaplace, Target


def test_points_are_the_middles_of_equal_parts_of_the_way() -> None:
    like = torch.zeros(1, 1, dtype=torch.float64)
    assert KroneckerCurvature(draws=4).reach(like).flatten().tolist() == [0.125, 0.375, 0.625, 0.875]
    assert KroneckerCurvature("draws", draws=4).reach(like).flatten().tolist() == [1.0] * 4
    assert KroneckerCurvature(draws=1).reach(like).tolist() == [[0.5]]


@pytest.mark.parametrize("seed", [0, 1])
def test_curvature_on_the_way_to_draws_is_the_expected_curvature(seed: int) -> None:
    """Sigma E[-H(theta + d)] = E[d (g(theta) - g(theta + d))^T] with H of log cosh, weights kept, by quadrature."""
    sd, theta = 1.7, 0.4 + seed
    nodes = torch.linspace(-9, 9, 20001, dtype=torch.float64)
    weight = torch.exp(-0.5 * nodes**2)
    weight = weight / weight.sum()
    curvature = lambda at: 1 / torch.cosh(at) ** 2  # noqa: E731
    expected = (weight * curvature(theta + sd * nodes)).sum()
    reach = KroneckerCurvature(draws=400).reach(nodes)
    way = (weight * nodes**2 * curvature(theta + reach * sd * nodes).mean(0)).sum()
    assert torch.allclose(way, expected, rtol=1e-4)


def deep(at: Any) -> Tensor:
    """The least mean of a run's posterior precisions after a fit of two Gaussian clouds by five layers of relus."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    x = torch.randn(400, 20, generator=g) + 0.7 * (2 * y.unsqueeze(1) - 1)
    widths = (20, 40, 40, 40, 40, 40)
    layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    model = Network(nn.Sequential(*layers), 40, Categorical())
    prior = model.prior({"h": 2})
    project = KroneckerLaplace(Ascent(epochs=30, batch=50, schedule="cosine"), curvature=KroneckerCurvature(at))
    q = project.initial(prior).expand(3)
    q = project(Target(q, model, dataset(x, y, head="h", runs=3), prior), Rng((0, 1, 2)))
    return (-q.log_var).exp().mean(1)


def test_the_default_keeps_the_information_of_a_deep_network_where_draws_alone_lose_it() -> None:
    assert float(deep("draws").min()) < 1.001  # the prior's precision is 1
    assert float(deep("expected").min()) > 5
