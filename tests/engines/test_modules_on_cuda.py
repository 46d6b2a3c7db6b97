"""Modules of people's own on a CUDA device, at the sizes where torch once gave up."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from vcl.coresets import Nothing
from vcl.data import dataset
from vcl.engines.recurrent import plain_recurrence, recurrent_layers
from vcl.fitting.loop import Ascent
from vcl.models import Network
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import VariationalKL
from vcl.recursion import Method, Task, initial, learn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def learned(trunk: nn.Module, features: int, x: Tensor, batch: int) -> Tensor:
    """Probabilities [1, N, 2] by 100 draws after one epoch."""
    model, method = Network(trunk, features, Categorical()), Method(VariationalKL(Ascent(1, batch), 1), Nothing())
    data, rng = dataset(x, torch.arange(len(x)) % 2, head="h").to("cuda"), Rng(0)
    (state,) = learn(initial(model, method, 1, "cuda"), [Task("t", data, data, {"h": 2})], model, method, rng)
    return predict(state.predictive["h"], model, data.x, "h", rng)


def test_a_convolutional_network_predicts_many_images() -> None:
    """Once 20 million rows at once: canUse32BitIndexMath."""
    trunk = nn.Sequential(
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    )  # fmt: skip
    found = learned(trunk, 512, torch.rand(10_000, 28, 28), 256)
    assert found.shape == (1, 10_000, 2)
    assert torch.allclose(found.sum(-1), torch.ones_like(found[..., 0]), atol=1e-5)


@pytest.mark.parametrize(("dropout", "training"), [(0.0, True), (0.1, False)])
def test_a_transformer_learns_and_predicts(dropout: float, training: bool) -> None:
    """Once: LSE is not correctly aligned; and no derivative in evaluation mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of nested tensors, by torch
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=True)
        trunk = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Flatten()).train(training)
        found = learned(trunk, 64 * 32, torch.randn(256, 64, 32), 128)
    assert found.shape == (1, 256, 2)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_network_learns_and_predicts(kind: type[nn.RNNBase]) -> None:
    """torch's own forms have no rule for vmap, and cuDNN's would move drawn weights into memory of its own."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(16, 32, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0][:, -1]

    trunk = Last()
    found = learned(trunk, 64, torch.randn(256, 20, 16), 128)
    assert found.shape == (1, 256, 2)
    assert bool(found.isfinite().all())
    assert all(value.device.type == "cpu" for value in trunk.parameters())


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_layer_gives_what_cudnn_gives(kind: type[nn.RNNBase]) -> None:
    """In float64: cuDNN rounds the factors of float32 products to TF32."""
    torch.manual_seed(0)
    layer = kind(16, 32, num_layers=2, bidirectional=True).to("cuda", torch.float64)
    x = torch.randn(20, 8, 16, device="cuda", dtype=torch.float64)
    wanted = layer(x)[0]
    with plain_recurrence(recurrent_layers(layer)):
        found = layer(x)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell])
def test_cells_take_many_draws_without_a_warning(kind: type[nn.Module]) -> None:
    class ByCell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = kind(16, 32)

        def forward(self, x: Tensor) -> Tensor:
            state = None
            for step in x.unbind(1):
                state = self.cell(step, state)
            return state if isinstance(state, Tensor) else state[0]  # type: ignore[index]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = learned(ByCell(), 32, torch.randn(64, 5, 16), 32)
    assert bool(found.isfinite().all())
