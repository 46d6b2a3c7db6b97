"""How a learner computes: by a network with heads, or by a generator for each class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import exp, prod
from typing import Any, Literal, NamedTuple, Protocol, final, get_args

import torch
from torch import Tensor, nn

from vcl.beliefs.point import Point
from vcl.coresets import CoresetRule, Nothing, RandomK
from vcl.data import concat, dataset, unlabelled
from vcl.errors import VclError, unknown
from vcl.fitting.loop import Ascent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.learner.backbone import Shape, backbone
from vcl.learner.defaults import Effort
from vcl.learner.knowledge import Inputs
from vcl.models.base import Model
from vcl.models.pixels import BernoulliPixels, NormalPixels
from vcl.models.vae import Vae, mlp_vae
from vcl.ops.rng import Rng
from vcl.predicting.generative_classifier import class_log_marginals, classify
from vcl.predicting.prediction import predict, predict_draws
from vcl.projections.kronecker import KroneckerLaplace
from vcl.projections.kronecker_variational import KroneckerVariational
from vcl.projections.vi import VariationalKL
from vcl.recursion import Method, State, Task

MethodName = Literal["structured", "mean-field", "laplace", "generative"]
METHOD_NAMES: tuple[MethodName, ...] = get_args(MethodName)


Net = nn.Module | Vae | None


class Part(Protocol):
    """A network prepared for the inputs of the first update."""

    @property
    def note(self) -> str:
        """What is special about it, for people."""
        ...

    @property
    def own_head(self) -> tuple[Tensor, Tensor] | None:
        """Weight and bias of the network's own last layer, where that is the head."""
        ...

    def inputs(self, x: Tensor, like: Tensor) -> Tensor:
        """What the model takes, from inputs x [N, ...] on the device."""
        ...

    def digests(self) -> dict[str, str]:
        """A checksum of each value that has no posterior."""
        ...

    def model(self, likelihood: Any, prior: Mapping[str, Tensor] | None) -> Any:
        """The model with a likelihood; ``prior`` has the saved mean of the prior, if any."""
        ...

    def prior_values(self, model: Any) -> Mapping[str, Tensor]:
        """The mean of the prior, where it is not 0."""
        ...


class Step(NamedTuple):
    """What one update asks of the recursion."""

    before: State[Any]
    task: str
    head: str
    x: Tensor
    y: Tensor
    units: int
    outputs: Any
    noise: Any


class Way(Protocol):
    """A way to learn and to predict."""

    forgets: bool
    """Whether its family of beliefs has a quotient, so that a task can be forgotten."""
    shares: bool
    """Whether all updates share one head, whatever their names."""

    def part(self, net: Net, example: Tensor, inputs: Inputs, shape: Shape, seed: int) -> Part:
        """The network prepared for inputs like ``example`` [1, ...]."""
        ...

    def method(self, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """The projection and the coreset rule for an update of so many examples."""
        ...

    def task(self, step: Step) -> Task:
        """D_t."""
        ...

    def mean(self, state: State[Any], model: Any, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """The prediction [N, C] averaged over draws of the weights, for x [1, N, ...]."""
        ...

    def each(self, state: State[Any], model: Any, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """The prediction of each draw [S, N, C]."""
        ...


class _OfNetwork:
    """Tasks and predictions of a network with heads."""

    shares = False

    def part(self, net: Net, example: Tensor, inputs: Inputs, shape: Shape, seed: int) -> Part:
        if not isinstance(net, nn.Module):
            what = "net is missing" if net is None else "net is a Vae, which is for method='generative'"
            raise VclError(f"{what}; give an nn.Module, such as vcl.mlp(inputs, (100, 100)).")
        return backbone(net, example, shape, seed)

    def task(self, step: Step) -> Task:
        data = dataset(step.x, step.y, step.task, step.head)
        return Task(step.task, data, heads={step.head: step.units})

    def mean(self, state: State[Any], model: Model, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        return predict(state.predictive[head], model, x, head, rng, draws)[0]

    def each(self, state: State[Any], model: Model, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        return predict_draws(state.predictive[head], model, x, head, rng, draws)[0]


def _rule(memory: int, examples: int) -> CoresetRule:
    return RandomK(min(memory, examples)) if memory else Nothing()


NEAR, LONGEST = 2.0, 0.05
"""Steps of the precision that keep about e^-2 of the start, which is the result of Laplace propagation, and their most.

One draw's curvature is noisy: a fit of few steps must not trust a single one.
"""


def near(steps: int) -> NaturalGradient:
    """Natural gradients for a fit of so many steps that begins near its end."""
    return NaturalGradient(forget=min(NEAR, LONGEST * steps / 3))


@final
class Structured(_OfNetwork):
    """VCL with Kronecker factors, by one local draw a step; a layer without a rule has a diagonal."""

    forgets = False

    def method(self, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """Laplace propagation, and a variational fit from there."""
        how = effort.ascent(examples)
        project = KroneckerVariational(KroneckerLaplace(how), how, effort.draws or 1, natural=near(how.steps(examples)))
        return Method(project, _rule(memory, examples))


@final
class IndependentWeights(_OfNetwork):
    """VCL with independent weights, by natural gradients: the family that can forget."""

    forgets = True

    def method(self, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """A variational fit."""
        how = effort.ascent(examples)
        project = VariationalKL(how, effort.draws or 1, "local", natural=NaturalGradient(), ml_start=False)
        return Method(project, _rule(memory, examples))


@final
class AtTheMode(_OfNetwork):
    """Laplace propagation with Kronecker factors: the fastest. The prediction is that of the mode."""

    forgets = False

    def method(self, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """Laplace propagation."""
        return Method(KroneckerLaplace(effort.ascent(examples)), _rule(memory, examples))

    def mean(self, state: State[Any], model: Model, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """At the mean of q: draws around a mode of a small data set underfit."""
        q = state.predictive[head]
        return predict(Point(q.layout, q.mean), model, x, head, rng, 1)[0]


class Generators(NamedTuple):
    """A VAE, as a prepared network."""

    vae: Vae
    note: str
    own_head: None = None

    def inputs(self, x: Tensor, like: Tensor) -> Tensor:
        """The inputs themselves."""
        return x.to(like.device)

    def digests(self) -> dict[str, str]:
        """None: all its parameters are in the belief."""
        return {}

    def model(self, likelihood: Any, prior: Mapping[str, Tensor] | None) -> Vae:
        """The VAE; its likelihood is that of its pixels."""
        return self.vae

    def prior_values(self, model: Any) -> Mapping[str, Tensor]:
        """The prior's mean is 0."""
        return {}


Z_DRAWS, THETA_DRAWS = 50, 8
"""Draws of z for log p(x | y), and draws of theta for the differences between them."""


@final
class Generative:
    """A generator for each class, and p(y | x) in proportion to p(x | y): for classes that come one after another."""

    forgets, shares = False, True

    def part(self, net: Net, example: Tensor, inputs: Inputs, shape: Shape, seed: int) -> Part:
        """The given VAE, or one for inputs of this size."""
        if net is not None and not isinstance(net, Vae):
            raise VclError(
                f"net is a {type(net).__name__}; method='generative' takes a vcl.Vae, or none: it then makes one for "
                "the inputs of the first update."
            )
        if inputs.kind == "tokens":
            raise VclError(
                "method='generative' takes images or numbers, and the inputs are tokens; use another method."
            )
        if net is not None:
            return Generators(net, "a generator for each class")
        pixels = prod(example.shape[1:])
        units = max(32, min(500, 4 * pixels))
        grey = inputs.kind == "pixels" or inputs.grey
        likelihood = BernoulliPixels() if grey else NormalPixels(NOISE)
        made = mlp_vae(pixels, max(2, min(50, pixels // 4)), units, units, likelihood)
        return Generators(made, f"a generator for each class, {units} units a layer")

    def method(self, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """VCL over the shared decoder, as in the paper's section 6.2, with a decayed rate."""
        how = effort.ascent(examples)
        how = Ascent(how.epochs, min(50, how.batch or 50), effort.lr or 1e-3, "cosine")
        project = VariationalKL(
            how, effort.draws or 1, start="reset", init_var=exp(-10), ml_start=False, init="glorot", climbs="log_sd"
        )
        return Method(project, Nothing(), project)

    def task(self, step: Step) -> Task:
        """The images of each class, by the head of its place."""
        places = torch.unique(step.y).tolist()
        parts = [unlabelled(step.x[step.y == place], f"{place}", f"{place}") for place in places]
        pixels = prod(step.x.shape[1:])
        return Task(step.task, reduce(concat, parts), heads={f"{place}": pixels for place in places})

    def mean(self, state: State[Any], model: Any, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """By generators at the mean of the weights."""
        return self._probabilities(state, model, x, units, rng, "mean")

    def each(self, state: State[Any], model: Any, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """At most eight draws: each costs as much as a prediction."""
        found = [
            self._probabilities(state, model, x, units, rng.at("theta", number), "drawn")
            for number in range(min(draws, THETA_DRAWS))
        ]
        return torch.stack(found)

    def log_evidence(self, state: State[Any], model: Any, x: Tensor, rng: Rng) -> Tensor:
        """log p(x | y) of the learned classes [N, C]."""
        return class_log_marginals(state, model, x, tuple(state.heads), rng, Z_DRAWS)[0]

    def _probabilities(
        self, state: State[Any], model: Any, x: Tensor, units: int, rng: Rng, theta: Literal["mean", "drawn"]
    ) -> Tensor:
        """p(y | x) [N, C] of all places; a class without data has probability 0."""
        known = tuple(state.heads)
        found = class_log_marginals(state, model, x, known, rng, Z_DRAWS, theta, theta_draws=1)
        p = classify(found)[0]
        whole = p.new_zeros(len(p), units)
        whole[:, [int(name) for name in known]] = p
        return whole


NOISE = 0.5
"""The deviation of standardised numbers in a generator."""

WAYS: Mapping[MethodName, Way] = {
    "structured": Structured(),
    "mean-field": IndependentWeights(),
    "laplace": AtTheMode(),
    "generative": Generative(),
}


def way_of(name: str) -> Way:
    """The way of a method; VclError for an unknown name."""
    if name not in WAYS:
        raise unknown("method", str(name), METHOD_NAMES)
    return WAYS[name]  # type: ignore[index]
