"""Other libraries on the same work: the same network built of their layers, the same draws, the same batch.

They draw weights once per pass, so S draws take S passes. Each uses its own KL, weighted so that the loss is the same
bound, and Adam. Libraries that are not installed are left out (`pip install vcl[bench]`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcl.lab.bench.timing import Job
from vcl.lab.bench.work import SIZES, Standard, plain_step


class Peer(NamedTuple):
    """A library: its name, its module, and a function that builds its network."""

    name: str
    module: str
    build: Callable[[], Pass]


Pass = tuple[nn.Module, Callable[[Tensor], tuple[Tensor, Tensor | float]]]
"""The parameters, and a forward pass that returns outputs and the KL."""


def torchbnn() -> Pass:
    """Layers that draw weights at every call; a separate loss computes the KL."""
    bnn: Any = import_module("torchbnn")
    layers = [
        bnn.BayesLinear(prior_mu=0, prior_sigma=1, in_features=width, out_features=out)
        for width, out in pairwise(SIZES)
    ]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    divergence = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return net, lambda x: (net(x), divergence(net).sum())


def bayesian_torch() -> Pass:
    """Layers that return their output and their KL."""
    found: Any = import_module("bayesian_torch.layers")
    net = nn.ModuleList(found.LinearReparameterization(width, out) for width, out in pairwise(SIZES))

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), device=x.device)
        for place, layer in enumerate(net):
            x, divergence = layer(x if place == 0 else F.relu(x))
            total = total + divergence
        return x, total

    return net, forward


def blitz() -> Pass:
    """Layers that store the log densities of their last draw."""
    found: Any = import_module("blitz.modules")
    layers = [found.BayesianLinear(width, out) for width, out in pairwise(SIZES)]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        output = net(x)
        drawn = [layer.log_variational_posterior - layer.log_prior for layer in layers]
        return output, torch.stack(drawn).sum()

    return net, forward


PEERS = (
    Peer("torchbnn", "torchbnn", torchbnn),
    Peer("bayesian-torch", "bayesian_torch", bayesian_torch),
    Peer("blitz", "blitz", blitz),
)


def installed() -> list[Peer]:
    """The libraries that are installed."""
    return [peer for peer in PEERS if find_spec(peer.module) is not None]


class _Draws(nn.Module):
    """S passes: returns the outputs of all of them and stores the mean KL."""

    def __init__(self, made: Pass, draws: int) -> None:
        super().__init__()
        self.net, self.one = made
        self.draws = draws
        self.kl: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [S, N, C]."""
        passes = [self.one(x) for _ in range(self.draws)]
        self.kl = sum(divergence for _, divergence in passes) / self.draws
        return torch.stack([output for output, _ in passes])


def step(work: Standard, peer: Peer, draws: int) -> Job:
    """One training step with S draws."""
    net = _Draws(peer.build(), draws).to(work.device)
    adam = torch.optim.Adam(net.parameters(), 1e-3, fused=True)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), y.repeat(draws)) + net.kl / 60_000

    return plain_step(work, net, adam, loss)


def prediction(images: Tensor, peer: Peer, draws: int) -> Job:
    """p(y | x), the average of the probabilities of ``draws`` passes."""
    net, forward = peer.build()
    net.to(images.device).eval()
    x = images.flatten(1).float().div(255)

    @torch.no_grad()
    def once() -> Tensor:
        total = torch.zeros(len(x), SIZES[-1], device=x.device)
        for _ in range(draws):
            total += F.softmax(forward(x)[0], dim=-1)
        return total / draws

    return once
