"""What people have, as tensors: arrays, tensors, DataFrames, Datasets and DataLoaders."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vcl.data import as_tensor
from vcl.errors import VclError
from vcl.learner.tables import Table, is_frame


class Given(NamedTuple):
    """The examples of an update: x [N, ...] and y as it was given, and how the columns of a frame were read."""

    x: Tensor
    y: Any
    table: Table | None = None


def examples(x: Any, y: Any, table: Table | None, warn: Any) -> Given:
    """All examples of an update, in memory; a Dataset or DataLoader gives both x and y."""
    if isinstance(x, DataLoader | Dataset):
        if y is not None:
            raise VclError(f"x is a {type(x).__name__}, which has its own labels, and y was given too; leave y out.")
        return _gathered(x)
    if y is None:
        raise VclError("y is missing; give one label or target for each example, as in update(x, y).")
    if is_frame(x):
        known = Table.of(x) if table is None else table
        return Given(known.numbers(x, warn), _values(y), known)
    return Given(rows(x, table), _values(y))


def rows(x: Any, table: Table | None = None, warn: Any = None) -> Tensor:
    """Inputs x [N, ...] without labels, on the CPU or where the tensor is."""
    if is_frame(x):
        if table is None:
            raise VclError("x is a table with named columns, but the learner was begun with arrays; give an array.")
        return table.numbers(x, warn)
    if table is not None:
        width = getattr(x, "shape", (0, 0))[1:]
        raise VclError(
            f"x is an array of shape [N, {', '.join(map(str, width))}], but the learner was begun with named columns; "
            f"give a table with the columns {', '.join(table.names)}."
        )
    found = as_tensor(x if isinstance(x, Tensor | np.ndarray) else np.asarray(x), "x")
    if found.dtype == torch.bool:
        found = found.to(torch.uint8)
    if found.dim() < 2:
        raise VclError(f"x has shape {tuple(found.shape)}; give examples as rows, [N, features] or [N, H, W].")
    if found.is_complex():
        raise VclError(f"x has dtype {found.dtype}; give real numbers.")
    _finite(found, "x")
    return found


def _finite(x: Tensor, what: str) -> None:
    if not x.is_floating_point():
        return
    bad = (~x.isfinite()).flatten(1).any(1)
    if bool(bad.any()):
        at = bad.nonzero()[:, 0].tolist()
        shown = ", ".join(map(str, at[:8])) + (f" and {len(at) - 8} more" if len(at) > 8 else "")
        raise VclError(f"{what} has NaN or infinite values in the rows {shown}; fill them or drop those rows.")


def _values(y: Any) -> Any:
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _gathered(source: DataLoader[Any] | Dataset[Any]) -> Given:
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
        xs.append(as_tensor(batch[0], "a batch's inputs"))
        ys.append(np.asarray(batch[1]))
    if not xs:
        raise VclError("the data is empty; give at least one batch.")
    return Given(rows(torch.cat(xs)), np.concatenate(ys))
