"""The interface through which layers get weights and return gradients, for any source of weights.

The runs of a *group* are computed at once: a single run on a CPU, all runs on a GPU. G is the number of runs in a
group, S the number of draws, and N = G S, or G for tensors that all draws share. Rows of one run and draw are examples.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Block(NamedTuple):
    """A linear layer: the names of its weight [out, in] and its bias [out], if any."""

    weight: str
    bias: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


def tail(last: Block, head: Block) -> tuple[str, ...]:
    """The last hidden layer's bias, the head's weight and its bias: the parameters of a fused readout kernel."""
    if last.bias is None or head.bias is None:
        raise RuntimeError("a readout in one kernel takes layers with biases")
    return last.bias, head.weight, head.bias


class LayerWeights(Protocol):
    """Weights of a group of runs, layer by layer, and the destination of their gradients."""

    def take(self, name: str) -> Tensor:
        """A parameter [N, ...]; valid until the next group is opened."""
        ...

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        ...

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Record a layer's gradient: g^T h for its weight, and the sum of g over rows for its bias.

        h [N, rows, in] is the input and g [N, rows, out] the gradient of the output. If draws share h it is
        [G, rows, in], and g may then be [G, rows, S out]. ``g_bias`` [N, parts, out] is the bias's gradient, to be
        summed over parts, if already known.
        """
        ...


class LayerMoments(Protocol):
    """Means and variances of a group's weights, layer by layer, and the destination of their gradients."""

    def pair(self, name: str) -> Tensor:
        """Mean and variance [2, G, ...] of a parameter; valid until the next group is opened."""
        ...

    def noise(self, first: int, shape: tuple[int, ...]) -> Tensor:
        """Standard normals [G S, *shape] of the tape, from ``first`` on."""
        ...

    def push_pair(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Record the gradients in means and variances: g^T h for both, with pairs h, g [2, N, rows, ...].

        h holds the input and its square, g the gradients in mean and variance of the output. ``g_bias``
        [2, N, parts, out] is the bias's gradient, if already known.
        """
        ...
