"""Data files: CSV and Parquet tables, and npz files with arrays x and y. No pickle is ever read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from vcl.errors import VclError
from vcl.lab import npy
from vcl.lab.model import csv_table
from vcl.lab.model.columns import MOST_COLUMNS, Arrays, Columns, Contents, first_twice

MOST_BYTES = 2**32
"""The most bytes of arrays, or of a Parquet file's columns, that are read."""

MOST_NAMES = 20
"""The most names in a message."""

PARQUET_FAULTS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, NotImplementedError)
"""What pyarrow may raise beside its own errors."""


def read(path: Path, delimiter: str | None = None) -> Contents:
    """The contents of a file, by its ending; VclError if it is none of ours, too large or damaged."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise VclError(f"{path} is not read; give a file that ends in {', '.join(READERS)}.")
    if delimiter is not None and path.suffix.lower() not in (".csv", ".tsv"):
        raise VclError(f"--delimiter is for CSV files, and {path} is none; leave it out.")
    if not path.is_file():
        raise VclError(f"{path} is no file; give the path of a data file.")
    try:
        return reader(path, delimiter)
    except OSError as error:
        raise VclError(f"{path} cannot be read ({error.strerror or error}).") from error


def read_npz(path: Path, delimiter: str | None) -> Arrays:
    """The arrays x and y."""
    try:
        names = sorted(npy.names_in(path, MOST_BYTES))
        if "x" not in names or set(names) - {"x", "y"}:
            raise VclError(
                f"{path} has the arrays {', '.join(names[:MOST_NAMES]) or '(none)'}; name the inputs x and the labels "
                "or targets y, as in np.savez(path, x=x, y=y)."
            )
        found = npy.read_npz(path, MOST_BYTES)
    except npy.TooLargeError as error:
        raise VclError(_too_large(path, error.size)) from error
    except npy.PickledError as error:
        raise VclError(
            f"{path} has an array of Python objects, which only pickle could read; give numbers or texts."
        ) from error
    except npy.DAMAGED as error:
        raise VclError(f"{path} is no npz file, or it is damaged ({_said(error)}); save it again.") from error
    x, y = found["x"], found.get("y")
    if y is not None and (y.ndim == 0 or x.ndim == 0 or len(x) != len(y)):
        raise VclError(f"in {path}, x has shape {x.shape} and y has {y.shape}; give one row of each per example.")
    return Arrays(x, y)


def read_parquet(path: Path, delimiter: str | None) -> Columns:
    """The columns, as pyarrow reads them."""
    parquet = pyarrow("pyarrow.parquet", f"{path} is a Parquet file, and reading it")
    try:
        about = parquet.ParquetFile(path)
        size = _size(about.metadata)
        if size > MOST_BYTES:
            raise VclError(_too_large(path, size))
        table = about.read()
    except (import_module("pyarrow").ArrowException, *PARQUET_FAULTS) as error:
        raise VclError(f"{path} is no Parquet file, or it is damaged ({_said(error)}); save it again.") from error
    names = list(table.column_names)
    if twice := first_twice(names):
        raise VclError(f"{path} has the column {twice!r} twice; give each column a name of its own.")
    if not table.num_rows:
        raise VclError(f"{path} has no rows; give at least one row.")
    return {name: _values(table.column(name), f"column {name!r} of {path}") for name in names}


def _size(about: Any) -> int:
    """The bytes that a Parquet file's columns take. Repeated values take next to none in the file, and 8 as a value."""
    if about.num_columns > MOST_COLUMNS:
        raise ValueError(f"it has {about.num_columns:,} columns, and at most {MOST_COLUMNS:,} are read")
    groups = [about.row_group(each) for each in range(about.num_row_groups)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups))
    return int(max(sum(group.total_byte_size for group in groups), 8 * rows * about.num_columns))


def _said(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]


def _values(column: Any, what: str) -> np.ndarray:
    """A column of a Parquet file as an array [N]."""
    types = import_module("pyarrow.types")
    if types.is_nested(column.type):
        raise VclError(f"{what} has lists or records; give one value for each row.")
    if types.is_dictionary(column.type):  # as an array, a missing value would be its last category
        column = column.cast(column.type.value_type)
    found: np.ndarray = column.to_numpy()
    return found


def pyarrow(module: str, what: str) -> Any:
    """A module of pyarrow; VclError if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise VclError(f"{what} needs pyarrow: pip install 'vcl[parquet]', or use CSV or npz.") from error


def _too_large(path: Path, size: int) -> str:
    return (
        f"{path} has {size / 2**30:.1f} GiB of data, and at most {MOST_BYTES >> 30} GiB are read; split it into "
        "several updates."
    )


READERS: Mapping[str, Callable[[Path, str | None], Contents]] = {
    ".csv": csv_table.read,
    ".tsv": csv_table.read,
    ".npz": read_npz,
    ".parquet": read_parquet,
}
