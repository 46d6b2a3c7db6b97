"""Quadratic penalties of layers: by factors A and G, or by variances in rotated coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.blocks import joined, put_back
from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.layout import Layout
from vcl.ops.layer_weights import Block
from vcl.ops.rotations import Groups, grouped, sandwich


class RotatedFactor(NamedTuple):
    """1/2 sum_ij precision_ij (Q_G^T (W - centre) Q_A)_ij^2 for R runs; precision [R, D] is in rotated coordinates.

    ``turns`` has each layer's Q_A and Q_G; parameters of no layer there are not rotated.
    """

    layout: Layout
    centre: Tensor
    precision: Tensor
    turns: Mapping[Block, tuple[Tensor, Tensor]]

    def pull(self, theta: Tensor, g: Tensor | None = None) -> Tensor:
        """The penalty [R] or [R, K] at theta [R, D] or [R, K, D]. Subtracts its gradient from ``g`` in place."""
        size, between = self.layout.size, (slice(None),) + (None,) * (theta.dim() - 2)
        lead = theta.dim() - 1
        shift = theta[..., :size] - self.centre[between]
        params = self.layout.split(shift)
        for block, (Q_A, Q_G) in self.turns.items():
            put_back(params, block, sandwich(grouped(Q_G.mT), joined(params, block, lead), grouped(Q_A)))
        turned = self.layout.join(params, lead=lead)
        pull = self.precision[between] * turned
        value: Tensor = 0.5 * (turned * pull).sum(-1)
        if g is not None:
            back = self.layout.split(pull)
            for block, (Q_A, Q_G) in self.turns.items():
                put_back(back, block, sandwich(grouped(Q_G), joined(back, block, lead), grouped(Q_A.mT)))
            g[..., :size].sub_(self.layout.join(back, lead=lead))
        return value


@final
class KroneckerFactor:
    """1/2 sum over layers of tr( (W - M)^T G (W - M) A ), and a diagonal penalty on all parameters, for R runs.

    The diagonal holds the prior's precision delta, and everything about parameters without factors. G includes lambda.
    A step takes two products a layer: G (W - M) A is the gradient.
    """

    def __init__(self, diagonal: DiagonalFactor, pairs: Mapping[Block, tuple[Tensor, Tensor]]) -> None:
        self.diagonal = diagonal
        centre = diagonal.layout.split(diagonal.centre)
        self.pairs: dict[Block, tuple[Groups, Groups, Tensor]] = {
            block: (grouped(A), grouped(G), joined(centre, block, 1).contiguous()) for block, (A, G) in pairs.items()
        }

    def pull(self, theta: Tensor, g: Tensor | None = None) -> Tensor:
        """The penalty [R] or [R, K] at theta [R, D] or [R, K, D]. Subtracts its gradient from ``g`` in place."""
        layout, between, lead = self.diagonal.layout, (slice(None),) + (None,) * (theta.dim() - 2), theta.dim() - 1
        value = self.diagonal.pull(theta, g)
        now = layout.split(theta[..., : layout.size])
        to = None if g is None else layout.split(g[..., : layout.size])
        for block, (A, G, centre) in self.pairs.items():
            shift = joined(now, block, lead) - centre[between]
            pull = sandwich(G, shift, A)
            value = value + 0.5 * torch.linalg.vecdot(shift.flatten(lead), pull.flatten(lead))
            if to is None:
                continue
            if block.bias is not None:
                to[block.bias].sub_(pull[..., -1])
                pull = pull[..., :-1]
            to[block.weight].sub_(
                pull.reshape(to[block.weight].shape) if pull.dim() != to[block.weight].dim() else pull
            )
        return value
