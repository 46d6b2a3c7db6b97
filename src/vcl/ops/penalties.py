"""The gradient of a diagonal quadratic and the path integral of SI: in torch, or as one kernel."""

from __future__ import annotations

from torch import Tensor

from vcl.ops import kernels


def pull_quadratic(theta: Tensor, centre: Tensor, precision: Tensor, g: Tensor) -> Tensor:
    """1/2 sum_d precision (theta - centre)^2 [R, ...]; subtracts precision (theta - centre) from g in place.

    theta and g [R, ..., D]; centre and precision have the same shape or broadcast.
    """
    tensors = (theta, centre, precision, g)
    if _by_kernel(*tensors):
        return kernels.take_quadratic(*tensors)
    shift = theta - centre
    pull = precision * shift
    g.sub_(pull)
    return 0.5 * shift.mul_(pull).sum(-1)


def add_path(omega: Tensor, before: Tensor, theta: Tensor, g: Tensor, centre: Tensor, precision: Tensor) -> None:
    """In place: omega += (g + precision (before - centre)) (theta - before), and then before = theta; all [R, D]."""
    tensors = (omega, before, theta, g, centre, precision)
    if _by_kernel(*tensors):
        kernels.add_path(*tensors)
        return
    slope = g + precision * (before - centre)
    omega.addcmul_(slope, theta - before)
    before.copy_(theta)


def _by_kernel(*tensors: Tensor) -> bool:
    """Whether each run's values are contiguous on a GPU; a prior may be one number for all coordinates."""
    return all(part.dim() == 2 and part.stride(-1) == 1 and kernels.usable(part) for part in tensors)
