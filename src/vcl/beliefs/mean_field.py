"""The mean-field Gaussian q(theta) = prod_d N(theta_d; mu_d, sigma_d^2), for R independent runs at once."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log, log1p
from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.belief import Roles
from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.layout import Layout, Rows
from vcl.beliefs.stored import VECTOR, checked

if TYPE_CHECKING:
    from vcl.beliefs.mean_field_fit import MeanFieldFit

ALL = slice(None)


class MeanField(NamedTuple):
    """q(theta) for R runs: mean [R, D] and log variance [R, D]."""

    layout: Layout
    mean: Tensor
    log_var: Tensor

    @classmethod
    def from_prior(cls, prior: MeanField) -> MeanField:
        """The prior itself."""
        return prior

    def expand(self, runs: int) -> MeanField:
        """The same one-run distribution for ``runs`` runs."""
        return MeanField(self.layout, self.mean.expand(runs, -1), self.log_var.expand(runs, -1))

    def to(self, where: torch.device | torch.dtype | str) -> MeanField:
        """Move to another device or dtype."""
        return MeanField(self.layout, self.mean.to(where), self.log_var.to(where))

    def grow(self, prior: MeanField) -> MeanField:
        """The belief with new parameters at the prior: q(theta^H_k) = p(theta^H_k) before task k."""
        grown = self.layout.extend(prior.layout)
        if grown == self.layout:
            return self
        mean = self.layout.append(self.mean, prior.layout, prior.mean)
        log_var = self.layout.append(self.log_var, prior.layout, prior.log_var)
        return MeanField(grown, mean, log_var)

    def restrict(self, part: Layout) -> MeanField:
        """The marginal over ``part``: those coordinates."""
        return MeanField(part, self.layout.pick(self.mean, part), self.layout.pick(self.log_var, part))

    def merge(self, part: MeanField) -> MeanField:
        """The belief with the coordinates of ``part`` replaced; the others keep their bits."""
        mean = self.layout.put(self.mean, part.layout, part.mean)
        log_var = self.layout.put(self.log_var, part.layout, part.log_var)
        return MeanField(self.layout, mean, log_var)

    def select(self, runs: Tensor) -> MeanField:
        """The selected runs."""
        return MeanField(self.layout, self.mean[runs], self.log_var[runs])

    def factor(self) -> DiagonalFactor:
        """1/2 sum_d (theta_d - mu_d)^2 / sigma_d^2. Points (variance 0) have no density and are not penalised."""
        precision = torch.where(self.log_var == -inf, 0, (-self.log_var).exp())
        return DiagonalFactor(self.layout, self.mean, precision)

    def faded(self, prior: MeanField, share: float) -> MeanField:
        """q^(1-share) prior^share, normalised: :func:`vcl.beliefs.fading.fade`."""
        log_var, weight = faded_variances(self.log_var, prior.log_var, share)
        return MeanField(self.layout, torch.lerp(self.mean, prior.mean, weight), log_var)

    def bind(self, roles: Roles, climbs: str) -> MeanFieldFit:
        """The fit that starts from this belief."""
        from vcl.beliefs.mean_field_fit import MeanFieldFit  # it imports this module

        return MeanFieldFit(self, roles, climbs)

    def draw(self, noise: Tensor) -> Tensor:
        """theta = mu + sigma * noise; axes of draws go between the run and the parameter axis."""
        return like_draws(self.mean, noise) + like_draws((0.5 * self.log_var).exp(), noise) * noise

    def tensors(self) -> dict[str, Tensor]:
        """mean and log_var, by name."""
        return {"mean": self.mean, "log_var": self.log_var}

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> MeanField:
        """The inverse of :meth:`tensors`, checked."""
        return cls(layout, *checked(layout, tensors, {"mean": VECTOR, "log_var": VECTOR}, points=["log_var"]))

    def start(self, mean: Tensor, wide: Rows, var: float) -> MeanField:
        """At ``mean`` [R, D]; the rows ``wide`` have variance ``var``, the others keep theirs."""
        mask = self.layout.mask(wide).to(mean.device)
        return MeanField(self.layout, mean, self.log_var.masked_fill(mask, log(var)))


def like_draws(values: Tensor, noise: Tensor) -> Tensor:
    """``values`` [R, D] with inner axes added, to broadcast with ``noise`` [R, ..., D]."""
    return values[(slice(None),) + (None,) * (noise.dim() - 2)]


def faded_variances(log_var: Tensor, prior: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """-log L of the precisions L = (1-share) L_q + share L_p, and share L_p / L, from -log L_q and -log L_p [R, D].

    Variances that equal the prior's keep their bits; a point of q stays, and one of the prior alone is the result.
    """
    ours, theirs = (log1p(-share) if share < 1 else -inf) - log_var, log(share) - prior
    # Not logaddexp: its last bit depends on how many values there are, and so on the other runs.
    more, less = torch.maximum(ours, theirs), torch.minimum(ours, theirs)
    mixed = -(more + (less - more).exp().log1p())
    mixed = torch.where((log_var == -inf) | (log_var == prior), log_var, mixed)
    weight = torch.where(prior == -inf, 1, (theirs + mixed).exp())
    return mixed, torch.where(log_var == -inf, 0, weight)


def kl(q: MeanField, p: MeanField) -> Tensor:
    """KL(q || p) of each run [R], in closed form.

    sum_d 1/2 [ log(s_p^2 / s_q^2) + (s_q^2 + (m_q - m_p)^2) / s_p^2 - 1 ], a sum over parameters, never a mean.
    """
    return KlTo(p)(q.mean, q.log_var)


@final
class KlTo:
    """KL(q || p) for many q and one p; terms of p alone are computed once."""

    SMALL = 2**20
    """Up to this many parameters the precision is stored; above, it is recomputed where needed."""
    PIECE = 2**18
    """Parameters processed at once per run; this bounds the memory of temporaries."""

    def __init__(self, p: MeanField) -> None:
        self.mean, self.log_var = p.mean, p.log_var
        self.precision = (-p.log_var).exp() if p.mean.shape[1] <= self.SMALL else None
        self.held: tuple[Tensor, Tensor] | None = None

    def __call__(self, mean: Tensor, log_var: Tensor) -> Tensor:
        """KL of each run, for q given by mean and log variance [R, D]."""
        log_ratio, shift = log_var - self.log_var, mean - self.mean
        precision = (-self.log_var).exp() if self.precision is None else self.precision
        return 0.5 * (log_ratio.exp() - 1 - log_ratio + shift.square() * precision).sum(-1)

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and log variance of p."""
        return self.mean, self.log_var

    def subtract_gradient(
        self,
        mean: Tensor,
        log_var: Tensor,
        g_mean: Tensor,
        g_log_var: Tensor,
        var: Tensor | None = None,
        runs: slice = ALL,
    ) -> Tensor:
        """KL of each run, and its gradient subtracted from g_mean and g_log_var in place.

        All [R, D]; ``var`` is e^{log_var}, if known. q may cover a subset ``runs``.

        d/dm_q = (m_q - m_p) / s_p^2;  d/d log s_q^2 = (s_q^2 / s_p^2 - 1) / 2
        """
        size, width = mean.shape[1], self.PIECE
        if size <= width:
            return self._subtract_part(mean, log_var, g_mean, g_log_var, var, (runs, ALL)).mul_(0.5)
        values = [
            self._subtract_part(
                mean[:, at],
                log_var[:, at],
                g_mean[:, at],
                g_log_var[:, at],
                None if var is None else var[:, at],
                (runs, at),
            )
            for at in (slice(first, first + width) for first in range(0, size, width))
        ]
        return torch.stack(values).sum(0).mul_(0.5)

    def _subtract_part(
        self,
        mean: Tensor,
        log_var: Tensor,
        g_mean: Tensor,
        g_log_var: Tensor,
        var: Tensor | None,
        at: tuple[slice, slice],
    ) -> Tensor:
        """Twice the KL over the runs and coordinates at ``at``; q and its gradients cover only those."""
        if self.held is None or self.held[0].shape != mean.shape:
            self.held = torch.empty_like(mean), torch.empty_like(mean)
        one, two = self.held
        p_log_var = self.log_var[at]
        precision = (-p_log_var).exp_() if self.precision is None else self.precision[at]
        shift = torch.sub(mean, self.mean[at], out=one)
        pull = torch.mul(shift, precision, out=two)  # (m_q - m_p) / s_p^2
        g_mean.sub_(pull)
        value = shift.mul_(pull)
        log_ratio = torch.sub(log_var, p_log_var, out=two)
        value.sub_(log_ratio)
        excess = (log_ratio.exp_() if var is None else torch.mul(var, precision, out=two)).sub_(1)  # s_q^2 / s_p^2 - 1
        g_log_var.sub_(excess, alpha=0.5)
        return value.add_(excess).sum(-1)


def standard_normal(layout: Layout, var: float = 1.0) -> MeanField:
    """N(0, var I) over ``layout``, for one run; it stores two numbers for any number of parameters."""
    zero = torch.zeros(1, 1)
    return MeanField(layout, *(value.expand(1, layout.size) for value in (zero, zero + torch.tensor(var).log())))
