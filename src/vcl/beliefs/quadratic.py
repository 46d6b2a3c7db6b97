"""An estimate and a diagonal quadratic that summarises past data: the belief of EWC and synaptic intelligence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField, like_draws
from vcl.beliefs.stored import VECTOR, checked


class Quadratic(NamedTuple):
    """An estimate theta_t and a diagonal quadratic for the past, for R runs: mean, centre and precision [R, D].

    The past is -1/2 (theta - centre)^T diag(precision) (theta - centre). EWC includes its lambdas in the precision; SI
    applies lambda at each fit. Parameters that no data has informed have precision 0: there is no prior.
    """

    layout: Layout
    mean: Tensor
    centre: Tensor
    precision: Tensor

    def expand(self, runs: int) -> Quadratic:
        """The same one-run belief for ``runs`` runs."""
        return Quadratic(self.layout, *(values.expand(runs, -1) for values in self[1:]))

    def grow(self, prior: MeanField) -> Quadratic:
        """The belief with new parameters and outputs of heads at the prior's mean and precision 0."""
        mean, centre = (self.layout.append(part, prior.layout, prior.mean) for part in (self.mean, self.centre))
        precision = self.layout.append(self.precision, prior.layout, torch.zeros_like(prior.mean))
        return Quadratic(self.layout.extend(prior.layout), mean, centre, precision)

    def restrict(self, part: Layout) -> Quadratic:
        """The coordinates of ``part``."""
        return Quadratic(part, *(self.layout.pick(values, part) for values in self[1:]))

    def merge(self, part: Quadratic) -> Quadratic:
        """The belief with the coordinates of ``part`` replaced; the others keep their bits."""
        pairs = zip(self[1:], part[1:], strict=True)
        return Quadratic(self.layout, *(self.layout.put(old, part.layout, new) for old, new in pairs))

    def to(self, where: torch.device | torch.dtype | str) -> Quadratic:
        """Move to another device or dtype."""
        return Quadratic(self.layout, self.mean.to(where), self.centre.to(where), self.precision.to(where))

    def select(self, runs: Tensor) -> Quadratic:
        """The selected runs."""
        return Quadratic(self.layout, self.mean[runs], self.centre[runs], self.precision[runs])

    def factor(self) -> DiagonalFactor:
        """1/2 (theta - centre)^T diag(precision) (theta - centre)."""
        return DiagonalFactor(self.layout, self.centre, self.precision)

    def draw(self, noise: Tensor) -> Tensor:
        """The estimate, for every draw."""
        return like_draws(self.mean, noise).expand(noise.shape)

    def tensors(self) -> dict[str, Tensor]:
        """mean, centre and precision, by name."""
        return {"mean": self.mean, "centre": self.centre, "precision": self.precision}

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Quadratic:
        """The inverse of :meth:`tensors`, checked."""
        return cls(layout, *checked(layout, tensors, {"mean": VECTOR, "centre": VECTOR, "precision": VECTOR}))

    def add(self, anchor: Tensor, phi: Tensor) -> Quadratic:
        """The belief with -1/2 (theta - anchor)^T diag(phi) (theta - anchor) added.

        A sum of diagonal quadratics is one quadratic plus a constant: precisions add, and the centre is the
        precision-weighted mean of the anchors. So memory does not grow with the number of tasks.
        """
        precision = self.precision + phi
        # Where the precision is 0 the centre has no meaning and stays.
        share = torch.where(precision > 0, phi / precision, 0)
        return self._replace(centre=self.centre + share * (anchor - self.centre), precision=precision)


def without_past(prior: MeanField) -> Quadratic:
    """The prior's mean as the estimate, with precision 0."""
    return Quadratic(prior.layout, prior.mean, prior.mean, torch.zeros_like(prior.mean))
