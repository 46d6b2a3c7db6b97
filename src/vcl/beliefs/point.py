"""All mass at a single theta: what maximum likelihood and MAP carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField, like_draws
from vcl.beliefs.stored import VECTOR, checked


class Point(NamedTuple):
    """All mass at one theta [R, D]."""

    layout: Layout
    mean: Tensor

    def expand(self, runs: int) -> Point:
        """The same one-run theta for ``runs`` runs."""
        return Point(self.layout, self.mean.expand(runs, -1))

    def grow(self, prior: MeanField) -> Point:
        """New parameters stand at the prior's mean until data informs them."""
        return Point(self.layout.extend(prior.layout), self.layout.append(self.mean, prior.layout, prior.mean))

    def restrict(self, part: Layout) -> Point:
        """Those coordinates."""
        return Point(part, self.layout.pick(self.mean, part))

    def merge(self, part: Point) -> Point:
        """With the coordinates of ``part`` replaced."""
        return Point(self.layout, self.layout.put(self.mean, part.layout, part.mean))

    def to(self, where: torch.device | torch.dtype | str) -> Point:
        """On another device, or in another precision."""
        return Point(self.layout, self.mean.to(where))

    def select(self, runs: Tensor) -> Point:
        """These runs only."""
        return Point(self.layout, self.mean[runs])

    def draw(self, noise: Tensor) -> Tensor:
        """The same theta every time."""
        return like_draws(self.mean, noise).expand(noise.shape)

    def tensors(self) -> dict[str, Tensor]:
        """mean, by name."""
        return {"mean": self.mean}

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Point:
        """The inverse of :meth:`tensors`, checked."""
        return cls(layout, *checked(layout, tensors, {"mean": VECTOR}))
