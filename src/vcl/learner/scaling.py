"""Standardisation: x -> (x - centre) / width for each column, learned at the first update and kept."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vcl.errors import VclError

FAR = 6.0
"""Values this many widths from the centre are outliers."""

MANY = 0.01
"""The share of outliers from which on an update is warned about."""

ROUNDING = 1e-12
"""The share of its largest value below which the width of a column is rounding."""

Standardize = Literal["auto"] | bool


class Scaling(NamedTuple):
    """Centre and width of each column, or of all values where there are no columns: both broadcast with [N, ...]."""

    centre: Tensor
    width: Tensor

    @property
    def whole(self) -> bool:
        """Whether all values have one centre and one width."""
        return self.centre.dim() == 0

    def __call__(self, x: Tensor) -> Tensor:
        """(x - centre) / width, in float32 or x's own precision."""
        x = x if x.is_floating_point() else x.float()
        return (x - self.centre.to(x)) / self.width.to(x)

    def inverse(self, z: Tensor) -> Tensor:
        """centre + width z."""
        return self.centre.to(z) + self.width.to(z) * z

    def outside(self, z: Tensor, names: tuple[str, ...] = ()) -> str:
        """What to say of scaled values [N, ...] that lie far outside of the first update's, if any do."""
        far = (z.abs() > FAR).float()
        shares = far.mean(0)
        if float(far.mean()) <= MANY and (z.dim() != 2 or float(shares.max()) <= max(MANY, 2 / len(z))):
            return ""
        if z.dim() != 2:
            share = float(far.mean())
            return f"{share:.1%} of the values lie more than {FAR:g} standard deviations from the first update's mean"
        worst = int(shares.argmax())
        name = names[worst] if names else f"column {worst}"
        mean = float(self.inverse(z)[:, worst].mean())
        return (
            f"{float(shares[worst]):.0%} of {name} lie more than {FAR:g} standard deviations from the first update's "
            f"mean (now {mean:.4g}; then {float(self.centre[worst]):.4g} ± {float(self.width[worst]):.4g})"
        )


def learned(x: Tensor, standardize: Standardize, images: bool = True) -> Scaling | None:
    """The scaling of the first update's inputs x [N, ...]; None where inputs stay as they are.

    ``auto`` standardises tables [N, columns], each column by itself. Images, flat ones too, and sequences have one
    centre and one width, so that a picture stays the same picture; ``images=False`` leaves images as they are. A
    constant column has width 1, and a column that is rarely different has at least a thirtieth of its range, so that no
    value becomes huge.
    """
    if standardize not in (True, False, "auto"):
        raise VclError(f"standardize is {standardize!r}; give True, False or 'auto'.")
    auto, image = standardize == "auto", is_image(x)
    if standardize is False or (auto and not (images if image else _needs(x))):
        return None
    values = x.float() if x.dtype == torch.uint8 else x.double()
    over = (0,) if x.dim() == 2 and not (auto and image) else tuple(range(x.dim()))
    centre, width = values.mean(over).double(), values.std(over, correction=0).double()
    reach = values.amax(over) - values.amin(over)
    return Scaling(centre, _width(torch.maximum(width, reach.double() / 30), values.abs().amax(over)))


def of_targets(y: Tensor) -> Scaling:
    """The scaling of targets [N] or [N, C]."""
    values = y.double()
    return Scaling(values.mean(0), _width(values.std(0, correction=0), values.abs().amax(0)))


def _width(width: Tensor, largest: Tensor) -> Tensor:
    """The width, or 1 where it is only the rounding of a constant whose size is ``largest``."""
    return torch.where(width > ROUNDING * largest, width, 1.0)


def is_image(x: Tensor) -> bool:
    """Whether inputs [N, ...] are taken for images: uint8 in more than one dimension, or values from 0 to 1."""
    if x.dim() > 2 and x.dtype == torch.uint8:
        return True
    low, high = (float(bound) for bound in torch.aminmax(x))
    return low >= 0 and high <= 1 and (x.dim() > 2 or x.shape[1] >= FLAT_IMAGE)


def _needs(x: Tensor) -> bool:
    """Whether inputs that are no images are scaled by default: tables, and what is far from mean 0 and deviation 1."""
    return x.dim() == 2 or not (abs(float(x.double().mean())) < 1 and 0.1 < float(x.double().std()) < 10)


FLAT_IMAGE = 64
"""From this many columns on, values between 0 and 1 are taken for the pixels of an image."""
