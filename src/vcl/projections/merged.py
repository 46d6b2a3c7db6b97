"""Merging, as in CoVON: the old and the new posterior are weighted before the next task.

    q_t  =  q_{t-1}^{1-w} proj( q_{t-1} p(D_t | theta) )^w  / Z,      0 < w <= 1

In natural parameters it is the weighted mean of both, by :func:`vcl.beliefs.algebra.product` and ``power``: precision
(1-w) s_{t-1} + w s_t, and the mean weighted by these precisions. What no earlier task informed, such as a new head, has
no old posterior and is taken as it was fitted; what the data does not touch keeps its bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch

from vcl.beliefs.algebra import power, product
from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError
from vcl.fitting.loop import Report, silent
from vcl.models.base import Model, spread
from vcl.ops.rng import Rng
from vcl.projections.base import Target, fresh
from vcl.projections.vi import VariationalKL


def merge(old: MeanField, new: MeanField, weight: float) -> MeanField:
    """old^{1 - weight} new^{weight}, normalised: the q that minimises (1-w) KL(q || old) + w KL(q || new)."""
    _check(weight)
    return new if weight == 1 else product(power(old, 1 - weight), power(new, weight))


def _check(weight: float) -> None:
    if not 0 < weight <= 1:
        raise VclError(f"weight is {weight}; give the new posterior's share, above 0 and up to 1 (no merging).")


@final
@dataclass(frozen=True)
class Merged:
    """proj by ``project``, then merged with q_{t-1}; ``weight`` is the share of the new posterior."""

    project: VariationalKL = field(default_factory=VariationalKL)
    weight: float = 0.5

    def initial(self, prior: MeanField) -> MeanField:
        """q_0 = p."""
        if self.project.family != "mean-field":
            raise VclError(f"merging is for the family 'mean-field', not {self.project.family!r}; choose that family.")
        q: MeanField = self.project.initial(prior)
        return q

    def for_coresets(self) -> VariationalKL:
        """The fit alone: a prediction weighs its coreset fully, and is not propagated."""
        return self.project

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """That of the fit."""
        return self.project.engine_name(model, prior, heads)

    def __call__(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> MeanField:
        """The merged posterior; without data, q itself."""
        _check(self.weight)
        q, model, data, prior, _ = target
        new: MeanField = self.project(target, rng, report)
        touched = q.layout.touched(data.heads)
        unknown = fresh(q.restrict(touched), prior)
        drawn = set(spread(model, touched).names)
        both = touched.where(lambda name: name in drawn and unknown.get(name) != 0)
        if data.size == 0 or not both.names:
            return new
        fitted = new.restrict(both)
        merged = merge(q.restrict(both), fitted, self.weight)
        mask = both.mask(unknown).to(fitted.mean.device)  # outputs that a head has got since
        kept = (torch.where(mask, one, two) for one, two in zip(fitted[1:], merged[1:], strict=True))
        return new.merge(MeanField(both, *kept))
