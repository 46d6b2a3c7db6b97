"""What the recursion and every projection ask of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

from vcl.beliefs.belief import Roles
from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data
from vcl.engines.structure import Structure
from vcl.errors import VclError

Heads = Mapping[str, int]
"""The heads of a task and how many classes (or target dimensions) each one has."""

Role = Literal["random", "free", "point"]
"""What is known of a parameter.

    random   it has a posterior: it is drawn, and the KL (or a penalty) holds it to what was known before
    free     it is drawn with a variance of its own, but nothing holds it: maximum likelihood of its mean and variance
    point    one value without variance: never drawn, never held, moved by the plain gradient
"""


class Model(Protocol):
    """p(theta) and p(y | theta, x)."""

    def structure(self, heads: tuple[str, ...]) -> Structure:
        """What the model is made of, for examples of these heads; ``Opaque()`` is always right."""
        ...

    @property
    def latent(self) -> int:
        """How many latent variables z^(n) an example has; 0 where p(y | theta, x) is known without any."""
        ...

    def role(self, name: str) -> Role:
        """What is known of the parameter of this name."""
        ...

    def prior(self, heads: Heads) -> MeanField:
        """p(theta) over the shared parameters and these heads, for one run; points have variance 0."""
        ...

    def log_lik(self, params: Params, data: Data, noise: Tensor | None = None) -> Tensor:
        """log p(y^(n) | theta, x^(n)) of each example [N], for one theta and one run; never averaged.

        ``data`` has no run axis here: x [N, ...], y [N, ...], source [N]. With latent variables it is an unbiased
        estimate of the lower bound instead, from standard normal ``noise`` [..., N, latent], and comes as [..., N].
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


@runtime_checkable
class LatentModel(Model, Protocol):
    """p(theta) and p(x | theta) = integral of p(x | z, theta) p(z), with an encoder q(z | x); p(z) = N(0, I)."""

    def log_weight(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """log p(x | z, theta) p(z) / q(z | x) at z ~ q(z | x) made of ``noise`` [..., N, latent]: [..., N]."""
        ...

    def generate(self, params: Params, z: Tensor, head: str) -> Tensor:
        """E[x | z, theta] for z [..., latent]: [..., pixels]."""
        ...


def held(model: Model, layout: Layout) -> Layout:
    """The part of ``layout`` that has a posterior: KLs, penalties and curvature are about it alone."""
    return layout.where(lambda name: model.role(name) == "random")


def spread(model: Model, layout: Layout) -> Layout:
    """The part of ``layout`` that is drawn: all but the points."""
    return layout.where(lambda name: model.role(name) != "point")


def points(model: Model, layout: Layout) -> Layout:
    """The part of ``layout`` that is never drawn."""
    return layout.where(lambda name: model.role(name) == "point")


def roles(model: Model, layout: Layout) -> Roles:
    """The parts of ``layout`` by role: with a posterior, drawn, and points."""
    return Roles(held(model, layout), spread(model, layout), points(model, layout))


def refuse_latent(model: Model, what: str) -> None:
    """Raise one clear sentence if the model has latent variables."""
    if model.latent:
        raise no_latent(model, what)


def no_latent(model: Model, what: str) -> VclError:
    """The error for what cannot be done with latent variables."""
    return VclError(
        f"{what} needs log p(y | theta, x) itself, but {type(model).__name__} has {model.latent} latent variables "
        "an example and so only a lower bound of it; use VariationalKL, EWC, LP, SI, MAP or maximum likelihood."
    )
