"""The standard work: the Permuted MNIST network, 784-100-100-10, on batches of 256 random images."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcl.beliefs.mean_field import MeanField
from vcl.coresets import KCenter
from vcl.data import Data, dataset
from vcl.engines.usage import Estimator
from vcl.fitting.curvature import Curvature
from vcl.fitting.step import make_step
from vcl.lab.bench import floors
from vcl.lab.bench.timing import Job
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections.vi import Elbo

SIZES = (784, 100, 100, 10)
BATCH = 256
EXAMPLES = 10 * BATCH


class Standard(NamedTuple):
    """The data, on a device."""

    x: Tensor
    y: Tensor
    device: torch.device

    def data(self, runs: int) -> Data:
        """The same examples for every run."""
        return dataset(self.x, self.y, runs=runs)


def standard(device: torch.device) -> Standard:
    """Random images, uint8 [N, 28, 28], and labels [N]."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (EXAMPLES, 28, 28), generator=g, dtype=torch.uint8)
    return Standard(x.to(device), torch.randint(0, 10, (EXAMPLES,), generator=g).to(device), device)


class AnyModule(nn.Module):
    """The same trunk, but untraceable (it uses ``len(x)``), so the general engine computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SIZES[0], SIZES[1]), nn.Linear(SIZES[1], SIZES[2])

    def forward(self, x: Tensor) -> Tensor:
        """[N, H, W] to [N, 100]."""
        return F.relu(self.second(F.relu(self.first(x.reshape(len(x), -1)))))


def network(general: bool = False) -> Network:
    """The paper's network, for the layered engine or for the general one."""
    return Network(AnyModule() if general else mlp(SIZES[0], SIZES[1:3]), SIZES[2], Categorical())


def belief(model: Network, runs: int, device: torch.device) -> MeanField:
    """A belief with small random means and variance e^-6."""
    prior = model.prior({"all": SIZES[3]}).to(device).expand(runs)
    g = torch.Generator().manual_seed(1)
    mean = 0.1 * torch.randn(prior.mean.shape, generator=g).to(device)
    return MeanField(prior.layout, mean, torch.full_like(mean, -6.0))


def step(work: Standard, estimator: Estimator, draws: int, runs: int, general: bool = False) -> Job:
    """One complete training step of VCL: batch, noise, bound, gradient, Adam."""
    model = network(general)
    q = belief(model, runs, work.device)
    elbo = Elbo(model, model.prior({"all": SIZES[3]}).to(work.device).expand(runs), draws, estimator)
    parameters = tuple(part.clone().requires_grad_() for part in elbo.parameters(q))
    take = make_step(elbo, parameters, work.data(runs), 1e-3, Rng(tuple(range(runs))))
    index = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(2))[:BATCH].to(work.device)
    together = index.expand(runs, -1).contiguous()
    return lambda: take(together)


def deterministic(work: Standard) -> Job:
    """One step of the same network without uncertainty, in plain torch."""
    net = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    net.to(work.device)
    adam = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    return plain_step(work, net, adam, lambda output, y: F.cross_entropy(output, y))


def plain_step(
    work: Standard, net: nn.Module, adam: torch.optim.Optimizer, loss: Callable[[Tensor, Tensor], Tensor]
) -> Job:
    """One training step in plain torch: batch, loss, gradient, optimiser."""
    index = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(2))[:BATCH].to(work.device)

    def once() -> None:
        adam.zero_grad()
        output = net(work.x[index].flatten(1).float().div_(255))
        loss(output, work.y[index]).backward()  # type: ignore[no-untyped-call]
        adam.step()

    return once


def floor(work: Standard, draws: int, runs: int) -> Job:
    """The matrix products of a `local` step alone: no such step can be faster on this machine.

    Each layer has products for the mean and for the variance: forward, for the gradients of the weights, and, from the
    second layer on, for the gradient of its input. The first layer's products serve all draws.
    """
    products: floors.Products = []
    for place, (width, out) in enumerate(pairwise(SIZES)):
        rows = BATCH * (draws if place else 1)
        x, w, g = (
            torch.randn(runs, *shape, device=work.device) for shape in ((rows, width), (out, width), (rows, out))
        )
        products += [(x, w.mT), (x, w.mT), (g.mT, x), (g.mT, x)] + ([(g, w), (g, w)] if place else [])
    return floors.multiply(products, work.device)


def moved(estimator: Estimator, draws: int, runs: int) -> int:
    """Bytes that a step must move."""
    return floors.moved(runs * network().layout({"all": SIZES[3]}).size, 0, draws, estimator)


def prediction(images: Tensor, draws: int, estimator: Estimator) -> Job:
    """p(y | x) of ``images`` [N, H, W] by averaging over draws."""
    model = network()
    q = belief(model, 1, images.device)
    return lambda: predict(q, model, images[None], "all", Rng((0,)), draws, estimator)


def k_center(images: Tensor, points: int) -> Job:
    """The greedy K-center coreset of ``images``."""
    data = dataset(images, torch.zeros(len(images), dtype=torch.int64, device=images.device))
    return lambda: KCenter(points)(data.empty(), data, Rng((0,)))


def fisher(work: Standard, samples: int) -> Job:
    """The diagonal of the empirical Fisher information from ``samples`` examples."""
    model = network()
    q = belief(model, 1, work.device)
    return lambda: Curvature(samples=samples)(model, q.layout, q.mean, work.data(1), Rng((0,)))
