"""Natural parameters of a Gaussian: L and L m for precision L and mean m. They add in a product of densities.

Unlike a factor with a centre, they can hold any contribution of data: one with a slope and no curvature too.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError

G = TypeVar("G", MeanField, FullGaussian)


class Natural(NamedTuple):
    """exp( shift^T theta - 1/2 theta^T precision theta ) for R runs, in float64; possibly improper.

    shift [R, D]; precision [R, D] (diagonal) or [R, D, D].
    """

    layout: Layout
    shift: Tensor
    precision: Tensor

    @classmethod
    def of(cls, q: MeanField | FullGaussian) -> Natural:
        """The natural parameters of a belief without points."""
        if isinstance(q, FullGaussian):
            mean, precision = q.mean.double(), q.precision.double()
            return cls(q.layout, (precision @ mean.unsqueeze(-1)).squeeze(-1), precision)
        if not isinstance(q, MeanField):
            raise VclError(
                f"a {type(q).__name__} has no natural parameters; use a projection whose belief is a MeanField or a "
                "FullGaussian."
            )
        points = q.log_var == -torch.inf
        if bool(points.any()):
            run, position = points.nonzero()[0].tolist()
            raise VclError(
                f"{q.layout.coordinate(position)} in run {run} is a point, without a density to multiply; give every "
                "parameter a posterior."
            )
        precision = (-q.log_var.double()).exp()
        return cls(q.layout, precision * q.mean.double(), precision)

    def times(self, other: Natural, power: float = 1.0) -> Natural:
        """The product with ``other`` to a power: -1 divides it out."""
        if other.layout != self.layout or other.shift.shape != self.shift.shape:
            raise VclError(
                f"one contribution has {self.layout.size} parameters of {len(self.shift)} runs and the other "
                f"{other.layout.size} of {len(other.shift)}, or other names; give contributions to one model."
            )
        return Natural(self.layout, self.shift + power * other.shift, self.precision + power * other.precision)

    def to_power(self, power: float) -> Natural:
        """The density to a power; 0 is the constant."""
        return Natural(self.layout, power * self.shift, power * self.precision)

    def belief(self, like: G, what: str, advice: str) -> G:
        """The normalised belief, in the precision of ``like``; VclError if ``what`` would be improper."""
        L = self.precision
        if isinstance(like, FullGaussian):
            root, info = torch.linalg.cholesky_ex(L)
            if bool(info.any()):
                run = int(info.nonzero()[0, 0])
                at = f"{self.layout.coordinate(int(info[run]) - 1)} in run {run}"
                raise VclError(f"{what} would have a precision that is not positive definite at {at}; {advice}.")
            mean = torch.cholesky_solve(self.shift.unsqueeze(-1), root).squeeze(-1)
            return type(like)(self.layout, mean.to(like.mean), L.to(like.mean))
        bad = ~((L > 0) & L.isfinite() & self.shift.isfinite())
        if bool(bad.any()):
            run, position = bad.nonzero()[0].tolist()
            raise VclError(
                f"{what} would have precision {float(L[run, position]):.3g} at {self.layout.coordinate(position)} in "
                f"run {run}, and a belief needs it positive; {advice}."
            )
        return type(like)(self.layout, (self.shift / L).to(like.mean), -L.log().to(like.mean))
