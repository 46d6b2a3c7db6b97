"""What people have, as tensors: arrays, tensors, DataFrames, Datasets and DataLoaders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vcl.data import as_tensor, refuse_hidden
from vcl.errors import VclError
from vcl.learner.frames import is_frame, size_of
from vcl.learner.tables import Table


class Given(NamedTuple):
    """The examples of an update: x [N, ...] and y as it was given, and how the columns of a frame were read."""

    x: Tensor
    y: Any
    table: Table | None = None


def examples(x: Any, y: Any, table: Table | None, warn: Any, first: bool) -> Given:
    """All examples of an update, in memory; a Dataset or DataLoader gives both x and y.

    The first update says whether inputs are arrays, or tables with the columns of ``table``.
    """
    if isinstance(x, DataLoader | Dataset):
        if y is not None:
            raise VclError(f"x is a {type(x).__name__}, which has its own labels, and y was given too; leave y out.")
        return _gathered(x, table)
    if y is None:
        raise VclError("y is missing; give one label or target for each example, as in update(x, y).")
    if x is None:
        raise VclError("x is missing; give the inputs as an array, a tensor, a table, a Dataset or a DataLoader.")
    if is_frame(x) and first:
        if not size_of(x):
            raise VclError("the data is empty; give at least one example.")
        table = Table.of(x)
    return Given(rows(x, table, warn), _values(y), table)


def rows(x: Any, table: Table | None = None, warn: Any = None) -> Tensor:
    """Inputs x [N, ...] without labels, on the CPU or where the tensor is."""
    if is_frame(x):
        if table is None:
            raise VclError("x is a table with named columns, but the learner was begun with arrays; give an array.")
        return table.numbers(x, warn)
    if isinstance(x, DataLoader | Dataset):
        raise VclError(
            f"x is a {type(x).__name__}; to predict, give an array or a tensor of inputs, as in "
            "torch.stack([x for x, y in dataset])."
        )
    if table is not None:
        width = getattr(x, "shape", (0, 0))[1:]
        raise VclError(
            f"x is an array of shape [N, {', '.join(map(str, width))}], but the learner was begun with named columns; "
            f"give a table with the columns {', '.join(table.names)}."
        )
    found = as_tensor(_plain(x), "x")
    if found.dtype == torch.bool:
        found = found.float()
    if found.dtype in (torch.uint16, torch.uint32, torch.uint64):
        large = found.dtype == torch.uint64 and bool((found.long() < 0).any())  # from 2^63 on
        found = found.double() if large else found.long()
    if found.dim() < 2:
        raise VclError(f"x has shape {tuple(found.shape)}; give examples as rows, [N, features] or [N, H, W].")
    if 0 in found.shape[1:]:
        raise VclError(f"x has shape {tuple(found.shape)}, so an example has no values; give at least one column.")
    if found.is_complex():
        raise VclError(f"x has dtype {found.dtype}; give real numbers.")
    _finite(found, "x")
    return found


def _plain(x: Any) -> Tensor | np.ndarray:
    """A tensor, or an array that torch can take: of numbers, in the machine's byte order, and writable."""
    refuse_hidden("x", x)
    if isinstance(x, Tensor):
        return x
    if isinstance(x, list | tuple) and x and all(isinstance(each, Tensor) for each in x):
        return torch.stack([each.detach() for each in x])
    try:
        found = np.asarray(x)
    except ValueError as error:
        raise VclError("x has rows of different lengths; give each example the same number of values.") from error
    if found.dtype == object and found.ndim:
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise VclError(
                f"x is an array of objects, and {error}; give numbers, or a table with named columns (a DataFrame, or "
                "a dict of columns), in which texts are categories."
            ) from error
    if found.dtype.kind not in "iufbc":
        what = f"x is a {type(x).__name__}" if not found.ndim else f"x has dtype {found.dtype}"
        raise VclError(
            f"{what}; give numbers as an array or tensor [N, ...], or a table with named columns (a DataFrame, or a "
            "dict of columns), in which texts are categories."
        )
    kind = np.float64 if found.dtype.kind == "f" and found.dtype.itemsize > 8 else found.dtype.newbyteorder("=")
    found = found.astype(kind, copy=False)
    return found if found.flags.writeable and min(found.strides, default=0) >= 0 else found.copy()


def _finite(x: Tensor, what: str) -> None:
    if not x.is_floating_point():
        return
    bad = (~x.isfinite()).flatten(1).any(1)
    if bool(bad.any()):
        raise VclError(
            f"{what} has NaN or infinite values in the rows {some_rows(bad.nonzero()[:, 0].tolist())}; fill them or "
            "drop those rows."
        )


def some_rows(at: Sequence[int], most: int = 8) -> str:
    """The first of these rows, readable in a message."""
    return ", ".join(map(str, at[:most])) + (f" and {len(at) - most} more" if len(at) > most else "")


def _values(y: Any) -> Any:
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _gathered(source: DataLoader[Any] | Dataset[Any], table: Table | None) -> Given:
    """All pairs of a Dataset or DataLoader, stacked: a fit goes over the data many times, so it is kept in memory."""
    if isinstance(source, Dataset) and not isinstance(source, Sized):
        raise VclError("the Dataset has no length; wrap it in a DataLoader that ends.")
    loader: Iterable[Any] = source if isinstance(source, DataLoader) else DataLoader(source, batch_size=256)
    xs, ys = [], []
    for batch in loader:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise VclError(
                f"a batch is a {type(batch).__name__} of {len(batch) if isinstance(batch, Sized) else 'no'} parts; "
                "give pairs of inputs and labels."
            )
        xs.append(rows(batch[0], table))
        ys.append(batch[1].detach().cpu().numpy() if isinstance(batch[1], Tensor) else np.asarray(batch[1]))
    if not xs:
        raise VclError("the data is empty; give at least one batch.")
    shapes = list(dict.fromkeys(tuple(x.shape[1:]) for x in xs))
    if len(shapes) > 1:
        raise VclError(f"the examples have different shapes ({shapes[0]} and {shapes[1]}); give all the same.")
    return Given(torch.cat(xs), np.concatenate(ys))
