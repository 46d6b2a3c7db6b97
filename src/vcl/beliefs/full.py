"""The Gaussian with a full precision matrix, for R independent runs at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.factors import FullFactor
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField


class FullGaussian(NamedTuple):
    """N(theta; mean, precision^{-1}) for R runs: mean [R, D], precision [R, D, D]."""

    layout: Layout
    mean: Tensor
    precision: Tensor

    def grow(self, prior: MeanField) -> FullGaussian:
        """New parameters at the prior, independent of the old ones."""
        layout = self.layout.extend(prior.layout)
        new = self.layout.new(prior.layout).size
        precision = torch.nn.functional.pad(self.precision, (0, new, 0, new))
        diagonal = self.layout.append(torch.zeros_like(self.mean), prior.layout, (-prior.log_var).exp())
        mean = self.layout.append(self.mean, prior.layout, prior.mean)
        return FullGaussian(layout, mean, precision + torch.diag_embed(diagonal))

    def restrict(self, part: Layout) -> FullGaussian:
        """The marginal over ``part``: a block of the covariance."""
        index = self.layout.places(part)
        covariance = torch.linalg.inv(self.precision)[:, index][:, :, index]
        return FullGaussian(part, self.mean[:, index], torch.linalg.inv(covariance))

    def merge(self, part: FullGaussian) -> FullGaussian:
        """q(part) replaced, and q(rest | part) kept.

        With a the part and b the rest, the joint precision is that of q(b | a), with the part's precision in the place
        of the marginal's: Lambda_aa + (new - old), where old is the marginal precision of a; and b's mean moves along.
        """
        index = self.layout.places(part.layout).to(self.mean.device)
        rest = torch.ones(self.layout.size, dtype=torch.bool, device=self.mean.device)
        rest[index] = False
        other = rest.nonzero()[:, 0]
        old = self.restrict(part.layout)
        precision = self.precision.clone()
        precision[:, index[:, None], index] += part.precision - old.precision
        mean = self.mean.index_copy(1, index, part.mean)
        if len(other):
            cross = self.precision[:, other][:, :, index] @ (part.mean - old.mean)[..., None]
            mean[:, other] -= torch.linalg.solve(self.precision[:, other][:, :, other], cross)[..., 0]
        return FullGaussian(self.layout, mean, precision)

    def to(self, where: torch.device | torch.dtype | str) -> FullGaussian:
        """On another device, or in another precision."""
        return FullGaussian(self.layout, self.mean.to(where), self.precision.to(where))

    def select(self, runs: Tensor) -> FullGaussian:
        """These runs only."""
        return FullGaussian(self.layout, self.mean[runs], self.precision[runs])

    def factor(self) -> FullFactor:
        """1/2 (theta - mean)^T precision (theta - mean)."""
        return FullFactor(self.layout, self.mean, self.precision)

    def draw(self, noise: Tensor) -> Tensor:
        """mean + L^{-T} noise, where precision = L L^T."""
        upper = torch.linalg.cholesky(self.precision).mT
        flat = noise.reshape(noise.shape[0], -1, noise.shape[-1])
        spread = torch.linalg.solve_triangular(upper, flat.mT, upper=True).mT
        draws: Tensor = self.mean[:, None] + spread
        return draws.reshape(noise.shape)
