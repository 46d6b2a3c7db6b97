"""The interface of a model, as the recursion and every projection use it."""

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
"""The number of classes (or target dimensions) of each head."""

Role = Literal["random", "free", "point"]
"""How a parameter is treated.

    random   it has a posterior: it is drawn, and a KL (or penalty) ties it to the previous belief
    free     it is drawn with its own variance but has no KL: maximum likelihood of its mean and variance
    point    a single value: never drawn, no KL, moved by the plain gradient
"""


class Model(Protocol):
    """p(theta) and p(y | theta, x)."""

    def structure(self, heads: tuple[str, ...]) -> Structure:
        """The model's structure for examples of these heads; ``Opaque()`` is always valid."""
        ...

    @property
    def latent(self) -> int:
        """The number of latent variables z^(n) per example; 0 if p(y | theta, x) has none."""
        ...

    def role(self, name: str) -> Role:
        """The role of the parameter ``name``."""
        ...

    def prior(self, heads: Heads) -> MeanField:
        """p(theta) over the shared parameters and these heads, for one run; points have variance 0."""
        ...

    def log_lik(self, params: Params, data: Data, noise: Tensor | None = None) -> Tensor:
        """log p(y^(n) | theta, x^(n)) of each example [N], for one theta and one run; never averaged.

        ``data`` has no run axis here: x [N, ...], y [N, ...], source [N]. With latent variables the result is an
        unbiased estimate of the lower bound [..., N], from standard normal ``noise`` [..., N, latent].
        """
        ...

    def log_evidence(self, mean: Params, var: Params, data: Data) -> Tensor:
        """log of the integral of p(y^(n) | theta, x^(n)) N(theta; mean, diag var), separately for each example [N].

        For one run, like :meth:`log_lik`. Deterministic: exact or by moment propagation, never by sampling.
        """
        ...

    def sample(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """y^(n) ~ p(y | theta, x^(n)) for one theta, from standard normal noise of y's shape; data.y is not used."""
        ...

    def predict(self, params: Params, x: Tensor, head: str) -> Tensor:
        """Moments of p(y | theta, x) [N, C] for one theta, to be averaged over draws."""
        ...

    def check(self, data: Data, heads: Heads) -> None:
        """Raise VclError unless this model can learn from ``data``."""
        ...


@runtime_checkable
class LatentModel(Model, Protocol):
    """p(theta) and p(x | theta) = integral of p(x | z, theta) p(z), with an encoder q(z | x); p(z) = N(0, I)."""

    def log_weight(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """log p(x | z, theta) p(z) / q(z | x) [..., N] at z ~ q(z | x) from ``noise`` [..., N, latent]."""
        ...

    def generate(self, params: Params, z: Tensor, head: str) -> Tensor:
        """E[x | z, theta] for z [..., latent]: [..., pixels]."""
        ...


@runtime_checkable
class HasLabelPoints(Protocol):
    """A model whose expectation over labels is a finite sum."""

    def label_points(self, params: Params, data: Data) -> tuple[Tensor, Tensor]:
        """Labels [K, N, ...] and weights [K, N]; see :meth:`vcl.models.network.Network.label_points`."""
        ...


@runtime_checkable
class HasStart(Protocol):
    """A model that offers values to start fits from."""

    @property
    def start_values(self) -> Params:
        """Start values of what no data has informed, by the layout's names, for one run; others start at random."""
        ...


@runtime_checkable
class HasFixed(Protocol):
    """A model whose predictions depend on values that are not in its layout."""

    def digest(self) -> str:
        """A checksum of these values; "" if there are none."""
        ...

    def fixed_values(self, like: Tensor) -> Params:
        """These values on the device and in the dtype of ``like``."""
        ...


def start_of(model: Model) -> Params:
    """The start values that a model offers, if any."""
    return model.start_values if isinstance(model, HasStart) else {}


def digest_of(model: Model) -> str:
    """The checksum of a model's values besides its parameters; "" if it has none."""
    return model.digest() if isinstance(model, HasFixed) else ""


@runtime_checkable
class HasOutputs(Protocol):
    """A model whose likelihood sits on outputs f_theta(x)."""

    def outputs(self, params: Params, x: Tensor, head: str) -> Tensor:
        """f_theta(x) [N, units] for one theta, as the likelihood takes them."""
        ...


def held(model: Model, layout: Layout) -> Layout:
    """The part of ``layout`` that has a posterior; KL, penalties and curvature cover only this part."""
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
    """Raise VclError if the model has latent variables."""
    if model.latent:
        raise no_latent(model, what)


def no_latent(model: Model, what: str) -> VclError:
    """The error for an operation that does not support latent variables."""
    return VclError(
        f"{what} needs log p(y | theta, x) itself, but {type(model).__name__} has {model.latent} latent variables "
        "per example and so only a lower bound of it; use VariationalKL, EWC, LP, SI, MAP or maximum likelihood."
    )
