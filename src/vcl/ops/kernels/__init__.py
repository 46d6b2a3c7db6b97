"""Triton kernels for CUDA devices: one pass over memory where torch needs several.

They are optional: each has a plain torch form, and tests compare the two. Results agree element by element, up to the
order of sums.
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
