"""How layers get their weights and give back gradients, whatever the weights follow from.

The runs of a *group* are taken at once: one run after another on a CPU, all of them on a GPU. G counts the runs of a
group, S the draws, and N is G S, or G for what all draws share. Rows of one run and draw are examples.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Block(NamedTuple):
    """A linear layer: the names of its weight [out, in] and of its bias [out], if it has one."""

    weight: str
    bias: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Both."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


def tail(last: Block, head: Block) -> tuple[str, ...]:
    """The last hidden layer's bias, the head's weight and its bias: what one kernel of a readout finds gradients of."""
    if last.bias is None or head.bias is None:
        raise RuntimeError("a readout in one kernel takes layers with biases")
    return last.bias, head.weight, head.bias


class LayerWeights(Protocol):
    """Weights of a group of runs, layer by layer, and where their gradients go."""

    def take(self, name: str) -> Tensor:
        """A parameter [N, ...]; valid until the next group is opened."""
        ...

    def layer(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """A layer's weight, and its bias if it has one."""
        ...

    def push(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Take note of a layer's gradient: g^T h for its weight, and the sum of g over rows for its bias.

        h [N, rows, in] came in and g [N, rows, out] is the gradient of what went out. Draws that share their h have it
        as [G, rows, in], and then g may also stand as [G, rows, S out]. ``g_bias`` [N, parts, out] is the bias's, to be
        summed over parts, where it is known already.
        """
        ...


class LayerMoments(Protocol):
    """Means and variances of a group's weights, layer by layer, and where their gradients go."""

    def pair(self, name: str) -> Tensor:
        """Mean and variance [2, G, ...] of a parameter; valid until the next group is opened."""
        ...

    def noise(self, first: int, shape: tuple[int, ...]) -> Tensor:
        """Standard normals of the tape from ``first`` on, [G S, *shape]."""
        ...

    def push_pair(self, block: Block, h: Tensor, g: Tensor, g_bias: Tensor | None = None) -> None:
        """Take note of the gradients in means and variances: g^T h for both, h and g being pairs [2, N, rows, ...].

        h holds what came in and its square, g the gradients in mean and variance of what went out. ``g_bias``
        [2, N, parts, out] is the bias's, where it is known already.
        """
        ...
