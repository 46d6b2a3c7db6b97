"""Kernels for CUDA devices, in Triton: what torch would do in many passes over memory, in one.

Nothing here is needed: everything has a plain form in torch, which the tests compare it with. The work is the same,
element by element; only sums are taken in another order.
"""

from vcl.ops.kernels.base import evenly_strided, stride_of_draws, triton, usable
from vcl.ops.kernels.inputs import batch, normal
from vcl.ops.kernels.parameters import adam, adam_scales, add_path, take_quadratic

__all__ = [
    "adam",
    "adam_scales",
    "add_path",
    "batch",
    "evenly_strided",
    "normal",
    "stride_of_draws",
    "take_quadratic",
    "triton",
    "usable",
]
