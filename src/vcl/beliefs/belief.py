"""What a belief q(theta) must offer, whatever its family: to be carried, to be held to, and to be fitted.

A *belief* is what a method carries from task to task. A *factor* is log q(theta) up to a constant, as a penalty; it may
be improper, as EWC's quadratic is. A *fit* lives for one variational fit and knows how the family is climbed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout

if TYPE_CHECKING:
    from vcl.beliefs.mean_field import MeanField


class Belief(Protocol):
    """q(theta) for R runs, a value. :class:`vcl.beliefs.mean_field.MeanField` for one."""

    @property
    def layout(self) -> Layout:
        """What the flat vector holds."""
        ...

    @property
    def mean(self) -> Tensor:
        """The centre [R, D]: the one parameter vector to use where only one can be."""
        ...

    def grow(self, prior: MeanField) -> Self:
        """With the parameters of ``prior`` that are not here yet behind the old ones, at the prior."""
        ...

    def restrict(self, part: Layout) -> Self:
        """The marginal over ``part``."""
        ...

    def merge(self, part: Self) -> Self:
        """With the marginal over ``part.layout`` replaced. What is independent of it stays bitwise as it was."""
        ...

    def select(self, runs: Tensor) -> Self:
        """These runs only, by their positions (int64)."""
        ...

    def to(self, where: torch.device | torch.dtype | str) -> Self:
        """On another device, or in another precision."""
        ...

    def draw(self, noise: Tensor) -> Tensor:
        """Standard normal noise [R, ..., D] to draws of theta of the same shape."""
        ...


class Factor(Protocol):
    """log q(theta) up to a constant as a penalty, -log q(theta) + const, for R runs; possibly improper."""

    def pull(self, theta: Tensor, g: Tensor | None = None) -> Tensor:
        """The penalty at theta [R, D] or [R, K, D]: [R] or [R, K]. Its gradient is subtracted from ``g`` in place."""
        ...


class Roles(NamedTuple):
    """Which parameters have a posterior (``held``), which are drawn (``spread``) and which are ``points``."""

    held: Layout
    spread: Layout
    points: Layout


Q = TypeVar("Q")


class Fit(Protocol[Q]):
    """How a family is climbed from a previous belief: made once a fit, outside the step that may be captured."""

    @property
    def noise(self) -> int:
        """How many standard normals a draw of theta takes."""
        ...

    def parameters(self, q: Q) -> tuple[Tensor, ...]:
        """What is climbed, at q: each [R, ...]."""
        ...

    def belief(self, parameters: tuple[Tensor, ...]) -> Q:
        """The inverse."""
        ...

    def draw(self, parameters: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        """theta [R, S, D] from noise [R, S, :attr:`noise`], differentiable in the parameters."""
        ...

    def kl(self, parameters: tuple[Tensor, ...]) -> Tensor:
        """KL(q || previous) of each run [R], over what is held; differentiable in the parameters."""
        ...


class Variational(Belief, Protocol):
    """A family that variational inference can fit."""

    @classmethod
    def from_prior(cls, prior: MeanField) -> Self:
        """p(theta) as a member of this family."""
        ...

    def start(self, mean: Tensor, wide: Collection[str], var: float) -> Self:
        """Where a fit begins: at ``mean`` [R, D]; tensors in ``wide`` have variance ``var`` and are independent."""
        ...

    def bind(self, roles: Roles, climbs: str) -> Fit[Self]:
        """How to climb from this belief; ``climbs`` says whether variances move by their log or their deviation's."""
        ...
