"""Split MNIST with a small convolutional network: two convolutions, one linear layer, a head for each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from vcl.lab.classification import Prediction
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup
from vcl.lab.experiments.split import Split, stream
from vcl.lab.settings import Count, Layers, Variance
from vcl.models import Categorical, Network


@dataclass(frozen=True)
class Conv:
    """Convolutions with stride 2, then a linear layer."""

    channels: Annotated[Layers, "channels of each convolution"] = (16, 32)
    features: Annotated[Count, "units of the linear layer"] = 100
    prior_var: Annotated[Variance, "variance of the prior of every weight"] = 1.0


def model(s: Conv, shape: tuple[int, ...]) -> Network:
    """For images of this shape; each convolution halves their sides."""
    layers: list[nn.Module] = [nn.Unflatten(-2, (1, shape[-2]))]
    width, (height, side) = 1, shape[-2:]
    for out in s.channels:
        layers += [nn.Conv2d(width, out, 3, stride=2, padding=1), nn.ReLU()]
        width, height, side = out, (height + 1) // 2, (side + 1) // 2
    layers += [nn.Flatten(-3), nn.Linear(width * height * side, s.features), nn.ReLU()]
    return Network(nn.Sequential(*layers), s.features, Categorical(), s.prior_var)


BASELINES: dict[str, dict[str, Any]] = {"ewc": {"lam": 100.0, "fisher_samples": 600}, "lp": {"fisher_samples": 600}}
PAPER = Setup(
    Split(5), Conv(), Prediction(), RunSettings(10),
    {"epochs": 20, "batch": 256, "coreset": 40, "coreset_epochs": 60, "coreset_batch": None, "predictive": "per-head",
     "draws": 1},
    BASELINES,
)  # fmt: skip
QUICK = PAPER.but(channels=(8, 16), features=50, epochs=5, coreset_epochs=30, predict_draws=10, train_limit=2_000,
                  test_limit=500, seeds=2)  # fmt: skip
SMOKE = QUICK.but(tasks=2, channels=(2, 2), features=8, epochs=1, coreset=10, coreset_epochs=1, predict_draws=2,
                  train_limit=100, test_limit=50)  # fmt: skip

SPLIT_MNIST_CONV = Experiment(
    name="split-mnist-conv",
    about="MNIST as five tasks of two digits, a small convolutional network",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    dataset="mnist",
    model=model,
)
