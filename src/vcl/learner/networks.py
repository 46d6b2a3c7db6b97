"""Ways to learn by a network with heads: structured, with independent weights, or at the mode."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from vcl.beliefs.point import Point
from vcl.coresets import CoresetRule, Nothing, RandomK
from vcl.data import dataset
from vcl.errors import VclError
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.learner.backbone import Shape, backbone
from vcl.learner.defaults import Effort
from vcl.learner.input_kind import Inputs
from vcl.learner.way import Net, Part, Step
from vcl.models.base import Model
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict, predict_draws
from vcl.projections.kronecker import KroneckerLaplace
from vcl.projections.kronecker_variational import KroneckerVariational
from vcl.projections.vi import VariationalKL
from vcl.recursion import Method, State, Task


class _OfNetwork:
    """Tasks and predictions of a network with heads."""

    shares, regresses, tells, rescales = False, True, True, True

    def check(self, shape: Shape, effort: Effort, memory: int) -> None:
        """All settings are for networks."""

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


WIDEST = 1024
"""The most inputs or outputs of an adapted layer whose adapters get Kronecker factors; wider ones have a diagonal.

An adapter of rank 8 on 2,560 inputs has 20,480 values, and its factor 6.6 million, with eigenvectors that take 15 s on
a core in each of six rounds: more than the frozen layer would have cost.
"""


def curvature(shape: Shape) -> KroneckerCurvature:
    """The curvature of Laplace propagation, with factors that cost no more than what they are of."""
    return KroneckerCurvature() if shape.adapters is None else KroneckerCurvature(most=WIDEST)


@final
class Structured(_OfNetwork):
    """VCL with Kronecker factors, by one local draw a step; a layer without a rule has a diagonal."""

    forgets = False

    def method(self, shape: Shape, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """Laplace propagation, and a variational fit from there."""
        how = effort.ascent(examples)
        start = KroneckerLaplace(how, curvature=curvature(shape))
        project = KroneckerVariational(start, how, effort.draws or 1, natural=near(how.steps(examples)))
        return Method(project, _rule(memory, examples))


@final
class IndependentWeights(_OfNetwork):
    """VCL with independent weights, by natural gradients: the family that can forget."""

    forgets = True

    def check(self, shape: Shape, effort: Effort, memory: int) -> None:
        """Natural gradients have no learning rate."""
        if effort.lr is not None:
            raise VclError(
                "method='mean-field' takes natural-gradient steps, whose length follows from their number; leave out "
                "lr (more epochs, or a smaller batch, take more steps)."
            )

    def method(self, shape: Shape, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """A variational fit. The first begins at the maximum of the likelihood: from the prior it often stays there."""
        how = effort.ascent(examples)
        project = VariationalKL(how, effort.draws or 1, "local", natural=NaturalGradient())
        return Method(project, _rule(memory, examples))


@final
class AtTheMode(_OfNetwork):
    """Laplace propagation with Kronecker factors: the fastest. The prediction is that of the mode."""

    forgets = False

    def method(self, shape: Shape, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """Laplace propagation."""
        return Method(KroneckerLaplace(effort.ascent(examples), curvature=curvature(shape)), _rule(memory, examples))

    def mean(self, state: State[Any], model: Model, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """At the mean of q: draws around a mode of a small data set underfit."""
        q = state.predictive[head]
        return predict(Point(q.layout, q.mean), model, x, head, rng, 1)[0]
