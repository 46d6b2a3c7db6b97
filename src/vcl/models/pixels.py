"""p(x | z, theta) of an image given a decoder's output, pixel by pixel."""

from __future__ import annotations

from math import log, pi
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from vcl.engines.walk import SCORED
from vcl.errors import VclError

EXACT = 40.0
"""Above it log(1 + e^f) equals f in float64; torch drops e^-f from 20 on."""


class Pixels(Protocol):
    """An observation model of pixels on top of a decoder's output."""

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        """log p(x | z, theta), summed over pixels: output [..., N, P] and x [N, P] -> [..., N]."""
        ...

    def mean(self, output: Tensor) -> Tensor:
        """E[x | z, theta], of the same shape as the output."""
        ...

    def check(self, x: Tensor, what: str) -> None:
        """Raise VclError unless ``x`` holds valid pixels for this model."""
        ...


class BernoulliPixels(NamedTuple):
    """p(x | z, theta) = prod_d p_d^x_d (1 - p_d)^(1 - x_d), p = sigmoid(output).

    Pixels are 0 or 1, or grey values between, as in the paper. For grey values it is not a normalised density but a
    score for comparing grey images. :func:`binarised` converts grey values to 0 and 1.
    """

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        """sum_d x_d log p_d + (1 - x_d) log(1 - p_d) = sum_d x_d f_d - log(1 + e^f_d), stable for any logit f_d."""
        return -torch.addcmul(F.softplus(output, threshold=EXACT), x, output, value=-1).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        """The probabilities p."""
        return output.sigmoid()

    def check(self, x: Tensor, what: str) -> None:
        """Pixels are from 0 to 1, or bytes from 0 to 255."""
        if x.dtype == torch.uint8:
            return
        if not x.is_floating_point():
            raise VclError(f"{what}: pixels have dtype {x.dtype}; give uint8 (0 to 255) or floats from 0 to 1.")
        if x.numel() and not (float(x.min()) >= 0 and float(x.max()) <= 1):
            raise VclError(
                f"{what}: pixels run from {float(x.min()):g} to {float(x.max()):g}; scale them to 0 to 1, or give "
                "them as uint8 (0 to 255)."
            )


class NormalPixels(NamedTuple):
    """p(x | z, theta) = N(x; output, noise^2 I). With linear parts the model is factor analysis, which is exact."""

    noise: float = 1.0

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        """sum_d -1/2 ((x_d - f_d) / noise)^2 - log noise - 1/2 log 2 pi."""
        error = (x - output) / self.noise
        return (-0.5 * error.square() - log(self.noise) - 0.5 * log(2 * pi)).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        """The output itself."""
        return output

    def check(self, x: Tensor, what: str) -> None:
        """Pixels are floating-point, or bytes, which are divided by 255; the deviation is above 0."""
        if not self.noise > 0:
            raise VclError(f"noise is {self.noise}; a deviation must be above 0.")
        if not (x.is_floating_point() or x.dtype == torch.uint8):
            raise VclError(f"{what}: pixels have dtype {x.dtype}; give uint8 (0 to 255) or floating-point numbers.")


def binarised(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Pixels as 0 or 1 (uint8: 0 or 255): 1 from half grey on, or drawn with the grey value as probability.

    Binarise a dataset once, before training. A ``generator`` gives the usual stochastic binarisation.
    """
    grey = x.float() / 255 if x.dtype == torch.uint8 else x
    BernoulliPixels().check(x, "the images")
    bright = grey >= 0.5 if generator is None else torch.rand(x.shape, generator=generator, device=x.device) < grey
    return bright.to(x.dtype) * 255 if x.dtype == torch.uint8 else bright.to(x.dtype)


SCORED[BernoulliPixels] = "bernoulli"
