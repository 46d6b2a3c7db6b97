"""The interfaces of a family of beliefs q(theta): the belief, its penalty and its variational fit.

A *belief* is what a method carries from task to task. A *factor* is log q(theta) up to a constant, as a penalty; it may
be improper, as EWC's quadratic is. A *fit* lives for one variational fit and knows how to optimise the family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout, Rows

if TYPE_CHECKING:
    from vcl.beliefs.mean_field import MeanField


class Belief(Protocol):
    """q(theta) for R runs, immutable; :class:`vcl.beliefs.mean_field.MeanField` is an example."""

    @property
    def layout(self) -> Layout:
        """The names and shapes of the parameters in the flat vector."""
        ...

    @property
    def mean(self) -> Tensor:
        """The centre [R, D]: the parameter vector to use where only one is allowed."""
        ...

    def grow(self, prior: MeanField) -> Self:
        """The belief with the new parameters of ``prior`` appended, at the prior, and new outputs of heads too."""
        ...

    def restrict(self, part: Layout) -> Self:
        """The marginal over ``part``."""
        ...

    def merge(self, part: Self) -> Self:
        """The belief with the marginal over ``part.layout`` replaced; independent parameters keep their bits."""
        ...

    def select(self, runs: Tensor) -> Self:
        """The selected runs, by position (int64)."""
        ...

    def to(self, where: torch.device | torch.dtype | str) -> Self:
        """Move to another device or dtype."""
        ...

    def draw(self, noise: Tensor) -> Tensor:
        """Draws of theta [R, ..., D] from standard normal noise of the same shape."""
        ...


class Factor(Protocol):
    """The penalty -log q(theta) + const for R runs; possibly improper."""

    def pull(self, theta: Tensor, g: Tensor | None = None) -> Tensor:
        """The penalty [R] or [R, K] at theta [R, D] or [R, K, D]. Subtracts its gradient from ``g`` in place."""
        ...


class Roles(NamedTuple):
    """Which parameters have a posterior (``held``), which are drawn (``spread``) and which are ``points``."""

    held: Layout
    spread: Layout
    points: Layout


Q = TypeVar("Q")


class Fit(Protocol[Q]):
    """Optimises a family from a previous belief. It is created once per fit, outside the captured step."""

    @property
    def noise(self) -> int:
        """The number of standard normals per draw of theta."""
        ...

    def parameters(self, q: Q) -> tuple[Tensor, ...]:
        """The optimised parameters at q, each [R, ...]."""
        ...

    def belief(self, parameters: tuple[Tensor, ...]) -> Q:
        """The inverse of :meth:`parameters`."""
        ...

    def draw(self, parameters: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        """theta [R, S, D] from noise [R, S, :attr:`noise`], differentiable in the parameters."""
        ...

    def kl(self, parameters: tuple[Tensor, ...]) -> Tensor:
        """KL(q || previous) of each run [R], over the held parameters; differentiable."""
        ...


class Variational(Belief, Protocol):
    """A family that variational inference can fit."""

    @classmethod
    def from_prior(cls, prior: MeanField) -> Self:
        """p(theta) as a member of this family."""
        ...

    def start(self, mean: Tensor, wide: Rows, var: float) -> Self:
        """The start of a fit: at ``mean`` [R, D]; the rows ``wide`` are independent with variance ``var``."""
        ...

    def bind(self, roles: Roles, climbs: str) -> Fit[Self]:
        """The fit that starts from this belief; ``climbs`` names the optimised log: "log_var" or "log_sd"."""
        ...
