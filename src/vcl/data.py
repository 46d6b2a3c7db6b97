"""Datasets D_t for R runs at once. Each example records its task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.ops.rows import as_input


class Source(NamedTuple):
    """The task of an example, and the network head that predicts it."""

    task: str
    head: str


class Data(NamedTuple):
    """N examples for each of R runs: x [R, N, ...], y [R, N, ...], source [R, N], extra [R, N, ...].

    Runs with the same examples share memory: a view with stride 0 along the first axis. Images stay uint8 until a batch
    is taken. Labels are int64 [R, N]; :func:`dataset` and :func:`vcl.learn` convert them (:func:`as_targets`).
    Regression targets are floating-point, [R, N] or [R, N, C]. ``source`` indexes ``sources``, so one coreset can hold
    points of several tasks. ``extra`` holds further columns by name, such as the outputs of an earlier network. They
    stay with their examples, and no model reads them.
    """

    x: Tensor
    y: Tensor
    source: Tensor
    sources: tuple[Source, ...]
    extra: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def runs(self) -> int:
        """R."""
        return self.x.shape[0]

    @property
    def size(self) -> int:
        """N, the number of examples of one run."""
        return self.x.shape[1]

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of these examples, each once, in order of appearance."""
        return tuple(dict.fromkeys(source.head for source in self.sources))

    def take(self, index: Tensor) -> Data:
        """Copies of the examples at ``index`` [R, n]; sources without examples are dropped."""
        runs = torch.arange(self.runs, device=self.x.device)[:, None]
        index = index.to(self.x.device)
        return _tidy(self.map(lambda part: part[runs, index]))

    def divide(self, index: Tensor) -> tuple[Data, Data]:
        """(the examples at ``index`` [R, n], without repeats within a run; all the others in order)."""
        others = self._others(index.cpu())
        if index.shape[1] == 0:
            return self.empty(), self
        if index.shape[1] == self.size:
            return self.take(index), self.empty()
        return self.take(index), self.take(others.nonzero()[:, 1].view(self.runs, -1))

    def _others(self, index: Tensor) -> Tensor:
        """A mask [R, N] of the examples not at ``index``; VclError if that repeats an example."""
        if index.dim() != 2 or index.shape[0] != self.runs or index.dtype != torch.int64:
            raise VclError(
                f"examples are chosen by an index of shape {tuple(index.shape)} and dtype {index.dtype}; give one row "
                f"of positions (int64) for each of {self.runs} runs."
            )
        if index.numel() and not (int(index.min()) >= 0 and int(index.max()) < self.size):
            raise VclError(
                f"examples are chosen at {int(index.min())} to {int(index.max())}, but there are {self.size}, counted "
                "from 0; choose among these."
            )
        others = torch.ones(self.runs, self.size, dtype=torch.bool).scatter_(1, index, False)
        if int(others.sum()) != self.runs * (self.size - index.shape[1]):
            raise VclError(
                f"{index.shape[1]} of {self.size} examples are chosen, some of them twice in one run; give different "
                "positions."
            )
        return others

    def empty(self) -> Data:
        """The same columns with no examples."""
        return self.map(lambda part: part[:, :0])._replace(sources=())

    def where(self, keep: Iterable[Source]) -> Data:
        """The examples of these sources; every run must have equally many."""
        kept = set(keep)
        wanted = torch.tensor([source in kept for source in self.sources], dtype=torch.bool)
        mask = wanted[self.source.cpu()] if self.sources else torch.zeros(self.runs, self.size, dtype=torch.bool)
        counts = mask.sum(1)
        if int(counts.min()) != int(counts.max()):
            raise VclError(f"runs hold different numbers of these examples ({counts.tolist()}); stack equal ones.")
        return self.take(mask.nonzero()[:, 1].view(self.runs, -1))

    def select(self, runs: Sequence[int]) -> Data:
        """The selected runs, by position; shared examples stay shared."""
        kept = torch.as_tensor(runs, dtype=torch.int64)
        return self.map(lambda part: _of_runs(part, kept))

    def to(self, device: torch.device | str) -> Data:
        """The data on ``device``; shared examples stay shared."""
        return self.map(lambda part: _once(part, lambda part: part.to(device)))

    def map(self, change: Callable[[Tensor], Tensor]) -> Data:
        """The data with ``change`` applied to every column [R, N, ...]."""
        extra = {name: change(part) for name, part in self.extra.items()}
        return Data(change(self.x), change(self.y), change(self.source), self.sources, extra)


Array = Tensor | np.ndarray
"""Accepted types of examples and labels."""


def as_tensor(values: Array, what: str) -> Tensor:
    """An array of numbers as a detached tensor, sharing memory where possible; VclError if it is not numeric.

    Data is never differentiated.
    """
    refuse_hidden(what, values)
    try:
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise VclError(f"{what} cannot be read as numbers ({error}); give a numeric array or a tensor.") from error


def refuse_hidden(what: str, values: Any) -> None:
    """Raise VclError for values that an array would not show as they are: masked ones, and sparse tensors."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        rows = np.flatnonzero(np.ma.getmaskarray(np.atleast_1d(values)).any(tuple(range(1, values.ndim))))
        raise VclError(
            f"{what} has masked values in {len(rows)} rows, the first at row {rows[0]}; fill them, as filled(0) does, "
            "or drop those rows."
        )
    if isinstance(values, Tensor) and values.layout != torch.strided:
        layout = str(values.layout).removeprefix("torch.")
        raise VclError(f"{what} is a tensor of the layout {layout}; give what to_dense() makes of it.")


def dataset(
    x: Array,
    y: Array,
    task: str = "task",
    head: str = "all",
    runs: int = 1,
    extra: Mapping[str, Array] = MappingProxyType({}),
) -> Data:
    """The same examples x [N, ...], y [N, ...] for every run. Checks that all are finite, one label per input.

    Both may be tensors or numpy arrays. Labels may be integers of any dtype, [N] or [N, 1]; they become int64 [N].
    ``extra`` holds further columns, each [N, ...].
    """
    x, y = as_tensor(x, f"task {task!r}: x"), as_tensor(y, f"task {task!r}: y")
    check_arrays(x, y, f"task {task!r}")
    y = as_targets(y, 1)
    columns = {name: as_tensor(values, f"task {task!r}: {name}") for name, values in extra.items()}
    for name, values in columns.items():
        if values.dim() < 1 or values.shape[0] != x.shape[0]:
            raise VclError(
                f"task {task!r}: {x.shape[0]} inputs but {name} of shape {tuple(values.shape)}; give one row per input."
            )
    source = torch.zeros((), dtype=torch.int64, device=x.device).expand(runs, x.shape[0])
    shared = {name: values.expand(runs, *values.shape) for name, values in columns.items()}
    return Data(x.expand(runs, *x.shape), y.expand(runs, *y.shape), source, (Source(task, head),), shared)


def unlabelled(x: Array, task: str = "task", head: str = "all", runs: int = 1) -> Data:
    """Examples x [N, ...] without labels, for generative models; y is 0 and never read."""
    x = as_tensor(x, f"task {task!r}: x")
    return dataset(x, torch.zeros((), dtype=torch.int64, device=x.device).expand(x.shape[:1]), task, head, runs)


def check_arrays(x: Tensor, y: Tensor, what: str) -> None:
    """Raise VclError unless x [N, ...] and y [N, ...] are valid training data."""
    if x.dim() < 2:
        raise VclError(f"{what}: x has shape {tuple(x.shape)}; give examples as rows, [N, features] or [N, H, W].")
    if 0 in x.shape[1:]:
        raise VclError(f"{what}: x has shape {tuple(x.shape)}, so an example has no values; give at least one feature.")
    if y.dim() < 1 or x.shape[0] != y.shape[0]:
        raise VclError(f"{what}: {x.shape[0]} inputs but labels of shape {tuple(y.shape)}; give one label per input.")
    for name, values in (("x", x), ("y", y)):
        if values.is_complex() or values.dtype == torch.bool:
            raise VclError(f"{what}: {name} has dtype {values.dtype}; give integers or floating-point numbers.")
        if values.is_floating_point() and not bool(values.isfinite().all()):
            bad = int((~values.isfinite()).sum())
            raise VclError(f"{what}: {name} holds {bad} NaN or infinite values; clean or drop those examples first.")
    if y.dtype == torch.uint64 and bool((y.long() < 0).any()):
        raise VclError(f"{what}: y holds whole numbers from 2^63 on; relabel the classes from 0.")


def as_targets(y: Tensor, lead: int) -> Tensor:
    """Integers of any dtype as int64, and [..., N, 1] as [..., N]; ``lead`` is the number of axes up to N.

    Labels are converted only here, because arithmetic in a small or unsigned dtype wraps silently. Floating-point
    regression targets stay as they are. So do booleans, which could mean classes or a mask: functions that take labels
    refuse them (:func:`as_labels`).
    """
    if y.dtype not in WHOLE:
        return y
    return (y.squeeze(-1) if y.dim() == lead + 1 and y.shape[-1] == 1 else y).long()


def as_labels(y: Tensor, lead: int, what: str = "the labels") -> Tensor:
    """:func:`as_targets` for labels: int64 with at most ``lead`` axes; VclError for anything else."""
    y = as_targets(y, lead)
    if y.dtype != torch.int64:
        raise VclError(f"{what} have dtype {y.dtype}; give whole numbers of an integer dtype, such as y.long().")
    if y.dim() > lead:
        raise VclError(f"{what} have shape {tuple(y.shape)}; give one whole number per example.")
    return y


def labelled(data: Data) -> Data:
    """The data with labels as int64 [R, N]; shared labels stay shared."""
    return data._replace(y=_once(data.y, lambda y: as_targets(y, 2)))


WHOLE = (
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64
)  # fmt: skip
"""The integer dtypes."""


def concat(a: Data, b: Data) -> Data:
    """All examples of ``a``, then all of ``b``; columns, dtypes and shapes must match."""
    if a.size == 0 or b.size == 0:
        return a if b.size == 0 else b
    if set(a.extra) != set(b.extra):
        raise VclError(
            f"cannot join examples with the columns {sorted(a.extra)} and examples with {sorted(b.extra)} beside x and "
            "y; give every task the same extra columns."
        )
    columns = [(name, a.extra[name], b.extra[name]) for name in a.extra]
    for name, left, right in (("x", a.x, b.x), ("y", a.y, b.y), *columns):
        if left.dtype != right.dtype or left.shape[2:] != right.shape[2:]:
            raise VclError(
                f"cannot join examples whose {name} is {left.dtype} {tuple(left.shape[2:])} with {right.dtype} "
                f"{tuple(right.shape[2:])}; give every task the same dtype and shape."
            )
    sources = tuple(dict.fromkeys(a.sources + b.sources))
    moved = torch.tensor([sources.index(source) for source in b.sources], device=b.source.device)
    source = torch.cat([a.source, moved[b.source]], dim=1)
    extra = {name: torch.cat([left, right], dim=1) for name, left, right in columns}
    return Data(torch.cat([a.x, b.x], dim=1), torch.cat([a.y, b.y], dim=1), source, sources, extra)


def weight_of_each(batch: int, total: int) -> float:
    """N/B, the weight of each example of a batch."""
    return total / batch


def in_precision(data: Data, dtype: torch.dtype) -> Data:
    """The data with floating-point columns converted to ``dtype``; shared columns stay shared.

    Thus numpy's float64 arrays can train a float32 network. Integers (pixels, tokens, labels) stay as they are.
    """

    def changed(part: Tensor) -> Tensor:
        other = part.is_floating_point() and part.dtype != dtype
        return (_once(part, lambda part: part.to(dtype)) if other else part).detach()

    return data.map(changed)


def ready(data: Data) -> Data:
    """The data with inputs as the network sees them; shared examples stay shared."""
    return data._replace(x=_once(data.x, as_input))


def _tidy(data: Data) -> Data:
    present = torch.unique(data.source).tolist()
    if len(present) == len(data.sources):
        return data
    place = torch.zeros(len(data.sources), dtype=torch.int64, device=data.source.device)
    for new, old in enumerate(present):
        place[old] = new
    return data._replace(source=place[data.source], sources=tuple(data.sources[old] for old in present))


def _of_runs(part: Tensor, runs: Tensor) -> Tensor:
    """``part`` [R, ...] of the selected runs; a view if all runs share the values."""
    return part[:1].expand(len(runs), *part.shape[1:]) if part.stride(0) == 0 else part[runs.to(part.device)]


def _once(part: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """``change`` applied to values [R, ...]; shared values are changed once and shared again."""
    if part.stride(0) != 0 or not part.numel():
        return change(part)
    one = change(part[:1])
    return one.expand(part.shape[0], *one.shape[1:])
