"""A way to learn by a generator for each class, for classes that come one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import reduce
from math import exp, prod
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor

from vcl.coresets import Nothing
from vcl.data import concat, unlabelled
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.learner.backbone import Shape
from vcl.learner.defaults import Effort
from vcl.learner.input_kind import Inputs
from vcl.learner.way import Net, Part, Step
from vcl.models.pixels import BernoulliPixels, NormalPixels
from vcl.models.vae import Vae, mlp_vae
from vcl.ops.rng import Rng
from vcl.predicting.generative_classifier import class_log_marginals, classify
from vcl.projections.vi import VariationalKL
from vcl.recursion import Method, State, Task

NOISE = 0.5
"""The deviation of standardised numbers in a generator."""


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

    forgets, shares, regresses, tells, rescales = False, True, False, False, False

    def check(self, shape: Shape, effort: Effort, memory: int) -> None:
        """A VAE has a shape of its own, and no memory."""
        plain = Shape()
        given = [field.name for field in fields(shape) if getattr(shape, field.name) != getattr(plain, field.name)]
        if given or memory:
            raise VclError(
                f"method='generative' has generators in the place of a network and needs no memory; leave out "
                f"{', '.join([*given, *(['memory'] if memory else [])])}."
            )

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
        with torch.random.fork_rng(devices=[]):  # layers draw values from torch's global generator, which no fit uses
            made = mlp_vae(pixels, max(2, min(50, pixels // 4)), units, units, likelihood)
        return Generators(made, f"a generator for each class, {units} units a layer")

    def method(self, shape: Shape, effort: Effort, examples: int, memory: int) -> Method[Any]:
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
