"""The settings of a generative experiment."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Literal

Switch = Literal["no", "yes"]


@dataclass(frozen=True)
class GenerativeSettings:
    """Everything that a run's numbers depend on, beside the experiment, the method, the seeds and the device."""

    tasks: int
    epochs: int
    batch: int | None
    latent: int = 50
    """Latent variables z."""
    features: int = 500
    """Units of h, where the shared and the private part of the decoder meet."""
    hidden: int = 500
    """Units of every hidden layer."""
    private: Literal["lower", "upper"] = "lower"
    """The private part of the decoder: z to h (the paper's first architecture), or h to x (its second)."""
    encoder: Literal["private", "shared"] = "private"
    head_kl: Switch = "no"
    """Whether the private part of the decoder has a prior too."""
    binarised: Switch = "no"
    """Whether pixels are rounded to 0 and 1; otherwise they are grey."""
    order: tuple[int, ...] = ()
    """The order in which tasks come, by their numbers from 0; none is the given one."""
    lr: float = 1e-4
    schedule: Literal["constant", "cosine"] = "constant"
    average: float = 0.0
    """The last share of a fit's steps over which its iterates are averaged."""
    draws: int = 10
    """Draws of (theta, z) a step."""
    start: Literal["reset", "continue", "restart"] = "reset"
    init_var: float = exp(-12)
    prior_var: float = 1.0
    coreset: int = 40
    """Points kept of each task."""
    coreset_epochs: int = 100
    coreset_batch: int | None = 50
    lam: float = 1.0
    """lambda: how much the past weighs, for methods that need to be told. `--set lambda=…` sets it."""
    fisher_samples: int | None = 50
    fisher_draws: int = 10
    fisher_bound: Literal["mean", "importance"] = "mean"
    """Whose gradients are squared: the mean bound over the draws of z, or the importance-sampled one."""
    anchor: Literal["own", "previous"] = "own"
    damping: float = 1e-6
    ll_draws: int = 5000
    """Draws of z for the test log-likelihood."""
    ll_drawn: int = 0
    """As many again with the weights drawn too, if not 0."""
    images: int = 1000
    """Images generated for the classifier's uncertainty."""
    classifier_hidden: int = 1000
    classifier_epochs: int = 20
    train_limit: int | None = None
    """At most this many training examples a task, as equally many of each class as there are; none takes all."""
    test_limit: int | None = None
    predictive: Literal["joint"] = "joint"
    matmul: Literal["float32", "tf32"] = "float32"
    """How a GPU rounds the factors of matrix products: not at all, or to TF32 (10 bits), which is faster."""
    seeds: int = 3
