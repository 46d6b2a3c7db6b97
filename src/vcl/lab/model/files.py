"""Data files: CSV and Parquet tables, and npz files with arrays x and y. No pickle is ever read."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from vcl.errors import VclError
from vcl.lab.model import csv_table
from vcl.lab.model.columns import Arrays, Columns, Contents

MOST_BYTES = 2**32
"""The most bytes of arrays, or of a Parquet file's columns, that are read."""


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
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > MOST_BYTES:
            raise VclError(_too_large(path, size))
        with np.load(path, allow_pickle=False) as found:
            names = sorted(found.files)
            if "x" not in names or set(names) - {"x", "y"}:
                raise VclError(
                    f"{path} has the arrays {', '.join(names) or '(none)'}; name the inputs x and the labels or "
                    "targets y, as in np.savez(path, x=x, y=y)."
                )
            x, y = found["x"], found["y"] if "y" in names else None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if "allow_pickle" in str(error):
            raise VclError(
                f"{path} has an array of Python objects, which only pickle could read; give numbers or texts."
            ) from error
        raise VclError(f"{path} is no npz file, or it is damaged ({error}); save it again.") from error
    if y is not None and (y.ndim == 0 or x.ndim == 0 or len(x) != len(y)):
        raise VclError(f"in {path}, x has shape {x.shape} and y has {y.shape}; give one row of each per example.")
    return Arrays(x, y)


def read_parquet(path: Path, delimiter: str | None) -> Columns:
    """The columns, as pyarrow reads them."""
    parquet = pyarrow("pyarrow.parquet", f"{path} is a Parquet file, and reading it")
    try:
        about = parquet.ParquetFile(path)
        size = sum(about.metadata.row_group(each).total_byte_size for each in range(about.metadata.num_row_groups))
        if size > MOST_BYTES:
            raise VclError(_too_large(path, size))
        table = about.read()
    except import_module("pyarrow").ArrowException as error:
        said = str(error).partition("\n")[0]
        raise VclError(f"{path} is no Parquet file, or it is damaged ({said}); save it again.") from error
    names = list(table.column_names)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise VclError(f"{path} has the column {twice[0]!r} twice; give each column a name of its own.")
    if not table.num_rows:
        raise VclError(f"{path} has no rows; give at least one row.")
    return {name: _values(table.column(name), f"column {name!r} of {path}") for name in names}


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
