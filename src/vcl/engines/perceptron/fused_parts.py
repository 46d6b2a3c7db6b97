"""What both estimators of a narrow perceptron on a CUDA device share: its sizes, and how the kernels' work is cut."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.ops.kernels import perceptron
from vcl.ops.kernels.base import blocks_of

CUT: dict[str, dict[str, int]] = {
    "draw": {"BLOCK": 512, "num_warps": 4},
    "gather": {"BLOCK": 256, "num_warps": 8},
    "rectify": {"ROWS": 32, "num_warps": 8},
    "head": {"ROWS": 64, "num_warps": 4},
    "mask": {"ROWS": 64, "num_warps": 4},
    "moments": {"ROWS": 64, "STEP": 32, "OUT": 32, "num_warps": 4},
    "spread": {"ROWS": 16, "num_warps": 8},
    "head_local": {"ROWS": 32, "num_warps": 4},
    "back_local": {"ROWS": 8, "num_warps": 8},
    "add": {"BLOCK": 128, "num_warps": 4},
}
"""How each kernel's work is cut. Timed on an H200 for 784-100-100-10."""

Moments = tuple[Tensor, Tensor]
"""Mean and log variance [R, D] of a Gaussian."""


class Sizes(NamedTuple):
    """Units from the inputs to the classes, as (784, 100, 100, 10). In theta stand W and b of each layer, in order."""

    units: tuple[int, ...]

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each layer."""
        return list(pairwise(self.units))

    @property
    def weights(self) -> list[int]:
        """Where each layer's weight begins in theta, and then D."""
        return list(accumulate(((before + 1) * after for before, after in self.layers), initial=0))

    @property
    def biases(self) -> list[int]:
        """Where each layer's bias begins."""
        return [at + before * after for at, (before, after) in zip(self.weights, self.layers, strict=False)]


def value_of(log_lik: Tensor, kl: Tensor, scale: float) -> Tensor:
    """L(q) of each run [R], from the parts of both its terms."""
    value = torch.empty(len(kl), device=kl.device)
    perceptron.value[(len(kl),)](value, log_lik, kl, log_lik[0].numel(), kl.shape[1], scale, BLOCK=1024)
    return value


def width_of(units: int) -> int:
    """The power of 2 that holds so many units; a matrix product wants at least 16."""
    return max(16, 1 << (units - 1).bit_length())


def pieces_of(sizes: Sizes, block: int) -> int:
    """How many programs a run's gradient takes: it comes in pieces, each layer's weight and bias, and the tail."""
    ends = sorted({*sizes.weights[:-1], *sizes.biases[:-1], sizes.weights[-1]} - {sizes.weights[-2]})
    return sum(blocks_of(after - before, block) for before, after in pairwise(ends))


def aligned(size: int) -> int:
    """The next multiple of 16 values: where matrix products like their factors to begin, and kernels what they read."""
    return blocks_of(size, 16) * 16


def input_precision() -> str:
    """As the library's products have it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
