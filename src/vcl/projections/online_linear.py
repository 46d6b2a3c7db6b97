"""Linear regression one example at a time, with a diagonal Gaussian in closed form (the paper's appendix F).

The projection of one example's posterior to a diagonal Gaussian has the exact mean and the diagonal of the exact
precision, both by the variational KL and by Laplace's approximation. It loses the correlations that each example adds,
so batch and sequential solutions differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError, unknown
from vcl.fitting.loop import Report, silent
from vcl.models.linear import LinearGaussian
from vcl.ops.rng import Rng
from vcl.projections.base import Target

UpdateRule = Literal["variational", "laplace"]
UPDATE_RULES: tuple[UpdateRule, ...] = ("variational", "laplace")


@final
@dataclass(frozen=True)
class OnlineLinear:
    """q_t(w) = proj( q_{t-1}(w) N(y_t; w^T x_t, s^2) ) for each example in the order of the data.

    Both rules give the same distribution; ``laplace`` takes O(D) per example, ``variational`` solves a linear system.
    """

    rule: UpdateRule = "variational"

    def initial(self, prior: MeanField) -> MeanField:
        """q_0 = p."""
        return prior

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if self.rule not in UPDATE_RULES:
            raise unknown("rule", self.rule, UPDATE_RULES)

    def __call__(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> MeanField:
        """The belief after the last example. It draws nothing and reports no progress."""
        self.check()
        q, model, data, *_ = target
        if not isinstance(model, LinearGaussian):
            raise VclError(f"the online rules take linear-Gaussian models only, not {type(model).__name__}.")
        if data.size == 0:
            return q
        update = variational_update if self.rule == "variational" else laplace_update
        X, y = model.design(data)
        mean, precision = q.mean, (-q.log_var).exp()
        for x, outcome in zip(X.unbind(1), y.unbind(1), strict=True):
            mean, precision = update(mean, precision, x, outcome, model.noise)
        return MeanField(q.layout, mean, -precision.log())


def variational_update(
    mean: Tensor, precision: Tensor, x: Tensor, y: Tensor, noise: float = 1.0
) -> tuple[Tensor, Tensor]:
    """(m_t, 1/v_t) that minimise KL(q_t || q_{t-1} p(y | w, x)), for m, 1/v, x [R, D] and y [R].

    m_t = [I + V_{t-1} x x^T / s^2]^{-1} [V_{t-1} x y / s^2 + m_{t-1}]  and  1/v_{t,d} = 1/v_{t-1,d} + x_d^2 / s^2.
    """
    Vx = x / precision / noise**2  # V_{t-1} x / s^2
    system = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device) + Vx.unsqueeze(-1) * x.unsqueeze(-2)
    solution: Tensor = torch.linalg.solve(system, Vx * y.unsqueeze(-1) + mean)
    return solution, precision + x.square() / noise**2


def laplace_update(mean: Tensor, precision: Tensor, x: Tensor, y: Tensor, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """The mode of log N(y; w^T x, s^2) + log q_{t-1}(w), and the precision plus the likelihood's diagonal curvature.

    One Newton step from m_{t-1} reaches the mode of a quadratic: the gradient is x (y - m^T x) / s^2, and
    [V^{-1} + x x^T / s^2]^{-1} x = V x / (1 + x^T V x / s^2) by Sherman and Morrison.
    """
    gradient = (y - (mean * x).sum(-1)) / noise**2  # times x
    Vx = x / precision
    newton = Vx / (1 + (x * Vx).sum(-1, keepdim=True) / noise**2)
    curvature = x.square() / noise**2  # -d^2/dw_d^2 log N(y; w^T x, s^2)
    return mean + newton * gradient.unsqueeze(-1), precision + curvature


def unit_norm_update(mean: Tensor, x_bar: Tensor, t: int, prior_precision: float) -> Tensor:
    """The t-th mean (t = 1, 2, ...) where s = 1 and every x has entries +-1/sqrt(D); x_bar = y x, y = +-1.

    m_t = [I - x_bar x_bar^T / c] m_{t-1} + x_bar / c,  c = 1 + 1/v_0 + (t - 1)/D.

    The paper prints t/D in c, which is one step off: v_{t-1} is the variance after t - 1 examples, so its inverse is
    1/v_0 + (t - 1)/D. With ``prior_precision`` 1/v_0 = 0 (no prior) this is equation S4 of the supplement of
    Kirkpatrick et al. (2017). m, x_bar [..., D].
    """
    if t < 1:
        raise VclError(f"t is {t}; the first example has t = 1.")
    c = 1 + prior_precision + (t - 1) / x_bar.shape[-1]
    return mean - x_bar * (x_bar * mean).sum(-1, keepdim=True) / c + x_bar / c
