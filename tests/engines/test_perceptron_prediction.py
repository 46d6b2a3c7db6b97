"""Predictions that are written out must be those of the general way, from the same noise."""

import pytest
import torch
from torch import Tensor, nn

from vcl.beliefs.mean_field import MeanField
from vcl.engines.perceptron import prediction as perceptron_prediction
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting import prediction
from vcl.predicting.prediction import predict

RUNS, DRAWS = 2, 7
BARE = nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU())


@pytest.mark.parametrize("in_flight", [1, 20, 10**6])
@pytest.mark.parametrize("model", [Network(trunk, width, Categorical()) for trunk, width in
                                   ((mlp(6, [5]), 5), (mlp(6, [5, 7]), 7), (nn.Flatten(), 6), (BARE, 5))],
                         ids=["one layer", "two layers", "no layer", "no bias"])  # fmt: skip
def test_probabilities_are_those_of_the_general_way(
    model: Network, in_flight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, g = model.prior({"h": 3, "other": 2}).layout, torch.Generator().manual_seed(0)
    q = MeanField(layout, *torch.randn(2, RUNS, layout.size, generator=g, dtype=torch.float64))
    x = torch.randn(RUNS, 9, 2, 3, generator=g, dtype=torch.float64)
    made: list[object] = []

    def answer() -> Tensor:
        return predict(q, model, x, "h", Rng((0, 1)), DRAWS, "local", chunk=5 * RUNS * DRAWS)

    class Seen(perceptron_prediction.SumOfProbabilities):  # type: ignore[misc]
        def __init__(self, *args: object) -> None:
            made.append(args)
            super().__init__(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(perceptron_prediction, "IN_FLIGHT", in_flight)
    monkeypatch.setattr(prediction, "SumOfProbabilities", Seen)
    ours = answer()
    assert made, "this is about the way that is written out"
    monkeypatch.setattr(prediction, "as_perceptron", lambda model, heads: None)
    assert torch.allclose(ours, answer(), rtol=1e-10, atol=1e-12)
    assert torch.allclose(ours.sum(-1), torch.ones(RUNS, 9, dtype=torch.float64))


@pytest.mark.parametrize(("in_flight", "most"), [(1, 1), (20, 2), (10**6, DRAWS)])
def test_no_more_draws_than_the_limit_are_worked_on_at_once(
    in_flight: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine examples under each."""
    model, seen, softmax = Network(mlp(6, [5]), 5, Categorical()), [], torch.softmax

    def spy(logits: Tensor, dim: int) -> Tensor:
        seen.append(len(logits))
        return softmax(logits, dim)

    q = model.prior({"h": 3}).expand(RUNS)
    monkeypatch.setattr(perceptron_prediction, "IN_FLIGHT", in_flight)
    monkeypatch.setattr(torch, "softmax", spy)
    predict(q, model, torch.randn(RUNS, 9, 6), "h", Rng((0, 1)), DRAWS, "local")
    assert sum(seen) == RUNS * DRAWS
    assert max(seen) == most
