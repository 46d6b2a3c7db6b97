"""Small data and learners for the tests of learners for own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from vcl.learner import ContinualClassifier, ContinualRegressor
from vcl.learner.checkpoint import packed
from vcl.learner.continual import ContinualLearner
from vcl.models import mlp

QUICK: dict[str, Any] = {"epochs": 2, "batch": 16, "verbose": 0, "device": "cpu"}
"""Fits of a few steps."""

FIT: dict[str, Any] = {"epochs": 40, "batch": 16, "verbose": 0, "device": "cpu"}
"""Fits that learn small data."""


def fit(method: str, **settings: Any) -> dict[str, Any]:
    """:data:`FIT` by a method, at a learning rate that suits so few steps where it has one."""
    rate = {} if method == "mean-field" else {"lr": 1e-2}
    return {**FIT, **rate, "method": method, **settings}


def numbers(n: int = 40, seed: int = 0, width: int = 4, shift: float = 0.0) -> np.ndarray:
    """Inputs [N, width]."""
    return np.random.default_rng(seed).normal(shift, 1.0, (n, width))


def classes_of(x: np.ndarray, first: int = 0) -> np.ndarray:
    """Two classes that a line divides."""
    return (x[:, 0] > x[:, 0].mean()).astype(int) + first


def targets_of(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """Numbers, with noise 0.5 of a scale of 4."""
    return 10 + 4 * x[:, 0] + 0.5 * np.random.default_rng(seed).normal(size=len(x))


def small_net(seed: int = 0, width: int = 4) -> nn.Module:
    """A perceptron with its own random values."""
    torch.manual_seed(seed)
    return mlp(width, (6,))


def whole_net(seed: int = 0, outputs: int = 2) -> nn.Module:
    """A network with its own last layer."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs))


def classifier(net: Any = None, **settings: Any) -> ContinualClassifier:
    """A classifier with quick fits."""
    net = small_net() if net is None and settings.get("method") != "generative" else net
    return ContinualClassifier(net, **{**QUICK, **settings})


def regressor(net: Any = None, **settings: Any) -> ContinualRegressor:
    """A regressor with quick fits."""
    return ContinualRegressor(small_net() if net is None else net, **{**QUICK, **settings})


def tensors(learner: ContinualLearner) -> dict[str, Any]:
    """Everything that a learner has learned as tensors and values by name, to compare bit by bit."""
    known = learner._knows()
    found: dict[str, Any] = {**packed(known.state)}
    for head, noise in (known.noise or {}).items():
        found |= {f"noise {head} shape": noise.shape, f"noise {head} rate": noise.rate}
    for name, site in known.sites.items():
        found |= {f"site {name} precision": site.precision, f"site {name} shift": site.shift}
    if known.scaling is not None:
        found |= {"centre": known.scaling.centre, "width": known.scaling.width}
    about = {"outputs": str(known.outputs), "tasks": str(known.tasks), "seen": str(dict(known.seen))}
    return found | about | {"inputs": str(known.inputs), "table": str(known.table)}


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether both hold the same bits."""
    if one.keys() != two.keys():
        return False
    pairs = ((one[name], two[name]) for name in one)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


Make = Callable[[], ContinualLearner]
