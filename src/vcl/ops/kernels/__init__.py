"""Kernels for CUDA devices, in Triton: what torch would do in many passes over memory, in one.

Nothing here is needed: each kernel has a plain form in torch next to where it is used, which the tests compare it with.
The work is the same, element by element; only sums are taken in another order.
"""

from vcl.ops.kernels.base import evenly_apart, triton, usable
from vcl.ops.kernels.inputs import batch, normal
from vcl.ops.kernels.layers import (
    activate,
    activate_gradient,
    bernoulli,
    bernoulli_gradient,
    encode,
    encode_gradient,
    local,
    local_gradient,
)
from vcl.ops.kernels.parameters import adam, adam_scales, add_path, draw, draw_gradient, take_kl, take_quadratic

__all__ = [
    "activate",
    "activate_gradient",
    "adam",
    "adam_scales",
    "add_path",
    "batch",
    "bernoulli",
    "bernoulli_gradient",
    "draw",
    "draw_gradient",
    "encode",
    "encode_gradient",
    "evenly_apart",
    "local",
    "local_gradient",
    "normal",
    "take_kl",
    "take_quadratic",
    "triton",
    "usable",
]
