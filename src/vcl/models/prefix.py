"""The frozen first part of a module, whose features are computed once instead of at every step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vcl.data import Array, Data, as_tensor
from vcl.engines.size import values_made
from vcl.engines.structure import ROW_WISE
from vcl.errors import VclError
from vcl.models.fixed import Fixed, digest
from vcl.models.sound import refuse_unsound
from vcl.ops.devices import limits
from vcl.ops.rows import own_input


@final
class Prefix:
    """A frozen module as a function of examples, without gradients; it keeps a copy of the module's values."""

    def __init__(self, module: nn.Module) -> None:
        names = [name for name, _ in module.named_parameters()]
        refuse_unsound(module, names)
        self.fixed = Fixed(module, names)

    def digest(self) -> str:
        """A checksum of its values: another backbone has another."""
        return digest(self.fixed.values)

    @torch.no_grad()
    def features(self, x: Array, like: Tensor) -> Tensor:
        """Features [N, ...] of inputs x [N, ...], on the device and in the dtype of ``like``.

        Inputs are moved and computed in blocks that the device's memory allows.
        """
        x = as_tensor(x, "x")
        if not len(x):
            raise VclError("there are no inputs to compute features of; give at least one example.")
        most = limits(like.device)
        size = max(1, min(most.rows, most.values // self._each(x, like)))
        return torch.cat([self._of(part, like) for part in torch.split(x, size)])

    def over(self, data: Data, like: Tensor) -> Data:
        """``data`` with features in the place of its inputs; runs that share examples share their features."""
        if not data.size:
            return data
        if data.x.stride(0) == 0 or data.runs == 1:
            one = self.features(data.x[0], like)
            return data._replace(x=one.unsqueeze(0).expand(data.runs, *one.shape))
        found = self.features(data.x.flatten(0, 1), like)
        return data._replace(x=found.view(data.runs, data.size, *found.shape[1:]))

    def _of(self, x: Tensor, like: Tensor) -> Tensor:
        x = own_input(x.to(like.device))
        x = x.to(like.dtype) if x.is_floating_point() else x
        found: Tensor = functional_call(self.fixed.module, dict(self.fixed.at(like)), (x,))
        return found

    def _each(self, x: Tensor, like: Tensor) -> int:
        """The values that one more example makes; what is made once, such as views of weights, does not count."""
        self.fixed.at(like)  # made once
        one, two = (values_made(lambda n=n: self._of(torch.cat([x[:1]] * n), like)) for n in (1, 2))  # type: ignore[misc]
        return max(1, two - one)


class Split(NamedTuple):
    """A module in two parts: module(x) = rest(prefix(x)).

    Parameters of ``rest`` keep their names. ``frozen`` are its own frozen ones.
    """

    prefix: Prefix | None
    """None if nothing can be computed once."""
    rest: nn.Module
    frozen: tuple[str, ...]


def split_prefix(module: nn.Module, frozen: Collection[str]) -> Split:
    """``module`` cut behind its frozen first part, where that is exact.

    A wholly frozen module is all prefix. Of an ``nn.Sequential``, also nested, it is the leading children that are
    wholly frozen. Code of other modules is not cut.
    """
    refuse_unsound(module, frozen)
    every = dict(module.named_parameters())
    held = {id(every[name]) for name in frozen if name in every}
    if every and len(held) == len(every):
        return Split(Prefix(module), nn.Flatten(), ())
    front, rest = _cut(module, held)
    if not any(id(value) in held for part in front for value in part.parameters()):
        return Split(None, module, tuple(frozen))
    steps = OrderedDict(rest)
    if _flat(front):  # a chain of layers begins with it, and here it changes nothing
        name = next(name for name in ("flatten", "flatten_", "flatten__") if name not in steps)
        steps = OrderedDict([(name, nn.Flatten()), *rest])
    kept = nn.Sequential(steps)
    left = {name for name, _ in kept.named_parameters()}
    return Split(Prefix(nn.Sequential(*front)), kept, tuple(name for name in frozen if name in left))


Named = list[tuple[str, nn.Module]]


def _cut(module: nn.Module, held: set[int]) -> tuple[list[nn.Module], Named]:
    """The steps of the frozen first part, and the rest under its own names."""
    if type(module) is not nn.Sequential or module._forward_hooks or module._forward_pre_hooks:
        return [], list(module.named_children())
    front: list[nn.Module] = []
    children: Named = list(module._modules.items())  # with a child that stands twice
    for place, (name, child) in enumerate(children):
        if all(id(value) in held for value in child.parameters()):
            front.append(child)
            continue
        within, inner = _cut(child, held)
        last = (name, nn.Sequential(OrderedDict(inner))) if within else (name, child)
        return [*front, *within], [last, *children[place + 1 :]]
    return front, []


def _flat(steps: list[nn.Module]) -> bool:
    """Whether the steps are known to give one row of values per example."""
    inner = [layer for step in steps for layer in _layers(step)]
    flat = False
    for layer in inner:
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            flat = True
        else:
            flat = flat and type(layer) in ROW_WISE
    return flat


def _layers(step: nn.Module) -> list[nn.Module]:
    if type(step) is nn.Sequential:
        return [layer for child in step._modules.values() if child is not None for layer in _layers(child)]
    return [step]
