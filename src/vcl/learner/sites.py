"""What each task's data contributed to a mean-field belief, so that it can be taken out again.

    site_t = q_t / q_{t-1} :   a difference of natural parameters, L_t - L_{t-1} and L_t m_t - L_{t-1} m_{t-1}

Sites are kept in natural parameters and in float64: they add up, they fade by a factor, and none is ever undefined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.models.base import Model
from vcl.recursion import State


class Site(NamedTuple):
    """A contribution, over the parameters of its time: precision and precision times mean [R, D] in float64."""

    layout: Layout
    precision: Tensor
    shift: Tensor

    def scaled(self, weight: float) -> Site:
        """The contribution to a power."""
        return self._replace(precision=weight * self.precision, shift=weight * self.shift)

    def on(self, layout: Layout) -> Site:
        """Over other parameters: 0 where they are new; those that are gone are left out."""
        part = self.layout.where(lambda name: name in layout.names)
        at = part.leading(layout).to(self.precision.device)
        found = [
            values.new_zeros(len(values), layout.size).index_copy(-1, at, self.layout.cut(values, part))
            for values in (self.precision, self.shift)
        ]
        return Site(layout, *found)

    def plus(self, other: Site) -> Site:
        """Both contributions, over the parameters of ``other``."""
        mine = self.on(other.layout)
        return Site(other.layout, mine.precision + other.precision, mine.shift + other.shift)


def natural(q: MeanField) -> Site:
    """The natural parameters of a belief."""
    precision = (-q.log_var.double()).exp()
    return Site(q.layout, precision, precision * q.mean.double())


def sites_after(
    known: Mapping[str, Site], task: str, before: Any, state: State[Any], model: Model, forget: float
) -> dict[str, Site]:
    """The sites after an update of ``task``; ``before`` is the belief that it began with, faded by ``forget``."""
    old = {name: site.scaled(1 - forget) if forget else site for name, site in known.items()}
    grown = natural(before.grow(model.prior(state.heads)))
    site = natural(state.propagated).plus(grown.scaled(-1))
    return {**old, task: old[task].plus(site) if task in old else site}
