"""The Gaussian with a full precision matrix q(theta) = N(theta; mean, Lambda^{-1}), for R independent runs at once."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.belief import Roles
from vcl.beliefs.factors import FullFactor
from vcl.beliefs.layout import Layout, Rows
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.stored import MATRIX, VECTOR, checked
from vcl.errors import NonFiniteError, VclError, unknown

CLIMBS = ("log_var", "log_sd")


class FullGaussian(NamedTuple):
    """N(theta; mean, precision^{-1}) for R runs: mean [R, D], precision [R, D, D]."""

    layout: Layout
    mean: Tensor
    precision: Tensor

    @classmethod
    def from_prior(cls, prior: MeanField) -> FullGaussian:
        """The prior with its diagonal precision as a matrix."""
        return cls(prior.layout, prior.mean, torch.diag_embed(_precision(prior)))

    def expand(self, runs: int) -> FullGaussian:
        """The same one-run distribution for ``runs`` runs."""
        return FullGaussian(self.layout, self.mean.expand(runs, -1), self.precision.expand(runs, -1, -1))

    def grow(self, prior: MeanField) -> FullGaussian:
        """The belief with new parameters at the prior, independent of the old ones."""
        grown = self.layout.extend(prior.layout)
        if grown == self.layout:
            return self
        old = self.layout.leading(grown).to(self.mean.device)
        mean = self.layout.append(self.mean, prior.layout, prior.mean)
        # What the old values get here is replaced by their own precision.
        precision = torch.diag_embed(self.layout.append(torch.ones_like(self.mean), prior.layout, _precision(prior)))
        precision[:, old[:, None], old] = self.precision
        return FullGaussian(grown, mean, precision)

    def restrict(self, part: Layout) -> FullGaussian:
        """The marginal over ``part``. With a the part and b the rest, its precision is L_aa - L_ab L_bb^{-1} L_ba."""
        if part == self.layout:
            return self
        index, other = self._positions(part)
        return FullGaussian(part, self.mean[:, index], self._marginal(index, other))

    def merge(self, part: FullGaussian) -> FullGaussian:
        """Replaces q(part) and keeps q(rest | part).

        With a the part and b the rest, L_bb, L_ba and m_b + L_bb^{-1} L_ba m_a determine q(b | a) and stay fixed. L_aa
        becomes the part's precision plus L_ab L_bb^{-1} L_ba, and m_b moves with m_a.
        """
        if part.layout == self.layout:
            return part
        index, other = self._positions(part.layout)
        precision = self.precision.clone()
        precision[:, index[:, None], index] = part.precision + self._explained(index, other)
        moved = self.precision[:, other][:, :, index] @ (part.mean - self.mean[:, index]).unsqueeze(-1)
        mean = self.mean.index_copy(1, index, part.mean)
        mean[:, other] -= torch.linalg.solve(self.precision[:, other][:, :, other], moved).squeeze(-1)
        return FullGaussian(self.layout, mean, precision)

    def to(self, where: torch.device | torch.dtype | str) -> FullGaussian:
        """Move to another device or dtype."""
        return FullGaussian(self.layout, self.mean.to(where), self.precision.to(where))

    def select(self, runs: Tensor) -> FullGaussian:
        """The selected runs."""
        return FullGaussian(self.layout, self.mean[runs], self.precision[runs])

    def factor(self) -> FullFactor:
        """1/2 (theta - mean)^T precision (theta - mean)."""
        return FullFactor(self.layout, self.mean, self.precision)

    def faded(self, prior: MeanField, share: float) -> FullGaussian:
        """q^(1-share) prior^share, normalised: :func:`vcl.beliefs.fading.fade`."""
        if share == 1:
            return FullGaussian.from_prior(prior)
        part = share * _precision(prior)
        precision = (1 - share) * self.precision + torch.diag_embed(part)
        pull = (part * (prior.mean - self.mean)).unsqueeze(-1)
        shift = torch.cholesky_solve(pull, torch.linalg.cholesky(precision)).squeeze(-1)
        return FullGaussian(self.layout, self.mean + shift, precision)

    def draw(self, noise: Tensor) -> Tensor:
        """mean + L^{-T} noise, where precision = L L^T."""
        upper = torch.linalg.cholesky(self.precision).mT
        flat = noise.reshape(noise.shape[0], -1, noise.shape[-1])
        spread = torch.linalg.solve_triangular(upper, flat.mT, upper=True).mT
        draws: Tensor = self.mean[:, None] + spread
        return draws.reshape(noise.shape)

    def tensors(self) -> dict[str, Tensor]:
        """mean and precision, by name."""
        return {"mean": self.mean, "precision": self.precision}

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> FullGaussian:
        """The inverse of :meth:`tensors`, checked."""
        return cls(layout, *checked(layout, tensors, {"mean": VECTOR, "precision": MATRIX}))

    def start(self, mean: Tensor, wide: Rows, var: float) -> FullGaussian:
        """At ``mean`` [R, D]; the rows ``wide`` are independent with variance ``var``, the others keep theirs."""
        mask = self.layout.mask(wide).to(mean.device)
        index, other = ((~mask).nonzero()[:, 0], mask.nonzero()[:, 0])
        precision = torch.diag_embed(torch.full_like(mean, 1 / var))
        precision[:, index[:, None], index] = self._marginal(index, other) if len(other) else self.precision
        return FullGaussian(self.layout, mean, precision)

    def bind(self, roles: Roles, climbs: str) -> FullFit:
        """The fit that starts from this belief; it optimises the mean and a Cholesky factor of the covariance."""
        return FullFit(self, roles, climbs)

    def _positions(self, part: Layout) -> tuple[Tensor, Tensor]:
        """Positions of ``part`` and of the rest."""
        rest = self.layout.where(lambda name: name not in part.names)
        where = self.mean.device
        return self.layout.positions(part).to(where), self.layout.positions(rest).to(where)

    def _marginal(self, index: Tensor, other: Tensor) -> Tensor:
        """L_aa - L_ab L_bb^{-1} L_ba: the precision at ``index`` with ``other`` integrated out."""
        return self.precision[:, index][:, :, index] - self._explained(index, other)

    def _explained(self, index: Tensor, other: Tensor) -> Tensor:
        """L_ab L_bb^{-1} L_ba: what a part's precision loses when the rest is integrated out; 0 if independent."""
        cross = self.precision[:, other][:, :, index]
        found: Tensor = cross.mT @ torch.linalg.solve(self.precision[:, other][:, :, other], cross)
        return 0.5 * (found + found.mT)


@final
class FullFit:
    """Optimises mean [R, D] and C [R, D, D]: covariance = L L^T, L = diag(s) (I + strict lower triangle of C).

    log s is the diagonal of C with ``climbs="log_sd"``, and half of it with ``"log_var"``: s_d^2 is the variance of
    theta_d given theta_1, ..., theta_{d-1}. Rows are scaled by s, so that the optimiser's steps, which all have one
    length, are in units of standard deviations. Entries above the diagonal are 0 and have no gradient.
    """

    def __init__(self, previous: FullGaussian, roles: Roles, climbs: str) -> None:
        if climbs not in CLIMBS:
            raise unknown("climbs", climbs, CLIMBS)
        loose = [name for name in previous.layout.names if name not in roles.held.names]
        if loose:
            raise VclError(
                f"a full Gaussian needs a posterior over every parameter, but {loose[0]!r} is a point or free; give "
                "that model a mean-field belief."
            )
        self.previous, self.scale = previous, 0.5 if climbs == "log_var" else 1.0
        self.root = torch.linalg.cholesky(previous.precision)  # precision = root root^T
        self.log_det = 2 * self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @property
    def noise(self) -> int:
        """D standard normals per draw."""
        return self.previous.layout.size

    def parameters(self, q: FullGaussian) -> tuple[Tensor, ...]:
        """Mean and C at q."""
        root = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(q.precision)))
        s = root.diagonal(dim1=-2, dim2=-1)
        return q.mean, (root / s.unsqueeze(-1)).tril(-1) + torch.diag_embed(s.log() / self.scale)

    def belief(self, parameters: tuple[Tensor, ...]) -> FullGaussian:
        """The inverse of :meth:`parameters`; NonFiniteError for runs whose precision has no Cholesky factor."""
        mean, _ = parameters
        lower = self._lower(parameters).double()
        inverse = torch.linalg.solve_triangular(lower, torch.eye(self.noise).to(lower), upper=False)
        precision = (inverse.mT @ inverse).to(mean.dtype)
        bad = torch.linalg.cholesky_ex(precision).info.ne(0) | ~precision.isfinite().all(-1).all(-1)
        if bool(bad.any()):
            runs, reason = bad.nonzero()[:, 0].tolist(), (
                "the precision of the full Gaussian is no longer positive definite: lower the learning rate, take "
                "more draws, or use float64 or the family 'mean-field'."
            )  # fmt: skip
            raise NonFiniteError(reason, runs, reason)
        return FullGaussian(self.previous.layout, mean, precision)

    def draw(self, parameters: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        """theta = mean + L noise: [R, S, D] from noise [R, S, D], differentiable in the parameters."""
        mean, _ = parameters
        return mean.unsqueeze(1) + noise @ self._lower(parameters).mT

    def kl(self, parameters: tuple[Tensor, ...]) -> Tensor:
        """KL(q || previous) of each run [R].

        1/2 [ tr(Lambda L L^T) + (m - m_p)^T Lambda (m - m_p) - D - log det Lambda - log det L L^T ], with the previous
        belief's precision Lambda.
        """
        mean, lower = parameters
        trace = (self.root.mT @ self._lower(parameters)).square().sum((-2, -1))
        shift = (self.root.mT @ (mean - self.previous.mean).unsqueeze(-1)).square().sum((-2, -1))
        log_det = 2 * self.scale * lower.diagonal(dim1=-2, dim2=-1).sum(-1)
        value: Tensor = 0.5 * (trace + shift - self.noise - self.log_det - log_det)
        return value

    def _lower(self, parameters: tuple[Tensor, ...]) -> Tensor:
        """L."""
        _, lower = parameters
        diagonal = (self.scale * lower.diagonal(dim1=-2, dim2=-1)).exp()
        return diagonal.unsqueeze(-1) * lower.tril(-1) + torch.diag_embed(diagonal)


def _precision(prior: MeanField) -> Tensor:
    """e^{-log_var}; VclError if the prior has a point."""
    points = [name for name, values in prior.layout.split(prior.log_var).items() if bool((values == -inf).any())]
    if points:
        raise VclError(
            f"a full Gaussian has no points, but the prior of {points[0]!r} has variance 0; give that model a "
            "mean-field belief."
        )
    return (-prior.log_var).exp()
