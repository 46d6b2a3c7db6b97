"""Tables of any library as arrays by the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from vcl.errors import VclError


def is_frame(x: Any) -> bool:
    """Whether ``x`` has named columns: a DataFrame of any library, or a mapping from names to columns."""
    return isinstance(x, Mapping) or (hasattr(x, "columns") and hasattr(x, "__getitem__"))


def size_of(frame: Any) -> int:
    """The number of rows."""
    return max((len(values) for values in columns_of(frame).values()), default=0)


def names_of(frame: Any) -> list[Any]:
    """The names of the columns; VclError for a table whose rows are still to be computed."""
    if isinstance(frame, Mapping):
        return list(frame)
    if not hasattr(frame, "__len__"):
        raise VclError(
            f"x is a {type(frame).__name__}, whose rows are not in memory; give a table that is, such as x.collect()."
        )
    # A table of pyarrow has its columns as ``columns``, and their names elsewhere.
    return list(frame.column_names if hasattr(type(frame), "column_names") else frame.columns)


def columns_of(frame: Any) -> dict[str, np.ndarray]:
    """The columns by their names, in their order; VclError for names that come twice and for different lengths."""
    names = names_of(frame)
    if len({str(name) for name in names}) != len(names):
        twice = next(str(name) for name in names if [str(each) for each in names].count(str(name)) > 1)
        raise VclError(f"the table has the column {twice!r} twice; give each column a name of its own.")
    if not names:
        raise VclError("the table has no columns; give at least one.")
    declared = declared_categorical(frame)
    found = {
        str(name): np.asarray(frame[name].astype(object)) if str(name) in declared else _array(frame[name])
        for name in names
    }
    sizes = {name: len(values) for name, values in found.items()}
    if len(set(sizes.values())) > 1:
        raise VclError(f"the columns have different lengths ({sizes}); give each the same number of rows.")
    return found


def declared_categorical(frame: Any) -> set[str]:
    """The columns that pandas declares categorical, whose values may be numbers."""
    names = names_of(frame)
    given = {str(name): frame[name] for name in names}
    return {
        name
        for name, values in given.items()
        if hasattr(values, "astype") and hasattr(getattr(values, "dtype", None), "categories")
    }


def _array(values: Any) -> np.ndarray:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        values = np.ma.filled(values.astype(object), None)
    found = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if found.dtype != object or found.ndim != 1:
        return found
    # Numbers and bools beside missing values, which an array of objects holds.
    missing = np.array([is_nothing(each) for each in found], dtype=bool)
    if missing.all() or not all(
        isinstance(each, bool | int | float | np.number | np.bool_) for each in found[~missing]
    ):
        return found
    numbers = np.full(len(found), np.nan)
    numbers[~missing] = found[~missing].astype(float)
    return numbers


def is_nothing(value: object) -> bool:
    """Whether a value stands for a missing one. That of pandas' own types refuses comparison, so it comes first."""
    return value is None or str(value) == "<NA>" or bool(value != value)
