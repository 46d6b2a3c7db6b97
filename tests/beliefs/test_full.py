import pytest
import torch

from made import linear_data
from oracles import linear_posterior
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField


def test_draws_of_a_full_gaussian_have_its_covariance() -> None:
    data = linear_data(10, 0)
    mean, precision = linear_posterior(data.x[0], data.y[0], 0.5, 2.0)
    q = FullGaussian(Layout(("w",), ((4,),)), mean[None], precision[None])
    draws = q.draw(torch.randn(1, 200_000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    covariance = torch.linalg.inv(precision)
    assert torch.allclose(draws.T.cov(), covariance, atol=0.03 * covariance.abs().max().item())
    assert torch.allclose(draws.mean(0), mean, atol=0.01)


def test_a_full_gaussian_restricts_to_its_marginal_and_grows_independently() -> None:
    layout = Layout(("a", "b"), ((2,), (1,)))
    root = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    precision = root @ root.T + torch.eye(3)
    q = FullGaussian(layout, torch.arange(3.0, dtype=torch.float64)[None], precision[None])
    part = q.restrict(Layout(("b",), ((1,),)))
    assert part.precision.item() == pytest.approx(1 / torch.linalg.inv(precision)[2, 2].item())
    prior = MeanField(Layout(("a", "c"), ((2,), (1,))), torch.full((1, 3), 7.0), torch.full((1, 3), 2.0).log())
    grown = q.grow(prior)
    assert grown.layout.names == ("a", "b", "c")
    assert grown.mean[0].tolist() == [0, 1, 2, 7]
    assert torch.allclose(grown.precision[0, :3, :3], precision)
    assert grown.precision[0, 3].tolist() == pytest.approx([0, 0, 0, 0.5])
