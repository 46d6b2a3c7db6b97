"""A linear layer whose weight is independent in rotated coordinates, W = Q_G (Mbar + Z) Q_A^T, in torch.

    a = Q_G ( Mbar x' + sqrt(V x'^2) eps ),   x' = Q_A^T [x, 1]

Local reparameterisation stays exact: a is Gaussian with the covariance Q_G diag(V x'^2) Q_G^T. So the layer is a local
layer without a bias between two rotations.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from vcl.ops.layer_weights import Block
from vcl.ops.layers import Linear, Sizes
from vcl.ops.layers_torch import RULES, Local, through_relu


@final
class Rotated:
    """The layer; ``weights.fit.rotations`` has each run's Q_A and Q_G by the weight's name."""

    NOISY = True
    """It takes noise for every unit and example."""

    def __init__(self, of: Linear, sizes: Sizes, like: Tensor, above: Any = None) -> None:
        self.of, self.bias = of, of.block.bias is not None
        inner = of._replace(block=Block(of.block.weight, None), width=of.width + self.bias, relu=False)
        self.inner = Local(inner, sizes, like)
        self.h = like.new_ones(1 if of.shared_input else sizes.draws, sizes.examples, of.width + self.bias)
        self.a = self.Q_A = self.Q_G = like

    def up(self, h: Tensor, weights: Any) -> Tensor:
        """a, or the positive part of it."""
        self.Q_A, self.Q_G = weights.fit.rotations[self.of.block.weight][weights.number]
        self.h[..., : self.of.width].copy_(h)  # the last column is 1, the input of the bias
        self.a = self.inner.up(self.h @ self.Q_A, weights) @ self.Q_G.mT
        return self.a.relu_() if self.of.relu else self.a

    def down(self, g: Tensor, weights: Any) -> Tensor | None:
        """The gradient in h."""
        g = through_relu(g.clone(), self.a) if self.of.relu else g
        back = self.inner.down(g @ self.Q_G, weights)
        return None if back is None else (back @ self.Q_A.mT)[..., : self.of.width].contiguous()


RULES["rotated"] = Rotated
