"""Recurrent layers by plain operations against torch's own, and learned with."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence

from made import small_vae
from vcl.coresets import RandomK
from vcl.data import dataset
from vcl.engines.recurrent import plain_recurrence, recurrent_layers
from vcl.engines.usage import Estimator
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.models import Network, Vae
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.metrics import accuracy
from vcl.predicting.prediction import predict
from vcl.projections import VariationalKL
from vcl.recursion import Method, Task, initial, learn

LAYERS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "rnn": (nn.RNN, {}),
    "rnn relu two layers": (nn.RNN, {"nonlinearity": "relu", "num_layers": 2}),
    "gru": (nn.GRU, {}),
    "gru both ways, batch first": (nn.GRU, {"bidirectional": True, "num_layers": 2, "batch_first": True}),
    "gru without biases": (nn.GRU, {"bias": False}),
    "lstm": (nn.LSTM, {}),
    "lstm both ways": (nn.LSTM, {"bidirectional": True, "num_layers": 2}),
    "lstm projected": (nn.LSTM, {"proj_size": 2, "num_layers": 2, "bidirectional": True, "batch_first": True}),
}
CELLS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "rnn": (nn.RNNCell, {}),
    "rnn relu": (nn.RNNCell, {"nonlinearity": "relu", "bias": False}),
    "gru": (nn.GRUCell, {}),
    "lstm": (nn.LSTMCell, {}),
}


def leaves(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [leaf for part in value for leaf in leaves(part)]


def compare(layer: nn.Module, *given: Any) -> None:
    """Outputs, states and gradients in parameters and inputs are torch's own; and the layer is left as it was."""
    expected = leaves(layer(*given))
    inputs = [*layer.parameters(), *leaves(given)]
    weights = [
        torch.randn(part.shape, dtype=part.dtype, generator=torch.Generator().manual_seed(3)) for part in expected
    ]
    wanted = torch.autograd.grad([(a * b).sum() for a, b in zip(expected, weights, strict=True)], inputs)
    with plain_recurrence(recurrent_layers(layer)):
        assert "forward" in layer.__dict__
        found = leaves(layer(*given))
    assert "forward" not in layer.__dict__
    got = torch.autograd.grad([(a * b).sum() for a, b in zip(found, weights, strict=True)], inputs)
    for one, other in zip((*found, *got), (*expected, *wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_a_layer_gives_what_torch_gives(name: str, batched: bool, started: bool) -> None:
    kind, settings = LAYERS[name]
    torch.manual_seed(0)
    layer = kind(3, 4, **settings).double()
    shape = ((5, 7, 3) if layer.batch_first else (7, 5, 3)) if batched else (7, 3)
    given: list[Any] = [numbers(*shape)]
    if started:
        places, many = layer.num_layers * (2 if layer.bidirectional else 1), (5,) if batched else ()
        h = numbers(places, *many, layer.proj_size or 4)
        given.append((h, numbers(places, *many, 4)) if kind is nn.LSTM else h)
    compare(layer, *given)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_a_cell_gives_what_torch_gives(name: str, batched: bool, started: bool) -> None:
    kind, settings = CELLS[name]
    torch.manual_seed(0)
    many = (5,) if batched else ()
    given: list[Any] = [numbers(*many, 3)]
    if started:
        given.append((numbers(*many, 4), numbers(*many, 4)) if kind is nn.LSTMCell else numbers(*many, 4))
    compare(kind(3, 4, **settings).double(), *given)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_many_draws_at_once_are_each_draw_alone_without_a_warning(kind: Any) -> None:
    torch.manual_seed(0)
    layer, x = kind(3, 4), torch.randn(6, 5, 3)[: None if issubclass(kind, nn.RNNBase) else 1].squeeze(0)
    params = {name: torch.randn(2, *value.shape) for name, value in layer.named_parameters()}

    def first(params: dict[str, Tensor]) -> Tensor:
        with plain_recurrence(recurrent_layers(layer)):
            return leaves(functional_call(layer, params, x))[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = torch.vmap(first, randomness="error")(params)
    for draw in range(2):
        layer.load_state_dict({name: value[draw] for name, value in params.items()})
        torch.testing.assert_close(together[draw], leaves(layer(x))[0], rtol=1e-5, atol=1e-6)


class LastOutput(nn.Module):
    """The features of a sequence [N, T, inputs]: the last output of a recurrent layer."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        super().__init__()
        self.layer = kind(2, 8, batch_first=True, **settings)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


class ByCell(nn.Module):
    """The same by a cell, step by step."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell = kind(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state if isinstance(state, Tensor) else state[0]  # type: ignore[index]


def sequences(seed: int, n: int = 64) -> tuple[Tensor, Tensor]:
    """Whether the sum over a sequence is positive."""
    x = torch.randn(n, 5, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x.sum((1, 2)) > 0).long()


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize(
    "trunk",
    [
        LastOutput(nn.GRU),
        LastOutput(nn.LSTM, num_layers=2),
        LastOutput(nn.RNN),
        ByCell(nn.LSTMCell),
        ByCell(nn.GRUCell),
    ],
    ids=["GRU", "LSTM", "RNN", "LSTMCell", "GRUCell"],
)
def test_a_recurrent_network_learns_and_predicts(trunk: nn.Module, estimator: Estimator) -> None:
    model = Network(trunk, 8, Categorical())
    method = Method(VariationalKL(Ascent(40, None, 0.03), 2, estimator), RandomK(8))
    tasks = [Task(f"t{t}", dataset(*sequences(t), f"t{t}", "h", 2), heads={"h": 2}) for t in range(2)]
    *_, state = learn(initial(model, method, 2), tasks, model, method, Rng((0, 1)))
    x, y = sequences(9, 512)
    found = predict(state.predictive["h"], model, x.expand(2, *x.shape), "h", Rng((0, 1)), 20)
    assert accuracy(found, y).min() > 0.5 + 8 * 0.5 / 512**0.5, "8 standard errors above guessing"


def test_what_cannot_be_treated_soundly_is_refused() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(2, 8, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            lengths = torch.full((len(x),), x.shape[1])
            return self.layer(pack_padded_sequence(x, lengths, batch_first=True))[1][0]  # type: ignore[no-any-return]

    x, y = sequences(0)
    data = dataset(x, y, "t", "h")
    with pytest.raises(VclError, match=r"GRU was given a packed sequence.*; give it one padded tensor"):
        Network(Packed(), 8, Categorical()).check(data, {"h": 2})
    dropping = nn.GRU(2, 8, 2, dropout=0.5)
    with pytest.raises(VclError, match=r"layer 'layer' \(GRU\) adds its own noise \(dropout\)"):
        Network(LastOutput(nn.GRU, num_layers=2, dropout=0.5), 8, Categorical())
    with plain_recurrence([dropping]), pytest.raises(VclError, match=r"uses dropout between its layers; call \.eval"):
        dropping(torch.zeros(1, 1, 2))
    assert Network(LastOutput(nn.GRU, num_layers=2, dropout=0.5).eval(), 8, Categorical()).recurrent
    vae = small_vae()
    with pytest.raises(VclError, match="GRU is not supported in a VAE; write the recurrence with Linear layers"):
        Vae(LastOutput(nn.GRU), vae.lower, vae.upper, 4)
    with pytest.raises(VclError, match="does not take inputs of shape"):
        Network(LastOutput(nn.GRU), 8, Categorical()).check(dataset(torch.zeros(4, 5, 3), y[:4], "t", "h"), {"h": 2})


def test_a_class_of_ones_own_with_another_forward_keeps_it() -> None:
    class Own(nn.GRU):
        def forward(self, input: Tensor, hx: Tensor | None = None) -> Any:
            return input, hx

    class Same(nn.GRU):
        """With torch's forward."""

    assert recurrent_layers(nn.Sequential(Own(2, 2), nn.Linear(2, 2))) == ()
    assert len(recurrent_layers(Same(2, 2))) == 1
