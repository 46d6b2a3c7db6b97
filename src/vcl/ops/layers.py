"""The interface of a layer of a chain, for any implementation."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from vcl.ops.layer_weights import Block

TINY = 1e-16
"""Added to variances before a square root: its gradient at 0 (a dead input, no bias) would be NaN."""


class Sizes(NamedTuple):
    """The number of runs computed at once, of draws per run, and of examples per batch."""

    group: int
    draws: int
    examples: int


class Linear(NamedTuple):
    """A linear layer in a chain: its sizes and inputs."""

    block: Block
    out: int
    width: int
    relu: bool
    """Whether the output is max(0, a) instead of a."""
    shared_input: bool
    """Whether all draws have the same rows."""
    shared_weight: bool
    """Whether all draws have the same weights."""
    needs_input: bool
    """Whether the gradient of the input is needed."""
    noise_at: int = 0
    """The start of the layer's noise on a tape, if it draws its units."""


class Layer(Protocol):
    """One step of a chain, for a group of runs: rows [N, B, width], N = G S, or G if draws share them."""

    def up(self, h: Tensor, weights: Any) -> Tensor:
        """The output, from the input."""
        ...

    def down(self, g: Tensor, weights: Any) -> Tensor | None:
        """The input's gradient, from the output's, which may be overwritten; None if not needed."""
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
    """log p of a chain's output, and its gradient."""

    def __call__(self, output: Tensor, target: Tensor, share: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """log p of each draw, in parts [G S, parts] to be summed, and ``share`` times its gradient [G S, B, C].

        ``target`` is [G, B, ...]. Examples whose ``mask`` [G, B] is 0 are ignored. The next call may overwrite the
        gradient.
        """
        ...
