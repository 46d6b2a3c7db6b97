"""Quadratic penalties: -log q(theta) up to a constant. They may be improper, so they are not beliefs.

    1/2 (theta - centre)^T Lambda (theta - centre)

Where Lambda is 0, theta is not penalised: EWC has no prior, and a task may not inform every parameter.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.ops.penalties import pull_quadratic


class DiagonalFactor(NamedTuple):
    """1/2 sum_d precision_d (theta_d - centre_d)^2 for R runs: centre and precision [R, D]."""

    layout: Layout
    centre: Tensor
    precision: Tensor

    def scaled(self, weight: Tensor) -> DiagonalFactor:
        """The penalty times ``weight``, such as lambda: per run [R, 1] or per coordinate [R, D]."""
        return self._replace(precision=weight * self.precision)

    def on(self, part: Layout) -> DiagonalFactor:
        """The penalty on ``part`` only; the precision of the rest is 0.

        If ``part`` comes first in the layout, the result is over ``part`` alone, and :meth:`pull` reads no more.
        """
        cut = DiagonalFactor(part, *(self.layout.cut(values, part) for values in self[1:]))
        if part.names == self.layout.names[: len(part.names)]:
            return cut
        return self._replace(precision=self.layout.pad(cut.precision, part))

    def pull(self, theta: Tensor, g: Tensor | None = None) -> Tensor:
        """The penalty [R] or [R, K] at theta [R, D] or [R, K, D].

        Without ``g`` it is differentiable. With ``g``, of theta's shape, its gradient precision (theta - centre) is
        subtracted from ``g`` in place. Coordinates of theta beyond the layout are ignored.
        """
        size = self.layout.size
        theta, centre, precision = theta[..., :size], self.centre, self.precision
        centre, precision = _beside(centre, theta), _beside(precision, theta)
        if g is not None:
            return pull_quadratic(theta, centre, precision, g[..., :size])
        return 0.5 * (precision * (theta - centre).square()).sum(-1)


class FullFactor(NamedTuple):
    """1/2 (theta - centre)^T precision (theta - centre) for R runs: centre [R, D], precision [R, D, D]."""

    layout: Layout
    centre: Tensor
    precision: Tensor

    def scaled(self, weight: Tensor) -> FullFactor:
        """W^{1/2} precision W^{1/2}, W = diag(weight): ``weight`` per run [R, 1] or per coordinate [R, D].

        Thus the penalty stays non-negative, and independent tensors are weighted independently.
        """
        root = weight.sqrt()
        return self._replace(precision=root.unsqueeze(-1) * self.precision * root.unsqueeze(-2))

    def on(self, part: Layout) -> FullFactor:
        """The penalty on ``part`` only, with the rest at the centre; the precision of the rest is 0."""
        held = self.layout.pad(self.centre.new_ones(part.size), part)
        return self._replace(precision=held.unsqueeze(-1) * self.precision * held)

    def pull(self, theta: Tensor, g: Tensor | None = None) -> Tensor:
        """The penalty [R] or [R, K] at theta [R, D] or [R, K, D]; see :meth:`DiagonalFactor.pull`."""
        size = self.layout.size
        shift = theta[..., :size] - _beside(self.centre, theta)
        pull = (shift.reshape(len(shift), -1, size) @ self.precision).reshape(shift.shape)
        if g is not None:
            g[..., :size].sub_(pull)
        return 0.5 * torch.einsum("...d,...d->...", shift, pull)


def _beside(values: Tensor, theta: Tensor) -> Tensor:
    """``values`` [R, D], reshaped to broadcast with theta [R, D] or [R, K, D]."""
    return values if theta.dim() == 2 else values.unsqueeze(1)
