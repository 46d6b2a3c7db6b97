"""Predictions by local reparameterisation, against plain operations with the same noise."""

import pytest
import torch
from torch import Tensor, nn

from vcl.beliefs.mean_field import MeanField
from vcl.engines.predictor import COLUMN_MOMENTS
from vcl.engines.structure import Fork
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops import devices
from vcl.ops.layer_weights import Block
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict

RUNS, DRAWS = 2, 7
BARE = nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU())


def by_hand(model: Network, q: MeanField, x: Tensor, seeds: tuple[int, ...]) -> Tensor:
    """The same by plain operations: the first layer's units drawn, the other layers' weights, with the same noise."""
    q = q.restrict(q.layout.touched(["h"]))
    means, variances = q.layout.split(q.mean), q.layout.split(q.log_var.exp())
    generators = Rng(seeds).generators()

    def normal(size: int) -> Tensor:
        return draw_noise(DRAWS * size, generators, q.mean).view(len(seeds), DRAWS, size)

    structure = model.structure(("h",))
    assert isinstance(structure, Fork)
    h, first = x.flatten(2).unsqueeze(1), True
    for step in (*structure.trunk, structure.heads["h"]):
        if not isinstance(step, Block):
            h = step(h)
            continue
        W, V = means[step.weight].unsqueeze(1), variances[step.weight].unsqueeze(1)
        b, v = (part[step.bias][:, None, None] if step.bias else torch.zeros(1) for part in (means, variances))
        if first:
            eps = normal(W.shape[2]).unsqueeze(2)
            h, first = h @ W.mT + b + (h.square() @ V.mT + v).sqrt() * eps, False
            continue
        W = W + V.sqrt() * normal(W[0].numel()).view(len(seeds), DRAWS, *W.shape[2:])
        h = h @ W.mT + (b + v.sqrt() * normal(b.shape[-1]).unsqueeze(2) if step.bias else 0)
    return model.likelihood.expectation(h.flatten(0, 2)).view(*h.shape[:3], -1).mean(1)


TRUNKS = {
    "one layer": (mlp(6, [5]), 5), "two layers": (mlp(6, [5, 7]), 7), "no layer": (nn.Flatten(), 6),
    "no bias": (BARE, 5),
    "tanh": (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.GELU()), 4),
}  # fmt: skip


@pytest.mark.parametrize("likelihood", [Categorical(), Normal(0.5)], ids=["classes", "numbers"])
@pytest.mark.parametrize("in_flight", [1, 20, 10**6])
@pytest.mark.parametrize("trunk", TRUNKS)
def test_predictions_are_those_by_hand(
    trunk: str, in_flight: int, likelihood: Categorical | Normal, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Network(*TRUNKS[trunk], likelihood)
    layout, g = model.prior({"h": 3, "other": 2}).layout, torch.Generator().manual_seed(0)
    q = MeanField(layout, *torch.randn(2, RUNS, layout.size, generator=g, dtype=torch.float64))
    x = torch.randn(RUNS, 9, 2, 3, generator=g, dtype=torch.float64)
    monkeypatch.setattr(devices, "CPU", devices.CPU._replace(columns=in_flight))
    ours = predict(q, model, x, "h", Rng((0, 1)), DRAWS, "local", chunk=5 * RUNS * DRAWS)
    assert torch.allclose(ours, by_hand(model, q, x, (0, 1)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("in_flight", "most"), [(1, 1), (20, 2), (10**6, DRAWS)])
def test_no_more_draws_than_the_limit_are_worked_on_at_once(
    in_flight: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine examples under each."""
    model, seen = Network(mlp(6, [5]), 5, Categorical()), []

    def spy(logits: Tensor) -> Tensor:
        seen.append(len(logits))
        return logits.softmax(1)

    q = model.prior({"h": 3}).expand(RUNS)
    monkeypatch.setattr(devices, "CPU", devices.CPU._replace(columns=in_flight))
    monkeypatch.setitem(COLUMN_MOMENTS, Categorical, spy)
    predict(q, model, torch.randn(RUNS, 9, 6), "h", Rng((0, 1)), DRAWS, "local")
    assert sum(seen) == RUNS * DRAWS
    assert max(seen) == most
