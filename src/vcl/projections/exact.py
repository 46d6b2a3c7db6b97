"""The exact posterior of a linear-Gaussian model. It has no projection error, so it is the oracle of the tests."""

from __future__ import annotations

from typing import final

import torch

from vcl.beliefs.full import FullGaussian
from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError
from vcl.fitting.loop import Report, silent
from vcl.models.linear import LinearGaussian
from vcl.ops.rng import Rng
from vcl.projections.base import Target


@final
class Exact:
    """q_t = q_{t-1} p(D_t | theta) / Z_t exactly, for a :class:`LinearGaussian` model."""

    def initial(self, prior: MeanField) -> FullGaussian:
        """The prior with its diagonal precision as a matrix."""
        return FullGaussian.from_prior(prior)

    def __call__(self, target: Target[FullGaussian], rng: Rng, report: Report = silent) -> FullGaussian:
        """The posterior by Bayes' rule: precision += X^T X / s^2."""
        q, model, data, *_ = target
        if not isinstance(model, LinearGaussian):
            raise VclError(f"the exact projection takes linear-Gaussian models only, not {type(model).__name__}.")
        if data.size == 0:
            return q
        X, y = model.design(data)
        # Lambda_t = Lambda_{t-1} + X^T X / s^2;  Lambda_t m_t = Lambda_{t-1} m_{t-1} + X^T y / s^2
        precision = q.precision + X.mT @ X / model.noise**2
        shift = q.precision @ q.mean[..., None] + X.mT @ y[..., None] / model.noise**2
        return FullGaussian(q.layout, torch.linalg.solve(precision, shift)[..., 0], precision)
