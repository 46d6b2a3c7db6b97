"""What a fit holds: at most five values for each that is climbed, beside data, activations and what is drawn."""

import pytest
import torch

from made import blobs, most_held
from vcl.beliefs import mean_field_torch
from vcl.beliefs.mean_field import KlTo, MeanField
from vcl.fitting.loop import Ascent
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import Target, VariationalKL

WIDTH = 300


@pytest.mark.filterwarnings("ignore")
def test_a_fit_holds_five_values_a_climbed_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Value, gradient, two moments of Adam, and the previous posterior, which is given; each of mean and log variance.

    A wide network and few examples, so that little else counts; pieces small, as they are beside a large network.
    """
    for where in (mean_field_torch, KlTo):
        monkeypatch.setattr(where, "SMALL", 0)
        monkeypatch.setattr(where, "PIECE", 2**10)
    model = Network(mlp(WIDTH, [WIDTH, WIDTH]), WIDTH, Categorical())
    prior = model.prior({"h": 2})
    g = torch.Generator().manual_seed(0)
    q = MeanField(prior.layout, *(0.1 * torch.randn(2, 1, prior.layout.size, generator=g) - 1))
    data = blobs(12, 0, "t", "h", width=WIDTH)
    project = VariationalKL(Ascent(2, 4), draws=1, estimator="local")
    most = most_held(lambda: project(Target(q, model, data, prior), Rng((0,))))
    values = 1 + most / 4 / (2 * prior.layout.size)  # the previous posterior is there already
    assert 4.9 < values < 5.2, "less would be a sign that not all is counted"


def test_a_prior_takes_no_memory_and_growing_by_nothing_makes_no_copy() -> None:
    model = Network(mlp(WIDTH, [WIDTH]), WIDTH, Categorical())
    prior = model.prior({"h": 2})
    assert prior.mean.untyped_storage().nbytes() == prior.log_var.untyped_storage().nbytes() == 4
    assert prior.grow(prior) is prior
