"""Everything a learner knows after an update, as one value: an update makes a new one or leaves the old."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from vcl.beliefs.factors import DiagonalFactor
from vcl.errors import VclError
from vcl.learner.record import Update
from vcl.learner.scaling import Scaling
from vcl.learner.tables import Table
from vcl.recursion import State

Kind = Literal["numbers", "pixels", "tokens"]


class Inputs(NamedTuple):
    """The inputs of the first update: the shape of an example, and whether they are numbers, pixels or tokens."""

    shape: tuple[int, ...]
    kind: Kind
    dtype: str
    grey: bool = False
    """Whether the numbers of the first update were from 0 to 1, as grey values are."""

    @classmethod
    def of(cls, x: Tensor, net: object) -> Inputs:
        """uint8 images are pixels; whole numbers are tokens if the network has an embedding, and else numbers."""
        embeds = isinstance(net, nn.Module) and any(isinstance(part, nn.Embedding) for part in net.modules())
        kind: Kind = "numbers"
        if not x.is_floating_point():
            kind = "tokens" if embeds else "pixels" if x.dtype == torch.uint8 and x.dim() > 2 else "numbers"
        grey = kind == "numbers" and bool((x >= 0).all() & (x <= 1).all())
        return cls(tuple(x.shape[1:]), kind, str(x.dtype).removeprefix("torch."), grey)

    def check(self, x: Tensor, net: object) -> None:
        """Raise VclError unless x [N, ...] is of this kind and shape."""
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

    def tensor(self, x: Tensor, scaling: Scaling | None) -> Tensor:
        """x as the network takes it: pixels and tokens as they are, numbers scaled and in float32."""
        if self.kind == "tokens":
            return x.long()
        if self.kind == "pixels":
            return x
        return (x if scaling is None else scaling(x.double())).float()


class TaskRecord(NamedTuple):
    """A task that was learned: its head and how much data it had."""

    head: str
    examples: int
    updates: int


class Knowledge(NamedTuple):
    """The state of the recursion, and what is needed to read inputs and to name outputs."""

    state: State[Any]
    inputs: Inputs
    outputs: Mapping[str, Any]
    """By head: the classes, or the scaling of targets."""
    tasks: Mapping[str, TaskRecord]
    scaling: Scaling | None
    table: Table | None
    noise: Any
    sites: Mapping[str, DiagonalFactor]
    """By task: what its data contributed, where the learner keeps it so that it can be forgotten."""
    seen: Mapping[str, str]
    """Digests of the data of each update, and its task."""
    history: tuple[Update, ...]


def digest_of(x: Tensor, y: np.ndarray) -> str:
    """A checksum of an update's data, to notice data that is given twice."""
    found = blake2b(digest_size=12)
    for each in (x.detach().cpu().contiguous().numpy(), np.ascontiguousarray(y)):
        found.update(repr((each.shape, each.dtype.str)).encode())
        found.update(each.tobytes())
    return found.hexdigest()
