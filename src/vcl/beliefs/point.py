"""A point mass at theta: the belief of maximum likelihood and MAP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField, like_draws
from vcl.beliefs.stored import VECTOR, checked


class Point(NamedTuple):
    """A point mass at theta [R, D]."""

    layout: Layout
    mean: Tensor

    def expand(self, runs: int) -> Point:
        """The same one-run theta for ``runs`` runs."""
        return Point(self.layout, self.mean.expand(runs, -1))

    def grow(self, prior: MeanField) -> Point:
        """The belief with new parameters and outputs of heads, at the prior's mean."""
        return Point(self.layout.extend(prior.layout), self.layout.append(self.mean, prior.layout, prior.mean))

    def restrict(self, part: Layout) -> Point:
        """The coordinates of ``part``."""
        return Point(part, self.layout.pick(self.mean, part))

    def merge(self, part: Point) -> Point:
        """The belief with the coordinates of ``part`` replaced."""
        return Point(self.layout, self.layout.put(self.mean, part.layout, part.mean))

    def to(self, where: torch.device | torch.dtype | str) -> Point:
        """Move to another device or dtype."""
        return Point(self.layout, self.mean.to(where))

    def select(self, runs: Tensor) -> Point:
        """The selected runs."""
        return Point(self.layout, self.mean[runs])

    def draw(self, noise: Tensor) -> Tensor:
        """theta itself, for every draw."""
        return like_draws(self.mean, noise).expand(noise.shape)

    def tensors(self) -> dict[str, Tensor]:
        """mean, by name."""
        return {"mean": self.mean}

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Point:
        """The inverse of :meth:`tensors`, checked."""
        return cls(layout, *checked(layout, tensors, {"mean": VECTOR}))
