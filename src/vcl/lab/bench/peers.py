"""Other libraries for the same work: the same network with their layers, the same number of draws, the same batch.

They draw weights once per pass, so S draws are S passes. Each gets its own KL, weighted so that the loss is the same
bound, and Adam. What is not installed is left out (`pip install vcl[bench]`).
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
    """A library: its name, the module to look for, and its network."""

    name: str
    module: str
    build: Callable[[], Pass]


Pass = tuple[nn.Module, Callable[[Tensor], tuple[Tensor, Tensor | float]]]
"""Parameters, and a forward pass that gives outputs and the KL."""


def torchbnn() -> Pass:
    """Layers that draw at every call; the KL is a loss of its own."""
    bnn: Any = import_module("torchbnn")
    layers = [
        bnn.BayesLinear(prior_mu=0, prior_sigma=1, in_features=width, out_features=out)
        for width, out in pairwise(SIZES)
    ]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    divergence = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return net, lambda x: (net(x), divergence(net).sum())


def bayesian_torch() -> Pass:
    """Layers that give their KL with their output."""
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
    """Layers that keep the log densities of what they drew last."""
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
    """Those that are here."""
    return [peer for peer in PEERS if find_spec(peer.module) is not None]


class _Draws(nn.Module):
    """S passes, averaged: the outputs of all of them and the mean KL."""

    def __init__(self, made: Pass, draws: int) -> None:
        super().__init__()
        self.net, self.one = made
        self.draws = draws
        self.kl: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """[S, N, C]."""
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
    """p(y | x) by as many passes as draws, probabilities averaged."""
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
