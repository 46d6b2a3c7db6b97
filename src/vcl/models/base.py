"""What the recursion and every projection ask of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from vcl.data import Data
from vcl.gaussian import Gaussian
from vcl.layout import Params

Heads = Mapping[str, int]
"""The heads of a task and how many classes (or target dimensions) each one has."""


class Model(Protocol):
    """p(theta) and p(y | theta, x)."""

    @property
    def row_wise(self) -> bool:
        """Whether it may take the fast way of :mod:`vcl.rows`; False is always right."""
        ...

    def prior(self, heads: Heads) -> Gaussian:
        """p(theta) over the shared parameters and these heads, for one run."""
        ...

    def log_lik(self, params: Params, data: Data) -> Tensor:
        """log p(y^(n) | theta, x^(n)) of each example [N], for one theta and one run; never averaged.

        ``data`` has no run axis here: x [N, ...], y [N, ...], source [N].
        """
        ...

    def log_evidence(self, mean: Params, var: Params, data: Data) -> Tensor:
        """log of the integral of p(y^(n) | theta, x^(n)) N(theta; mean, diag var), each example by itself [N].

        For one run, like :meth:`log_lik`; in closed form, exactly or by moment propagation, never by drawing.
        """
        ...

    def sample(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """y^(n) ~ p(y | theta, x^(n)) for one theta, made of standard normal noise of y's shape; data.y is not used."""
        ...

    def predict(self, params: Params, x: Tensor, head: str) -> Tensor:
        """Moments of p(y | theta, x) [N, C] for one theta, to be averaged over draws."""
        ...

    def check(self, data: Data, heads: Heads) -> None:
        """Raise one clear sentence unless this model can learn from ``data``."""
        ...
