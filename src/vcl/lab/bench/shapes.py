"""Training steps of the paper's networks, with the shapes, draws, batches and estimators of its presets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import torch

from vcl.beliefs.mean_field_fit import Climbs
from vcl.data import dataset, unlabelled
from vcl.engines.usage import Estimator
from vcl.fitting.step import make_step
from vcl.lab.bench import floors
from vcl.lab.bench.floors import Layer
from vcl.lab.bench.timing import Job
from vcl.lab.plan import make_plan
from vcl.models import Network, Vae, mlp, mlp_vae
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections.vi import Elbo

HEAD = "all"

CPU_PRODUCTS = 4e10
"""A CPU skips shapes with more multiplications per forward pass: a step would take several seconds."""

LIGHT = 3e9
"""Multiplications per forward pass at which a CPU times one call per round; it times more calls of smaller shapes."""


class Shape(NamedTuple):
    """A network of the paper and how it is fitted."""

    name: str
    build: Callable[[], Network | Vae]
    layers: tuple[Layer, ...]
    outputs: int
    side: int
    """Side of its square images, in pixels."""
    examples: int
    batch: int | None
    """Examples per step; None takes all."""
    draws: int
    estimator: Estimator
    runs: tuple[int, ...]
    lr: float
    init_var: float
    climbs: Climbs = "log_var"

    @property
    def rows(self) -> int:
        """Examples in a step."""
        return min(self.batch or self.examples, self.examples)

    @property
    def sizes(self) -> str:
        """The units of its layers as text, such as 784-100-2; encoder and decoder are listed separately."""
        text, before = str(self.layers[0].width), self.layers[0].width
        for layer in self.layers:
            text += f"-{layer.out}" if layer.width == before else f" and {layer.width}-{layer.out}"
            before = layer.out
        return text

    def multiplications(self, runs: int) -> int:
        """Multiplications in a forward pass."""
        return runs * self.draws * self.rows * sum(layer.width * layer.out for layer in self.layers)

    def fits(self, runs: int, device: torch.device) -> bool:
        """Whether this number of runs can be timed: within a GPU's memory, or in a few seconds on a CPU."""
        if device.type != "cuda":
            return self.multiplications(runs) <= CPU_PRODUCTS
        activations = 4 * runs * self.draws * self.rows * sum(layer.out for layer in self.layers)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return 12 * activations < torch.cuda.mem_get_info(device)[0] + cached


def published(most: int | None = None) -> tuple[Shape, ...]:
    """The shapes, with at most ``most`` examples per task."""
    shapes = (
        perceptron("split-mnist", side=28, outputs=2, examples=12_000),
        perceptron("split-notmnist", side=28, outputs=2, examples=3_370),
        perceptron("permuted-digits", side=8, outputs=10, examples=1_440),
        generator("generative-mnist", side=28, examples=5_400),
    )
    return tuple(shape._replace(examples=min(shape.examples, most or shape.examples)) for shape in shapes)


def paper_settings(name: str) -> SimpleNamespace:
    """The settings of VCL in an experiment's paper preset, by name."""
    plan = make_plan(name, "vcl", "paper", None, "cpu")
    return SimpleNamespace(**{value.setting.name: value.value for value in plan.listed()})


def perceptron(name: str, side: int, outputs: int, examples: int) -> Shape:
    """The network of a discriminative experiment with one head."""
    s = paper_settings(name)
    pixels = side * side
    layers = tuple(
        Layer(width, out, by_draw=place > 0, back=place > 0)
        for place, (width, out) in enumerate(pairwise((pixels, *s.hidden, outputs)))
    )

    def build() -> Network:
        return Network(mlp(pixels, s.hidden), s.hidden[-1], Categorical())

    return Shape(
        name, build, layers, outputs, side, examples, s.batch, s.draws, s.estimator, (1, s.seeds), s.lr, s.init_var
    )  # fmt: skip


def generator(name: str, side: int, examples: int) -> Shape:
    """The VAE of a generative experiment: a deterministic encoder, and one decoder per draw."""
    s = paper_settings(name)
    pixels = side * side
    encoder = tuple(
        Layer(width, out, drawn=False, by_draw=False, back=place > 0)
        for place, (width, out) in enumerate(pairwise((pixels, *[s.hidden] * 3, 2 * s.latent)))
    )
    decoder = tuple(Layer(width, out) for width, out in pairwise((s.latent, s.hidden, s.features, s.hidden, pixels)))

    def build() -> Vae:
        return mlp_vae(pixels, s.latent, s.features, s.hidden)

    return Shape(
        name, build, encoder + decoder, pixels, side, examples, s.batch, s.draws, "weights", (1, s.seeds), s.lr,
        s.init_var, "log_sd",
    )  # fmt: skip


class Step(NamedTuple):
    """A training step, its matrix products alone, and the bytes that it must move."""

    job: Job
    floor: Job
    moved: int


def step(shape: Shape, runs: int, device: torch.device) -> Step:
    """One complete step of this shape: batch, noise, bound, gradient, Adam."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (shape.examples, shape.side, shape.side), generator=g, dtype=torch.uint8).to(device)
    if shape.rows == shape.examples:
        x = x.float().div_(255)  # a fit converts a batch that never changes only once
    model = shape.build()
    if isinstance(model, Vae):
        data = unlabelled(x, head=HEAD, runs=runs)
    else:
        y = torch.randint(0, shape.outputs, (shape.examples,), generator=g).to(device)
        data = dataset(x, y, head=HEAD, runs=runs)
    prior = model.prior({HEAD: shape.outputs}).to(device).expand(runs)
    mean = 0.05 * torch.randn(prior.mean.shape, generator=g).to(device)
    log_var = torch.full_like(mean, shape.init_var).log_().minimum(prior.log_var)  # points keep variance 0
    elbo = Elbo(model, prior, shape.draws, shape.estimator, shape.climbs)
    parameters = tuple(part.clone() for part in elbo.parameters(prior._replace(mean=mean, log_var=log_var)))
    take = make_step(elbo, parameters, data, shape.lr, Rng(tuple(range(runs))))
    index = None
    if shape.rows < shape.examples:
        index = torch.randperm(shape.examples, generator=g)[: shape.rows].to(device).expand(runs, -1).contiguous()
    drawn, points = parameters[0].numel(), sum(part.numel() for part in parameters[2:])
    return Step(
        lambda: take(index),
        floors.multiply(floors.products(shape.layers, shape.rows, shape.draws, runs, device), device),
        floors.moved(drawn, points, shape.draws, shape.estimator),
    )
