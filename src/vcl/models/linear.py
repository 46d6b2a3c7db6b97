"""Bayesian linear regression. Its posterior is known exactly, so it is the oracle of the tests."""

from __future__ import annotations

from typing import final

from torch import Tensor

from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField, standard_normal
from vcl.data import Data
from vcl.engines.structure import Opaque, Structure
from vcl.errors import VclError
from vcl.models.base import Heads, Role
from vcl.models.likelihoods import Normal
from vcl.ops.rows import as_input


@final
class LinearGaussian:
    """y = w^T x + e, e ~ N(0, noise^2), w ~ N(0, prior_var I); appendix F of the paper."""

    def __init__(self, inputs: int, noise: float = 1.0, prior_var: float = 1.0) -> None:
        if noise <= 0 or prior_var <= 0:
            raise VclError(f"noise is {noise} and prior_var is {prior_var}; both must be above 0.")
        self.inputs = inputs
        self.noise = noise
        self.prior_var = prior_var
        self.likelihood = Normal(noise)

    def structure(self, heads: tuple[str, ...]) -> Structure:
        """Opaque: w enters by a plain product, not a layer."""
        return Opaque()

    @property
    def latent(self) -> int:
        """0: no latent variables."""
        return 0

    def role(self, name: str) -> Role:
        """w has a posterior."""
        return "random"

    def prior(self, heads: Heads) -> MeanField:
        """N(0, prior_var I) over w; heads have no parameters."""
        return standard_normal(Layout(("w",), ((self.inputs,),)), self.prior_var)

    def design(self, data: Data) -> tuple[Tensor, Tensor]:
        """(X, y) [..., N, D] and [..., N] such that y = X w + e, as the exact posterior needs them."""
        return as_input(data.x), data.y.reshape(data.x.shape[:-1])

    def log_lik(self, params: Params, data: Data, noise: Tensor | None = None) -> Tensor:
        """log N(y; w^T x, noise^2)."""
        return self.likelihood.log_prob(self.outputs(params, data.x, ""), data.y)

    def sample(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """w^T x + e."""
        return self.likelihood.sample(self.outputs(params, data.x, ""), noise)

    def log_evidence(self, mean: Params, var: Params, data: Data) -> Tensor:
        """log N(y; m^T x, v^T x^2 + noise^2), exactly."""
        x = as_input(data.x)
        moments = (x @ mean["w"]).unsqueeze(-1), (x.square() @ var["w"]).unsqueeze(-1)
        return self.likelihood.log_evidence(*moments, data.y)

    def predict(self, params: Params, x: Tensor, head: str) -> Tensor:
        """E[y] and E[y^2]."""
        return self.likelihood.expectation(self.outputs(params, x, head))

    def outputs(self, params: Params, x: Tensor, head: str) -> Tensor:
        """w^T x [N, 1]."""
        return (as_input(x) @ params["w"]).unsqueeze(-1)

    def check(self, data: Data, heads: Heads) -> None:
        """Rows of ``inputs`` values and one floating-point target each."""
        what = f"task {data.sources[0].task!r}" if data.sources else "the task"
        if tuple(data.x.shape[2:]) != (self.inputs,):
            raise VclError(f"{what}: inputs have shape {tuple(data.x.shape[2:])}; this model takes ({self.inputs},).")
        self.likelihood.check(data.y, 1, what)
