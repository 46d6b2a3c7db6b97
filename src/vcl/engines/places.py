"""Where gradients go: each to its place in one piece of memory, written there by whoever computes it.

torch hands back a gradient for each tensor and then copies them together. A function that makes its gradient by a
matrix product can as well write it where it belongs: it asks the node that its parameter came from for the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout


@final
class Places:
    """A place for the gradient of each of some tensors, all in one memory, which is made when first asked for."""

    def __init__(self, make: Callable[[], Tensor], cut: Callable[[Tensor], Sequence[Tensor]]) -> None:
        self.make, self.cut = make, cut
        self.opened: tuple[Tensor, Sequence[Tensor]] | None = None
        self.taken: set[int] = set()

    def take(self, number: int) -> Tensor | None:
        """Where the gradient of that tensor may be written. Once only: a second one is to be added, by torch."""
        if number in self.taken:
            return None
        self.taken.add(number)
        return self._open()[1][number]

    def settle(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """The memory with all gradients in it: those that stand elsewhere are copied, and none is 0."""
        memory, places = self._open()
        for place, gradient in zip(places, gradients, strict=True):
            if gradient is None:
                place.zero_()
            elif gradient.data_ptr() != place.data_ptr() or gradient.stride() != place.stride():
                place.copy_(gradient)
        self.opened, self.taken = None, set()
        return memory

    def _open(self) -> tuple[Tensor, Sequence[Tensor]]:
        if self.opened is None:
            memory = self.make()
            self.opened = memory, self.cut(memory)
        return self.opened


class Home(NamedTuple):
    """The place of one tensor's gradient: whose places, and which of them."""

    places: Places
    number: int


def home_of(values: Tensor | None) -> Home | None:
    """Where the gradient of ``values`` belongs, if the node that it comes from has a place for it."""
    places = None if values is None else getattr(values.grad_fn, "places", None)
    return Home(places, values.output_nr) if values is not None and isinstance(places, Places) else None


def place_at(home: Home | None, like: Tensor) -> Tensor:
    """Memory for a gradient of the shape of ``like``: its place, or else new memory."""
    place = None if home is None else home.places.take(home.number)
    return _like(like) if place is None else place


def pieces(layout: Layout, flat: Tensor) -> dict[str, Tensor]:
    """As :meth:`Layout.split` of ``flat`` [R, D], each [R, ...], with a place for each one's gradient."""
    return dict(zip(layout.names, _Pieces.apply(flat, layout), strict=True))  # type: ignore[no-untyped-call]


class _Pieces(torch.autograd.Function):
    """Views of one tensor."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, layout: Layout) -> tuple[Tensor, ...]:
        ctx.places = Places(lambda: _like(flat), lambda memory: list(layout.split(memory).values()))
        ctx.set_materialize_grads(False)
        return tuple(layout.split(flat).values())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return ctx.places.settle(gradients), None


def _like(values: Tensor) -> Tensor:
    """New memory for as many values, in one piece."""
    return torch.empty_like(values, memory_format=torch.contiguous_format)
