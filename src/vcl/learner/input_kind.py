"""What the inputs of a learner are: the shape of an example, and numbers, pixels or tokens."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vcl.errors import VclError
from vcl.learner.scaling import FLAT_IMAGE, Scaling
from vcl.learner.warned import warn_user

Kind = Literal["numbers", "pixels", "tokens"]


class Inputs(NamedTuple):
    """The inputs of the first update: the shape of an example, and whether they are numbers, pixels or tokens."""

    shape: tuple[int, ...]
    kind: Kind
    dtype: str
    grey: bool = False
    """Whether the numbers of the first update were from 0 to 1, as grey values are, and keep their proportions."""

    @classmethod
    def of(cls, x: Tensor, net: object) -> Inputs:
        """uint8 images are pixels; whole numbers are tokens if the network has an embedding, and else numbers."""
        embeds = isinstance(net, nn.Module) and any(isinstance(part, nn.Embedding) for part in net.modules())
        kind: Kind = "numbers"
        if not x.is_floating_point():
            kind = "tokens" if embeds else "pixels" if x.dtype == torch.uint8 and x.dim() > 2 else "numbers"
        grey = kind == "numbers" and bool(x.min() >= 0) and bool(x.max() <= 1)
        return cls(tuple(x.shape[1:]), kind, str(x.dtype).removeprefix("torch."), grey)

    @property
    def _image(self) -> bool:
        """Whether numbers from 0 to 1 of this shape are taken for pixels, which are not scaled by default."""
        return len(self.shape) > 1 or self.shape[0] >= FLAT_IMAGE

    def check(self, x: Tensor, net: object) -> None:
        """Raise VclError unless x [N, ...] is of this kind and shape; warn of pixels far beyond the first ones."""
        here = Inputs.of(x, net)
        if here.shape != self.shape:
            raise VclError(
                f"examples have shape {here.shape}, and those of the first update had {self.shape}; give the same "
                "columns or image size."
            )
        if here.kind != self.kind:
            raise VclError(
                f"inputs have dtype {here.dtype}, which is read as {here.kind}, and the first update had {self.dtype}, "
                f"{self.kind}; convert them as then."
            )
        if self.grey and self._image and not here.grey:
            _warn_beyond(x)

    def tensor(self, x: Tensor, scaling: Scaling | None) -> Tensor:
        """x as the network takes it: tokens as they are, pixels and numbers scaled and in float32.

        Pixels without a scaling stay uint8: the engines divide them by 255.
        """
        if self.kind == "tokens":
            return x.long()
        if self.kind == "pixels":
            return x if scaling is None else scaling(x)
        return (x if scaling is None else scaling(x.double())).float()


def _warn_beyond(x: Tensor) -> None:
    """Warn of values further from [0, 1] than it is wide: noise and augmentation stay nearer."""
    low, high = (float(bound) for bound in torch.aminmax(x))
    if low < -1 or high > 2:
        warn_user(
            f"the values of x go from {low:.4g} to {high:.4g}, and those of the first update went from 0 to 1; bring "
            "them to the same scale, as in x / 255"
        )
