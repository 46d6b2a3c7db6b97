"""The layers of any module, by a recorded pass: their inputs, and the gradients of their outputs.

A layer is a call of ``linear``, ``conv1d`` or ``conv2d`` (one group) whose weight is used by no other call. A
convolution is a linear layer over its unfolded inputs. A linear layer over a sequence has several rows an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vcl.beliefs.layout import Params
from vcl.engines.usage import values_in
from vcl.ops.layer_weights import Block

Take = Callable[[Block, Tensor, Tensor], None]
"""Takes a layer's inputs [N, T, in] and the gradients of its outputs [N, T, out], T rows an example."""


class _Call(NamedTuple):
    """One call of a layer: its rows of inputs, as a function, its output, and how to turn a gradient into rows."""

    inputs: Callable[[], Tensor]
    probe: Tensor
    rows: Callable[[Tensor], Tensor]


class _Seen(TorchFunctionMode):
    """Records the calls of layers; with ``wanted``, adds a probe to the outputs of those layers."""

    def __init__(self, params: Params, wanted: Mapping[str, Block] | None = None) -> None:
        self.names = {id(value): name for name, value in params.items()}
        self.uses: dict[str, int] = dict.fromkeys(params, 0)
        self.layers: dict[str, Block] = {}
        self.wanted, self.calls = wanted or {}, dict[Block, _Call]()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in OPENED:
            with self:
                return OPENED[func](*args, **kwargs)
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor):
            return result
        found = {id(value) for value in values_in((args, kwargs)) if id(value) in self.names}
        for value in found:
            self.uses[self.names[value]] += 1
        read = LAYERS.get(func)
        layer = None if read is None or not found else read(*args, **kwargs)
        if layer is None or id(layer.weight) not in self.names or id(layer.x) in self.names:
            return result
        weight, bias = self.names[id(layer.weight)], self.names.get(id(layer.bias))
        if layer.bias is None or bias is not None:
            self.layers[weight] = Block(weight, bias)
        if weight not in self.wanted:
            return result
        probe = torch.zeros_like(result, requires_grad=True)
        self.calls[self.wanted[weight]] = _Call(layer.inputs, probe, layer.rows)
        return result + probe


class _Layer(NamedTuple):
    """The arguments of a call, and its inputs and gradients as rows [N, T, ...]."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    inputs: Callable[[], Tensor]
    rows: Callable[[Tensor], Tensor]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Layer:
    def rows(values: Tensor) -> Tensor:
        return values.unsqueeze(0) if values.dim() == 1 else values.reshape(len(values), -1, values.shape[-1])

    return _Layer(input, weight, bias, lambda: rows(input.detach()), rows)


def _conv(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> _Layer | None:  # fmt: skip
    """conv1d or conv2d over a batch; None for several groups or without a batch axis."""
    flat = weight.dim() == 3
    if groups != 1 or input.dim() != weight.dim():
        return None

    def pair(value: Any, other: int) -> tuple[int, int]:
        given = (value,) if isinstance(value, int) else tuple(value)
        given = given * (1 if flat else 2) if len(given) == 1 else given
        return (other, given[0]) if flat else given

    kernel = (1, weight.shape[2]) if flat else (weight.shape[2], weight.shape[3])
    steps, spread = pair(stride, 1), pair(dilation, 1)

    def inputs() -> Tensor:
        x = input.detach().unsqueeze(2) if flat else input.detach()
        if padding == "same":
            around = [d * (k - 1) for d, k in zip(spread, kernel, strict=True)]
            sides = [side for total in reversed(around) for side in (total // 2, total - total // 2)]
            x, pads = F.pad(x, sides), (0, 0)
        else:
            pads = (0, 0) if padding == "valid" else pair(padding, 0)
        return F.unfold(x, kernel, spread, pads, steps).mT

    return _Layer(input, weight, bias, inputs, lambda values: values.flatten(2).mT)


LAYERS: dict[Any, Callable[..., _Layer | None]] = {
    F.linear: _linear,
    F.conv1d: _conv,
    F.conv2d: _conv,
    torch.conv1d: _conv,
    torch.conv2d: _conv,
}
"""How to read the arguments of a layer's function."""


def _without_dispatch(function: Any) -> Callable[..., Any]:
    """A function of ``torch.nn.functional`` whose inner calls are seen one by one, instead of the function itself."""
    inner = {**function.__globals__, "has_torch_function": lambda values: False}
    copy = FunctionType(function.__code__, inner, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


OPENED = {F.multi_head_attention_forward: _without_dispatch(F.multi_head_attention_forward)}
"""Functions made of layers; a mode sees only the outer call of each."""


def find_layers(function: Callable[[Params], Tensor], params: Params) -> tuple[Block, ...]:
    """The layers that ``function`` of one run's parameters uses, from one pass; each parameter of them is used once."""
    seen = _Seen(params)
    with torch.no_grad(), seen:
        function(params)
    return tuple(block for block in seen.layers.values() if all(seen.uses[name] == 1 for name in block.names))


def collect_recorded(
    function: Callable[[Params], Tensor], params: Params, blocks: tuple[Block, ...], take: Take
) -> None:
    """Passes each layer's inputs and the gradients of ``function``'s sum in its outputs to ``take``."""
    seen = _Seen(params, {block.weight: block for block in blocks})
    with torch.enable_grad(), seen:
        value = function(params)
    calls = list(seen.calls.items())
    with torch.enable_grad():
        probes = [call.probe for _, call in calls]
        gradients = torch.autograd.grad(value.sum(), probes, allow_unused=True, materialize_grads=True)
    for (block, call), g in zip(calls, gradients, strict=True):
        take(block, call.inputs(), call.rows(g))
