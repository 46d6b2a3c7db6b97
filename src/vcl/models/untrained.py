"""Whether a network has the values of a new one, or may have been trained.

torch draws the weights of a new linear, convolutional or recurrent layer uniformly from -b to b: b = 1 / sqrt(n) for n
inputs of a unit, or n recurrent units. Training moves some of them beyond b, or shrinks them. Values that were drawn in
another way count as trained, since nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

SURE = 6.0
"""How many standard errors the mean square of new weights may be from b^2 / 3."""


def untrained(net: nn.Module) -> bool:
    """Whether all linear, convolutional and recurrent layers, of which there are some, have values as torch's own."""
    weights = [each for each in _weights(net) if not is_lazy(each[0])]
    lazy = any(is_lazy(value) for value in net.parameters())
    return (lazy or bool(weights)) and all(_new(*each) for each in weights)


def _weights(net: nn.Module) -> Iterator[tuple[Tensor, float]]:
    """Each matrix of weights and its bound b."""
    for part in net.modules():
        if isinstance(part, nn.RNNBase):
            for name, value in part.named_parameters(recurse=False):
                if name.startswith("weight"):
                    yield value, part.hidden_size**-0.5
        elif isinstance(part, nn.Linear | _ConvNd):
            weight = part.weight
            yield weight, 0.0 if is_lazy(weight) else max(1, weight[0].numel()) ** -0.5


@torch.no_grad()
def _new(weight: Tensor, bound: float) -> bool:
    """Whether these values may be uniform from -bound to bound."""
    if not weight.numel():
        return True
    slack = 1 + 4 * torch.finfo(weight.dtype).eps
    if float(weight.abs().max()) > bound * slack:
        return False
    # The square of a uniform value has a relative variance of 4/5.
    share = float(weight.double().square().mean()) / (bound**2 / 3)
    return abs(share - 1) < SURE * sqrt(0.8 / weight.numel())
