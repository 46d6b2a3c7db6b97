"""Recurrent layers by plain tensor operations, which torch can differentiate and batch over draws of the weights.

torch's own forms have no vmap rule (a layer fails, a cell runs one draw after another), and on CUDA they move the
weights into one contiguous buffer, which drawn weights do not allow. With x_t the input and h_t the state of an example
at time t,

    RNN   h_t = tanh( W x_t + b + U h_{t-1} + c ), or with ReLU
    GRU   r, z = sigmoid( . ),  n = tanh( W_n x_t + b_n + r (U_n h_{t-1} + c_n) ),  h_t = (1 - z) n + z h_{t-1}
    LSTM  i, f, o = sigmoid( . ),  g = tanh( . ),  c_t = f c_{t-1} + i g,  h_t = o tanh(c_t), projected if asked for

The input products of a sequence are computed at once, the state products step by step. A weight is used at every time
step, so it is drawn and never reparameterised locally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from vcl.errors import VclError

Hidden = tuple[Tensor, ...]
"""(h,), or (h, c) of an LSTM; each [N, units]."""

Advance = Callable[[Tensor, Tensor, Hidden], Hidden]
"""From the input's and the state's gate terms, each [N, gates x units], and the state to the next state."""


def recurrent_layers(module: nn.Module) -> tuple[nn.Module, ...]:
    """torch's recurrent layers and cells in a module, without those that override forward."""
    return tuple(layer for layer in module.modules() if type(layer).forward in FORMS)


@contextmanager
def plain_recurrence(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Makes these layers use plain operations inside the context. Like their parameters, it is not thread-safe."""
    for layer in layers:
        layer.__dict__["forward"] = partial(FORMS[type(layer).forward], layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def drops_out(layer: nn.Module) -> bool:
    """Whether a recurrent layer currently applies dropout between its layers."""
    return isinstance(layer, nn.RNNBase) and layer.training and layer.dropout > 0 and layer.num_layers > 1


def _layer(layer: Any, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """Like ``nn.RNN``, ``nn.GRU`` and ``nn.LSTM``: outputs [T, N, ...] or [N, T, ...], and the last states."""
    if isinstance(input, PackedSequence):
        raise VclError(
            f"{type(layer).__name__} was given a packed sequence, whose examples end at different times; give it one "
            "padded tensor and take each example's last output by its index."
        )
    if drops_out(layer):
        raise VclError(f"{type(layer).__name__} uses dropout between its layers; call .eval() on the module.")
    if input.dim() not in (2, 3):
        raise RuntimeError(f"{type(layer).__name__} takes inputs of 2 or 3 axes, not {input.dim()}")
    batched, first = input.dim() == 3, 0 if layer.batch_first else 1
    x = input if batched else input.unsqueeze(first)
    start = _start(layer, x.shape[first], x) if hx is None else hx if isinstance(hx, tuple) else (hx,)
    if not batched and hx is not None:
        start = tuple(part.unsqueeze(1) for part in start)
    layer.check_forward_args(x, start if len(start) > 1 else start[0], None)
    x = x.transpose(0, 1) if layer.batch_first else x
    ends: list[Hidden] = []
    for number in range(layer.num_layers):
        sides = []
        for reverse in range(2 if layer.bidirectional else 1):
            place = len(ends)
            outputs, end = _along(layer, number, bool(reverse), x, tuple(part[place] for part in start))
            sides.append(outputs)
            ends.append(end)
        x = torch.cat(sides, dim=-1)
    last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    x = x.transpose(0, 1) if layer.batch_first else x
    if not batched:
        x, last = x.squeeze(first), tuple(part.squeeze(1) for part in last)
    return x, last if len(last) > 1 else last[0]


def _start(layer: nn.RNNBase, examples: int, x: Tensor) -> Hidden:
    """Zero states, each [layers x directions, N, units]."""
    places, units = layer.num_layers * (2 if layer.bidirectional else 1), layer.proj_size or layer.hidden_size
    widths = (units, layer.hidden_size) if layer.mode == "LSTM" else (units,)
    return tuple(torch.zeros(places, examples, width, dtype=x.dtype, device=x.device) for width in widths)


def _along(layer: nn.RNNBase, number: int, reverse: bool, x: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
    """One layer in one direction over x [T, N, inputs]: its outputs [T, N, units] and its last state."""
    end = f"_l{number}{'_reverse' if reverse else ''}"
    W, U = getattr(layer, f"weight_ih{end}"), getattr(layer, f"weight_hh{end}")
    b, c, P = (getattr(layer, name + end, None) for name in ("bias_ih", "bias_hh", "weight_hr"))
    advance = partial(ADVANCES[layer.mode], P)
    inputs, outputs = F.linear(x, W, b).unbind(0), []
    for given in reversed(inputs) if reverse else inputs:
        state = advance(given, F.linear(state[0], U, c), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs), state


def _cell(layer: Any, input: Tensor, hx: Any = None) -> Any:
    """Like ``nn.RNNCell``, ``nn.GRUCell`` and ``nn.LSTMCell``: the next state [N, units]."""
    if input.dim() not in (1, 2):
        raise RuntimeError(f"{type(layer).__name__} takes inputs of 1 or 2 axes, not {input.dim()}")
    x = input if input.dim() == 2 else input.unsqueeze(0)
    mode = "LSTM" if isinstance(layer, nn.LSTMCell) else "GRU" if isinstance(layer, nn.GRUCell) else "RNN"
    if mode == "RNN":
        mode = f"RNN_{layer.nonlinearity.upper()}"
    zero = torch.zeros(x.shape[0], layer.hidden_size, dtype=x.dtype, device=x.device)
    state: Hidden = (zero,) * (2 if mode == "LSTM" else 1) if hx is None else hx if isinstance(hx, tuple) else (hx,)
    if hx is not None and input.dim() == 1:
        state = tuple(part.unsqueeze(0) for part in state)
    given = F.linear(x, layer.weight_ih, layer.bias_ih)
    state = ADVANCES[mode](None, given, F.linear(state[0], layer.weight_hh, layer.bias_hh), state)
    if input.dim() == 1:
        state = tuple(part.squeeze(0) for part in state)
    return state if len(state) > 1 else state[0]


def _rnn(activation: Callable[[Tensor], Tensor], P: Tensor | None, x: Tensor, h: Tensor, state: Hidden) -> Hidden:
    return (activation(x + h),)


def _gru(P: Tensor | None, x: Tensor, h: Tensor, state: Hidden) -> Hidden:
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), h.chunk(3, -1)
    n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
    return (n + torch.sigmoid(x_z + h_z) * (state[0] - n),)


def _lstm(P: Tensor | None, x: Tensor, h: Tensor, state: Hidden) -> Hidden:
    i, f, g, o = (x + h).chunk(4, -1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    out = torch.sigmoid(o) * torch.tanh(c)
    return (out if P is None else F.linear(out, P)), c


ADVANCES: dict[str, Callable[[Tensor | None, Tensor, Tensor, Hidden], Hidden]] = {
    "RNN_TANH": partial(_rnn, torch.tanh),
    "RNN_RELU": partial(_rnn, torch.relu),
    "GRU": _gru,
    "LSTM": _lstm,
}

FORMS: dict[Any, Callable[..., Any]] = {
    **{kind.forward: _layer for kind in (nn.RNN, nn.GRU, nn.LSTM)},
    **{kind.forward: _cell for kind in (nn.RNNCell, nn.GRUCell, nn.LSTMCell)},
}
"""By torch's forward function, so that a subclass with its own forward keeps it."""
