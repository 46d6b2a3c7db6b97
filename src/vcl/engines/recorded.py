"""The layers of any module, by a recorded pass: their inputs, and the gradients of their outputs.

A layer is a call of ``linear``, ``conv1d`` or ``conv2d`` (one group) whose weight is used by no other call, and not
within a ``vmap`` of the module's own. A convolution is a linear layer over its unfolded inputs. A linear layer over a
sequence has several rows an example; :func:`find_places` finds which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vcl.beliefs.layout import Params
from vcl.engines.usage import values_in
from vcl.errors import VclError
from vcl.ops.layer_weights import Block

Take = Callable[[Block, Tensor, Tensor], None]
"""Takes a layer's inputs [N, T, in] and the gradients of its outputs [N, T, out], T rows an example."""


class _Call(NamedTuple):
    """One call of a layer: its rows of inputs, as a function, its output, and how to turn a gradient into rows."""

    inputs: Callable[[], Tensor]
    probe: Tensor
    rows: Callable[[Tensor], Tensor]


class Place(NamedTuple):
    """Where a layer's rows [..., C] have the examples: the axis, and whether they vary fastest along it."""

    axis: int
    fastest: bool

    def by_example(self, rows: Tensor, examples: int) -> Tensor:
        """The rows of each example [N, T, C]."""
        lead, size = rows.shape[:-1], rows.shape[self.axis]
        pair = (size // examples, examples) if self.fastest else (examples, size // examples)
        split = rows.reshape(*lead[: self.axis], *pair, *lead[self.axis + 1 :], rows.shape[-1])
        return split.movedim(self.axis + self.fastest, 0).reshape(examples, -1, rows.shape[-1])


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
        if not any(isinstance(value, Tensor) for value in values_in(result)):
            return result
        found = {id(value) for value in values_in((args, kwargs)) if id(value) in self.names}
        for value in found:  # chunk, split and unbind give several tensors
            self.uses[self.names[value]] += 1
        read = LAYERS.get(func)
        layer = None if read is None or not found or not isinstance(result, Tensor) else read(*args, **kwargs)
        if layer is None or id(layer.weight) not in self.names or id(layer.x) in self.names:
            return result
        if torch._C._functorch.is_batchedtensor(result):  # within a vmap of the module's own
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
    """The arguments of a call, and its inputs and gradients as rows [..., in] and [..., out]."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    inputs: Callable[[], Tensor]
    rows: Callable[[Tensor], Tensor]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Layer:
    def rows(values: Tensor) -> Tensor:
        return values.unsqueeze(0) if values.dim() == 1 else values

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
    function: Callable[[Params], Tensor], params: Params, blocks: tuple[Block, ...], take: Take,
    places: Mapping[Block, Place] | None = None, examples: int = 0,
) -> None:  # fmt: skip
    """Passes each layer's inputs and the gradients of ``function``'s sum in its outputs to ``take``.

    With ``places`` each layer's N are the ``examples``; without, they are the first axis, whatever that is.
    """

    def grouped(block: Block, rows: Tensor) -> Tensor:
        if places is None:
            return rows.reshape(len(rows), -1, rows.shape[-1])
        return places[block].by_example(rows, examples)

    for block, h, g in _recorded(function, params, blocks):
        take(block, grouped(block, h), grouped(block, g))


def find_places(
    function: Callable[[Params, int], Tensor], params: Params, blocks: tuple[Block, ...]
) -> dict[Block, Place]:
    """Where each layer's rows have the examples, by passes of two and of three: the axis is the one that grows.

    ``function`` gives log p of so many examples, [N]. Where an axis holds several rows of each example, the gradients
    of one example's log p tell its rows. VclError where rows belong to no single example.
    """
    two, three, first = (
        {block: (h, g) for block, h, g in _recorded(partial(_of, function, examples, part), params, blocks)}
        for examples, part in ((2, slice(None)), (3, slice(None)), (2, slice(0, 1)))
    )
    return {block: _place(block, two[block][0].shape, three[block][0].shape, first[block][1]) for block in two}


def _of(function: Callable[[Params, int], Tensor], examples: int, part: slice, params: Params) -> Tensor:
    return function(params, examples)[part]


def _place(block: Block, two: torch.Size, three: torch.Size, g: Tensor) -> Place:
    """From the rows' shapes for two and three examples, and the gradient of the first of two examples."""
    grown = [axis for axis, (a, b) in enumerate(zip(two, three, strict=False)) if 3 * a == 2 * b]
    same = [axis for axis, (a, b) in enumerate(zip(two, three, strict=False)) if a == b]
    if len(two) == len(three) and len(grown) == 1 and len(same) == len(two) - 1:
        fitting = []
        for fastest in (False, True):
            place = Place(grown[0], fastest)
            if not bool(place.by_example(g, 2)[1].any()):  # the second example has no part in the first's
                fitting.append(place)
        if fitting and (len(fitting) == 1 or two[grown[0]] == 2):
            return fitting[0]
    raise VclError(
        f"the layer of {block.weight!r} has rows {tuple(two[:-1])} for two examples and {tuple(three[:-1])} for three, "
        "so it is not known which rows are an example's; use sharing='expand'."
    )


def _recorded(
    function: Callable[[Params], Tensor], params: Params, blocks: tuple[Block, ...]
) -> Iterator[tuple[Block, Tensor, Tensor]]:
    """Each layer with its rows of inputs [..., in] and of gradients [..., out]."""
    seen = _Seen(params, {block.weight: block for block in blocks})
    try:
        with torch.enable_grad(), seen:
            value = function(params)
        calls = list(seen.calls.items())
        with torch.enable_grad():
            probes = [call.probe for _, call in calls]
            gradients = torch.autograd.grad(value.sum(), probes, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        raise VclError(
            "the network's layers cannot be recorded for Kronecker factors; remove what computes them again, such as "
            f"torch.utils.checkpoint, or use a diagonal belief. (torch: {str(error).splitlines()[0]})"
        ) from error
    for (block, call), g in zip(calls, gradients, strict=True):
        yield block, call.inputs(), call.rows(g)
