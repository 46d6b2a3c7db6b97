"""The interface of a likelihood, and what some of them can do besides."""

from __future__ import annotations

from math import prod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from vcl.errors import VclError


class Likelihood(Protocol):
    """An observation model on top of a network's output."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y^(n) | theta, x^(n)) of each example [N]; never averaged."""
        ...

    def expectation(self, output: Tensor) -> Tensor:
        """The moments of p(y | theta, x) [N, C] whose average over draws of theta is the prediction."""
        ...

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """log of the integral of p(y^(n) | f) N(f; mean, diag var) over the output f, of each example [N]."""
        ...

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """y^(n) ~ p(y | theta, x^(n)), from standard normal noise of y's shape."""
        ...

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Raise VclError unless ``y`` is valid for a head of this size."""
        ...


@runtime_checkable
class HasLabelPoints(Protocol):
    """A likelihood whose expectation over labels is a finite sum."""

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Labels [K, N, ...] and weights [K, N]: E_y g g^T = sum_k weight_k g_k g_k^T for g = grad log p(y | f)."""
        ...


@runtime_checkable
class HasMoments(Protocol):
    """A likelihood of numbers, with a mean and a variance per target."""

    def units(self, targets: int) -> int:
        """The size of a head for this many targets."""
        ...

    def moments_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """E[y | f] and Var[y | f] [..., C] at outputs f [..., units]. Neither is a difference of large numbers."""
        ...


@runtime_checkable
class HasCdf(HasMoments, Protocol):
    """A likelihood of numbers with a distribution function."""

    @property
    def whole(self) -> bool:
        """Whether targets are whole numbers."""
        ...

    def cdf(self, output: Tensor, y: Tensor) -> Tensor:
        """P(target_c <= y_c | f) [..., C] at outputs f [..., units] and numbers y, which broadcast to [..., C]."""
        ...


def mean_and_variance(prediction: Tensor) -> tuple[Tensor, Tensor]:
    """Predictive mean and variance [..., C] from averaged E[y] and E[y^2], side by side [..., 2C].

    The difference E[y^2] - E[y]^2 loses its digits where |y| is far above the deviation;
    :func:`vcl.predicting.uncertainty.variances` does not.
    """
    first, second = prediction.chunk(2, dim=-1)
    return first, second - first.square()


def side_by_side(mean: Tensor, var: Tensor) -> Tensor:
    """E[y] and E[y^2] [..., 2C], which may be averaged over draws."""
    return torch.cat([mean, mean.square() + var], dim=-1)


def constants(values: tuple[float, ...], like: Tensor) -> Tensor:
    """These numbers [C] in the dtype and on the device of ``like``; filled there, so that a step can be captured."""
    return torch.stack([like.new_full((), value) for value in values])


def refuse_whole(y: Tensor, what: str) -> None:
    """Raise VclError unless targets are floating-point."""
    if not y.is_floating_point():
        raise VclError(
            f"{what}: targets have dtype {y.dtype}; a regressor takes floating-point targets, such as y.float()."
        )


def check_width(y: Tensor, targets: int, units: int, what: str) -> None:
    """Raise VclError unless ``y`` [R, N, ...] has this many values per example, for a head of ``units``."""
    width = prod(y.shape[2:])
    if width == targets:
        return
    if units == targets:
        raise VclError(f"{what}: targets have {width} values per example but the head has {units}; make them equal.")
    each = units // targets if targets else 0
    raise VclError(
        f"{what}: targets have {width} values per example but the head has {units} units, which is enough for "
        f"{targets}; give the head {each or 2} units per value."
    )
