"""What a layer of a chain is, whatever it is computed with."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from vcl.ops.layer_weights import Block

TINY = 1e-16
"""Added to variances before a square root, whose gradient at 0 (a dead input, no bias) would be NaN."""


class Sizes(NamedTuple):
    """How many runs are taken at once, draws of each, and examples of a batch."""

    group: int
    draws: int
    examples: int


class Linear(NamedTuple):
    """A linear layer in a chain: its units, and what it is given."""

    block: Block
    out: int
    width: int
    relu: bool
    """Whether max(0, a) goes out instead of a."""
    shared_input: bool
    """All draws see the same rows."""
    shared_weight: bool
    """All draws have the same weights."""
    needs_input: bool
    """Whether anything below wants the gradient of what comes in."""
    noise_at: int = 0
    """Where the layer's noise begins on a tape, if its units are drawn."""


class Layer(Protocol):
    """One step of a chain, for a group of runs: rows [N, B, width] with N = G S, or G where draws share them."""

    def up(self, h: Tensor, weights: Any) -> Tensor:
        """What goes out, for what comes in."""
        ...

    def down(self, g: Tensor, weights: Any) -> Tensor | None:
        """The gradient of what came in, for that of what went out, which may be written over; None if not needed."""
        ...


@final
class Function:
    """An elementwise function, differentiated by torch."""

    def __init__(self, function: nn.Module) -> None:
        self.function = function
        self.kept: tuple[Tensor, Tensor] | None = None

    def up(self, h: Tensor, weights: Any) -> Tensor:
        """f(h)."""
        a = h.detach().requires_grad_()
        with torch.enable_grad():
            found: Tensor = self.function(a)
        self.kept = a, found
        return found.detach()

    def down(self, g: Tensor, weights: Any) -> Tensor | None:
        """g f'(h)."""
        if self.kept is None:
            raise RuntimeError("down was called before up")
        a, found = self.kept
        self.kept = None
        return torch.autograd.grad(found, a, g)[0]


class Score(Protocol):
    """log p of what a chain gives, and its gradient."""

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """log p of each draw, in parts [G S, parts] to be summed, and ``share`` times its gradient [G S, B, C].

        ``target`` is [G, B, ...]. Examples whose ``mask`` [G, B] is 0 count for nothing. The gradient is lent.
        """
        ...
