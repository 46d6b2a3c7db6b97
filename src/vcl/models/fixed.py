"""The values of a module that no fit moves: frozen parameters, and buffers beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from hashlib import blake2b
from typing import final

import torch
from torch import Tensor, nn

from vcl.beliefs.layout import Params
from vcl.errors import VclError, unknown

PIECE = 2**20
"""Values that a digest reads at once."""


@final
class Fixed:
    """A private copy of a module with its frozen values, and these values on any device and in any dtype.

    Parameters that are not frozen have only their shapes in the copy (device ``meta``).
    """

    def __init__(self, module: nn.Module, frozen: Collection[str]) -> None:
        known = dict(module.named_parameters())
        for name in frozen:
            if name not in known:
                raise unknown("parameter to freeze", name, known)
        free = {name: value for name, value in known.items() if name not in set(frozen)}
        memo = {id(value): nn.Parameter(value.detach().to("meta"), False) for value in free.values()}
        try:
            self.module = deepcopy(module, memo).requires_grad_(False)
        except RuntimeError as error:
            raise VclError(
                f"the module cannot be copied ({error}); give one whose parameters are plain nn.Parameter."
            ) from error
        buffers = dict(self.module.named_buffers())
        self.values = {name: self.module.get_parameter(name) for name in known if name not in free} | buffers
        self.moved: dict[tuple[torch.device, torch.dtype], Params] = {}

    def at(self, like: Tensor) -> Params:
        """The values on the device of ``like``, floats in its dtype; each pair of both is made once."""
        where = like.device, like.dtype
        if where not in self.moved:
            self.moved[where] = {
                name: value.detach().to(like.device, like.dtype if value.is_floating_point() else None)
                for name, value in self.values.items()
            }
        return self.moved[where]


def digest(values: Mapping[str, Tensor]) -> str:
    """A checksum of names, shapes and values in float64, the same on every device and in every wider dtype."""
    found = blake2b(digest_size=16)
    for name, value in values.items():
        found.update(repr((name, tuple(value.shape))).encode())
        for piece in _pieces(value.detach()):
            found.update(piece.to("cpu", torch.float64).contiguous().numpy().tobytes())
    return found.hexdigest()


def _pieces(value: Tensor) -> Iterable[Tensor]:
    """The values in order, a bounded number at once."""
    if value.is_complex():
        value = torch.view_as_real(value)
    return torch.split(value.reshape(-1), PIECE) if value.numel() else ()
