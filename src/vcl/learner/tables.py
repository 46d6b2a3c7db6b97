"""Tables with named columns as numbers. What a column is follows from the first update and then stays.

a column of numbers    its value; missing values become the first update's mean. If the first update had some, a
                       second column says 1 where the value is missing; if it had none, later ones give a warning
any other column       one column for each category of the first update, 1 for the example's own. Missing is a
                       category if the first update had some. A category that comes later, or a missing value where
                       there was none, has 0 in all of them, and gives a warning with the counts

A column that its library declares categorical has categories, whole numbers too. Columns go by name, in any order.
Other columns than those of the first update are refused, with the difference. So are a column without any value, more
than 1000 categories, dates, lists, infinite numbers, and texts in a column of numbers. Texts that are all numbers are
numbers: codes that are no quantities need a letter, such as c7. Missing are None, NaN and the texts "", na, nan, none,
null and ?, in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.learner.frames import columns_of, declared_categorical, is_nothing
from vcl.learner.given import require_utf8

Warn = Callable[[str], None]

MISSING = ("", "na", "nan", "none", "null", "?")
"""Texts that stand for a missing value, in any case."""

MOST = 1000
"""The most categories of a column; a column with more is an identifier or free text."""

DATE = re.compile(
    r"(\d{4}(?P<a>[-/.])(0?[1-9]|1[0-2])(?P=a)(0?[1-9]|[12]\d|3[01])"  # 2024-01-31
    r"|(0?[1-9]|[12]\d|3[01])(?P<b>[-/.])(0?[1-9]|[12]\d|3[01])(?P=b)\d{4})"  # 31.1.2024 and 1/31/2024
    r"([T ]\d{1,2}:\d\d.*)?"
)
"""Days, with or without a time."""


@final
@dataclass(frozen=True)
class Column:
    """A column as the first update had it."""

    name: str
    categories: tuple[str, ...] | None
    """None for numbers."""
    mean: float = 0.0
    missing: bool = False
    """Whether the first update had missing values."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the numbers that the column becomes."""
        if self.categories is not None:
            return tuple(f"{self.name}={each}" for each in (*self.categories, *(["missing"] if self.missing else [])))
        return (self.name, f"{self.name} missing") if self.missing else (self.name,)

    def numbers(self, values: np.ndarray, warn: Warn | None) -> np.ndarray:
        """[N, outputs], in float64."""
        if self.categories is None:
            found, missing = _as_numbers(values, self.name)
            if missing.any() and not self.missing and warn is not None:
                warn(
                    f"column {self.name!r} has {int(missing.sum())} missing values and had none before; they take the "
                    f"first update's mean, {self.mean:.4g}"
                )
            filled = np.where(missing, self.mean, found)
            return np.stack([filled, missing.astype(float)] if self.missing else [filled], axis=1)
        texts, missing = _as_texts(values)
        places = {each: at for at, each in enumerate(self.categories)}
        found = np.zeros((len(texts), len(self.outputs)))
        new = dict[str, int]()
        for row, (text, gone) in enumerate(zip(texts, missing, strict=True)):
            if gone:
                if self.missing:
                    found[row, -1] = 1.0
                else:
                    new["missing"] = new.get("missing", 0) + 1
            elif text in places:
                found[row, places[text]] = 1.0
            else:
                new[text] = new.get(text, 0) + 1
        if new and warn is not None:
            shown = ", ".join(f"{each!r} ({count})" for each, count in list(new.items())[:5])
            warn(f"column {self.name!r} has values that the first update had not: {shown}; they count as no category")
        return found


@final
@dataclass(frozen=True)
class Table:
    """The columns of the first update, in their order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the numbers that a row becomes."""
        return tuple(name for column in self.columns for name in column.outputs)

    @classmethod
    def of(cls, frame: Any) -> Self:
        """The columns of a frame, or of any mapping from names to columns."""
        declared = declared_categorical(frame)
        return cls(tuple(_column(name, values, name in declared) for name, values in columns_of(frame).items()))

    def numbers(self, frame: Any, warn: Warn | None = None) -> Tensor:
        """The frame as numbers [N, outputs], float64; VclError if its columns are others.

        Scaling comes before float32, which would merge values such as the seconds of a day in 2024.
        """
        given = columns_of(frame)
        gone = [name for name in self.names if name not in given]
        new = [name for name in given if name not in self.names]
        if gone or new:
            parts = [
                *([f"without {', '.join(map(repr, gone))}"] if gone else []),
                *([f"with the new {', '.join(map(repr, new))}"] if new else []),
            ]
            raise VclError(
                f"the table comes {' and '.join(parts)}; give the columns of the first update: {', '.join(self.names)}."
            )
        found = [column.numbers(given[column.name], warn) for column in self.columns]
        return torch.from_numpy(np.concatenate(found, axis=1))

    def described(self) -> list[dict[str, Any]]:
        """As JSON takes it."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_described(cls, given: list[dict[str, Any]]) -> Self:
        """The inverse of :meth:`described`."""
        return cls(
            tuple(
                Column(
                    str(each["name"]),
                    None if each["categories"] is None else tuple(map(str, each["categories"])),
                    float(each["mean"]),
                    bool(each["missing"]),
                )
                for each in given
            )
        )


def became(table: Table, most: int = 8) -> str:
    """Which inputs the columns became, as a part of a sentence."""
    shown = ", ".join(table.outputs[:most]) + (", ..." if len(table.outputs) > most else "")
    count, columns = len(table.outputs), len(table.columns)
    return (
        f"{columns} column{'s' if columns > 1 else ''} became {count} input{'s' if count > 1 else ''} ({shown}); use "
        f"vcl.mlp({count}, ...), or another network for {count}."
    )


def _column(name: str, values: np.ndarray, categorical: bool) -> Column:
    require_utf8("the name of a column", name)
    if values.ndim != 1:
        raise VclError(f"column {name!r} has shape {values.shape}; give one value for each row.")
    if values.dtype.kind in "mMcV":
        raise VclError(
            f"column {name!r} has dtype {values.dtype}; give numbers or texts (of a date, such as days since a start)."
        )
    nested = (list, tuple, dict, set, np.ndarray)
    if values.dtype == object and any(isinstance(each, nested) for each in values):
        raise VclError(f"column {name!r} has lists or records; give one value for each row.")
    if values.dtype.kind in "iufb" and not categorical:
        found, missing = _as_numbers(values, name)
        return _numeric(name, found, missing)
    texts, missing = _as_texts(values)
    given = [text for text, gone in zip(texts, missing, strict=True) if not gone]
    if not categorical:
        try:
            found = np.array([np.nan if gone else number(text) for text, gone in zip(texts, missing, strict=True)])
        except ValueError:
            _refuse_dates(name, given)
        else:
            return _numeric(name, found, missing)
    kinds = sorted(set(given))
    if not kinds:
        raise VclError(f"column {name!r} has no values; drop it.")
    if len(kinds) > MOST:
        raise VclError(
            f"column {name!r} has {len(kinds)} different texts, and at most {MOST} categories are taken; drop that "
            "column (an identifier?) or group its values."
        )
    for each in kinds:
        require_utf8(f"a category of the column {name!r}", each)
    return Column(name, tuple(kinds), missing=bool(missing.any()))


def _refuse_dates(name: str, texts: list[str]) -> None:
    """Later dates would be no category of the first ones."""
    if all(DATE.fullmatch(text) for text in texts):
        raise VclError(
            f"column {name!r} has dates, such as {texts[0]}; give numbers, such as days since a start, or drop that "
            "column."
        )


def _numeric(name: str, found: np.ndarray, missing: np.ndarray) -> Column:
    if not len(found) or missing.all():
        raise VclError(f"column {name!r} has no values; drop it.")
    return Column(name, None, float(found[~missing].mean()), bool(missing.any()))


def _as_numbers(values: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers [N] in float64, and which are missing [N]; VclError for a text that is no number, and for infinity."""
    if values.dtype.kind in "iufb":
        found = values.astype(float)
        missing = np.isnan(found)
    else:
        texts, missing = _as_texts(values)
        found = np.full(len(texts), np.nan)
        for row, (text, gone) in enumerate(zip(texts, missing, strict=True)):
            if not gone:
                try:
                    found[row] = number(text)
                except ValueError:
                    raise VclError(
                        f"column {name!r} is {text!r} in row {row}, and its values were numbers in the first update "
                        "(rows count from 0); give a number, or leave the value out."
                    ) from None
    if np.isinf(found[~missing]).any():
        row = int(np.flatnonzero(np.isinf(found))[0])
        raise VclError(
            f"column {name!r} is infinite in row {row} (rows count from 0); give a finite number, or leave the value "
            "out."
        )
    return found, missing


def number(text: str) -> float:
    """A number as people write it; ValueError for anything else, and for Python's own 1_000."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _as_texts(values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Texts [N], and which are missing [N]. Whole numbers beside missing ones are floats in an array: 1.0 is 1."""
    given = values.tolist()
    if values.dtype.kind == "f":
        given = [int(each) if each.is_integer() else each for each in given]
    texts = ["" if is_nothing(each) else str(each).strip() for each in given]
    return texts, np.array([text.lower() in MISSING for text in texts], dtype=bool)
