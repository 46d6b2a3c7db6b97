"""The parameters theta as one flat vector: which slice is which tensor, and to which head it belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.errors import VclError

Params = Mapping[str, Tensor]

Rows = Mapping[str, int]
"""Rows of some tensors: of each named one, those from this row on. Row 0 means the whole tensor."""

HEAD = "heads."
"""A parameter of head h is named ``heads.<h>.<rest>`` (theta^H_h); every other one is shared (theta^S)."""


def head_of(name: str) -> str | None:
    """The head that a parameter belongs to, or None for a shared one.

    >>> head_of("heads.0/1.weight"), head_of("trunk.0.weight")
    ('0/1', None)
    """
    return name[len(HEAD) :].rpartition(".")[0] if name.startswith(HEAD) else None


@lru_cache(maxsize=1024)  # called at every step
def _sizes(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return tuple(prod(shape) for shape in shapes)


class Layout(NamedTuple):
    """Names and shapes in the order of the flat vector. New heads are appended; new outputs are a head's last rows."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each tensor."""
        return _sizes(self.shapes)

    @property
    def size(self) -> int:
        """D, the length of theta."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """The named tensors in ``flat`` [..., D], as views (one concatenation in the backward pass)."""
        parts = torch.split(flat, list(self.sizes), dim=-1)
        return {
            name: part.reshape((*flat.shape[:-1], *shape))
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }

    def join(self, params: Params, lead: int = 0) -> Tensor:
        """The inverse of :meth:`split`; ``lead`` is the number of leading axes that the tensors share."""
        return torch.cat([params[name].flatten(lead) if shape else params[name].unsqueeze(-1)
                          for name, shape in zip(self.names, self.shapes, strict=True)], dim=-1)  # fmt: skip

    def touched(self, heads: Iterable[str]) -> Layout:
        """The part that data of these heads can inform: the shared parameters and those heads' own."""
        wanted = {None, *heads}
        return self._only(head_of(name) in wanted for name in self.names)

    def where(self, wanted: Callable[[str], bool]) -> Layout:
        """The part whose names satisfy ``wanted``."""
        return self._only(wanted(name) for name in self.names)

    def new(self, other: Layout) -> Layout:
        """The part of ``other`` whose names this layout does not have."""
        known = set(self.names)  # a stream of many tasks has many heads
        return other._only(name not in known for name in other.names)

    def extend(self, other: Layout) -> Layout:
        """This layout with the new part of ``other`` appended, and with the rows that known heads have in ``other``.

        Tensors keep their order. Without new rows, old slices do not move.
        """
        new, given = self.new(other), dict(zip(*other, strict=True))
        shapes = tuple(_grown(name, shape, given.get(name, shape)) for name, shape in zip(*self, strict=True))
        return Layout(self.names + new.names, shapes + new.shapes)

    def leading(self, grown: Layout) -> Tensor:
        """The positions of this layout's values in ``grown``, which extends it: the leading rows of each tensor."""
        starts = dict(zip(grown.names, accumulate(grown.sizes, initial=0), strict=False))
        pairs = ((starts[name], size) for name, size in zip(self.names, self.sizes, strict=True))
        return torch.cat([torch.arange(0), *(torch.arange(first, first + size) for first, size in pairs)])

    def mask(self, rows: Rows) -> Tensor:
        """Which values of the flat vector are in these rows: bool [D]."""
        found, start = torch.zeros(self.size, dtype=torch.bool), 0
        for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True):
            if name in rows:
                found[start + rows[name] * (size // max(1, shape[0]) if shape else size) : start + size] = True
            start += size
        return found

    def positions(self, part: Layout) -> Tensor:
        """The positions of ``part``'s values in this flat vector."""
        sizes = self.sizes
        spans = dict(zip(self.names, zip(accumulate(sizes, initial=0), sizes, strict=False), strict=True))
        starts = (spans[name] for name in part.names)
        return torch.cat([torch.arange(0), *(torch.arange(first, first + size) for first, size in starts)])

    def coordinate(self, position: int) -> str:
        """The tensor and index at a position of the flat vector.

        >>> Layout(("w", "b"), ((2, 3), ())).coordinate(4), Layout(("w", "b"), ((2, 3), ())).coordinate(6)
        ('w[1, 1]', 'b')
        """
        starts = list(accumulate(self.sizes, initial=0))
        at = next(at for at, end in enumerate(starts[1:]) if position < end)
        index: list[str] = []
        rest = position - starts[at]
        for size in reversed(self.shapes[at]):
            rest, inner = divmod(rest, size)
            index.insert(0, str(inner))
        return self.names[at] + (f"[{', '.join(index)}]" if index else "")

    def pick(self, flat: Tensor, part: Layout) -> Tensor:
        """The values of ``part`` in ``flat`` [..., D]."""
        return flat if part == self else flat[..., self.positions(part).to(flat.device)]

    def cut(self, flat: Tensor, part: Layout) -> Tensor:
        """:meth:`pick` by slices: cheap to differentiate, and without an index on the device."""
        if part == self:
            return flat
        if part.names == self.names[: len(part.names)]:
            return flat[..., : part.size]
        pieces = dict(zip(self.names, torch.split(flat, list(self.sizes), dim=-1), strict=True))
        return torch.cat([flat[..., :0], *(pieces[name] for name in part.names)], dim=-1)

    def pad(self, values: Tensor, part: Layout, fill: float = 0.0) -> Tensor:
        """The inverse of :meth:`cut`: ``values`` [..., part.size] where ``part`` is, and ``fill`` elsewhere."""
        if part == self:
            return values
        pieces = dict(zip(part.names, torch.split(values, list(part.sizes), dim=-1), strict=True))
        rest = {name: size for name, size in zip(self.names, self.sizes, strict=True) if name not in pieces}
        pieces |= {name: values.new_full((*values.shape[:-1], size), fill) for name, size in rest.items()}
        return torch.cat([values[..., :0], *(pieces[name] for name in self.names)], dim=-1)

    def put(self, flat: Tensor, part: Layout, values: Tensor) -> Tensor:
        """``flat`` with the values of ``part`` replaced; the others keep their bits."""
        return values if part == self else flat.index_copy(-1, self.positions(part).to(flat.device), values)

    def append(self, flat: Tensor, grown: Layout, values: Tensor) -> Tensor:
        """``flat`` [R, D] extended by ``grown``, whose new tensors and rows come from ``values`` [1, grown.size]."""
        known = dict(zip(self.names, torch.split(flat, list(self.sizes), dim=-1), strict=True))
        given = dict(zip(grown.names, torch.split(values, list(grown.sizes), dim=-1), strict=True))
        pieces = []
        for name in self.extend(grown).names:
            old = known.get(name, flat[:, :0])
            rest = given[name][:, old.shape[1] :] if name in given else values[:, :0]
            pieces += [old, rest.to(flat).expand(len(flat), -1)]
        return torch.cat([flat[:, :0], *pieces], dim=-1)

    def _only(self, keep: Iterable[bool]) -> Layout:
        pairs = [pair for pair, kept in zip(zip(self.names, self.shapes, strict=True), keep, strict=True) if kept]
        return Layout(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))


def with_rows(old: Tensor, first: int, new: Tensor) -> Tensor:
    """``old`` [R, rows, ...] with the values of ``new`` from row ``first`` on; for row 0, of any shape, ``new``."""
    return new if first == 0 else torch.cat([old[:, :first], new[:, first:]], dim=1)


def _grown(name: str, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The new shape; VclError unless it is the old one or that of a head with more rows."""
    more = head_of(name) is not None and old[1:] == new[1:] and len(old) == len(new) and old[:1] <= new[:1]
    if old != new and not more:
        raise VclError(
            f"{name!r} has shape {old} and cannot become {new}; a head may only get more outputs, as rows of its "
            "tensors: use a new name."
        )
    return new
