"""The target of a file's rows: its column taken out, read, and the rows without one left out.

A row without a target is left out, with a count. Missing are an empty field, NaN and null; of a regressor also the
texts that :mod:`vcl.learner.tables` takes for missing. Of a classifier, "none" and "?" are classes like any other text.
Texts of a classifier are strings, unless all of the first update are whole numbers: those are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vcl.errors import VclError
from vcl.lab.model.columns import Arrays, Columns, Contents
from vcl.lab.model.recipe import Learner, Recipe
from vcl.learner import ContinualClassifier
from vcl.learner.tables import MISSING, number

NO_LABEL = ("", "nan", "na", "null")
"""Texts that are no label, in any case."""

WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)")
FLOAT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")

EXACT = 2**53
"""Below it, every whole number is a float."""


class Target(NamedTuple):
    """Targets [N] or [N, C], with any value where they are missing [N]."""

    y: np.ndarray
    missing: np.ndarray


class Labelled(NamedTuple):
    """Rows with a target: inputs as the learner takes them, and targets."""

    x: Columns | np.ndarray
    y: np.ndarray
    left_out: int
    """Rows without a target."""


def labelled(contents: Contents, recipe: Recipe, strings: bool | None, where: str) -> Labelled:
    """The rows of a file that have a target; VclError if none has.

    ``strings`` says whether the known labels are strings; None if there are none yet.
    """
    y, missing = read_target(contents, recipe, strings, where)
    if len(y) and missing.all():
        what = "y" if recipe.target is None else f"the target {recipe.target!r}"
        raise VclError(f"{what} of {where} is missing in all {len(y)} rows; give rows with a target.")
    rows = np.flatnonzero(~missing)
    return Labelled(taken(inputs_of(contents, recipe), rows), y[rows], int(missing.sum()))


def read_target(contents: Contents, recipe: Recipe, strings: bool | None, where: str) -> Target:
    """The targets of all rows, and which are missing."""
    given = target_of(contents, recipe, where)
    if given.ndim > 2 or (given.ndim == 2 and given.shape[1] != 1 and recipe.kind == "classifier"):
        wanted = "one label" if recipe.kind == "classifier" else "one target, or a row of them,"
        raise VclError(f"y of {where} has shape {given.shape}; give {wanted} for each row.")
    return _labels(given, strings) if recipe.kind == "classifier" else _numbers(given, recipe.target, where)


def target_of(contents: Contents, recipe: Recipe, where: str) -> np.ndarray:
    """The target's values as the file has them."""
    if isinstance(contents, Arrays):
        if contents.y is None:
            raise VclError(f"{where} has no array y; give the labels or targets, as in np.savez(path, x=x, y=y).")
        return contents.y
    if recipe.target is None:
        raise VclError(f"say which column of {where} is the target, as in --target {next(reversed(contents))!r}.")
    if recipe.target not in contents:
        raise VclError(f"{where} has no column {recipe.target!r} (the target); it has {_some(list(contents))}.")
    return contents[recipe.target]


def inputs_of(contents: Contents, recipe: Recipe) -> Columns | np.ndarray:
    """The inputs: an array, or all columns but the target and those that are left out."""
    if isinstance(contents, Arrays):
        return contents.x
    return {name: values for name, values in contents.items() if name != recipe.target and name not in recipe.drop}


def taken(x: Columns | np.ndarray, rows: np.ndarray | slice) -> Columns | np.ndarray:
    """These rows of inputs."""
    return {name: values[rows] for name, values in x.items()} if isinstance(x, dict) else x[rows]


def has_strings(learner: Learner) -> bool | None:
    """Whether the known labels are strings; None if there are none."""
    return isinstance(learner.classes()[0], str) if isinstance(learner, ContinualClassifier) else None


def _labels(given: np.ndarray, strings: bool | None) -> Target:
    """Labels, and which are missing. Numbers such as 2.0 are the whole numbers that they name."""
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.dtype.kind in "iub":
        return Target(given, np.zeros(len(given), dtype=bool))
    if given.dtype.kind == "f":
        missing = np.isnan(given)
        filled = np.where(missing, 0, given)
        exact = bool(((filled == np.round(filled)) & (np.abs(filled) < EXACT)).all())
        return Target(filled.astype(np.int64) if exact and not strings else filled, missing)
    values = [None if _nothing(each) else each for each in given.tolist()]
    if not all(value is None or isinstance(value, str) for value in values):
        missing = np.array([value is None for value in values])
        filler = next((value for value in values if value is not None), 0)
        return Target(np.array([filler if value is None else value for value in values]), missing)
    texts = ["" if value is None else str(value).strip() for value in values]
    missing = np.array([text.lower() in NO_LABEL for text in texts])
    there = {text for text, gone in zip(texts, missing, strict=True) if not gone}
    whole = {text: text.rstrip("0").removesuffix(".") if "." in text else text for text in there}  # 2.0 is 2
    if strings is None and there and all(WHOLE.fullmatch(text) or FLOAT.fullmatch(text) for text in there):
        fraction = next((text for text in sorted(there) if not WHOLE.fullmatch(whole[text])), None)
        if fraction is not None:
            raise VclError(
                f"the target has numbers such as {fraction}, which name no class; make the model with --kind regressor."
            )
    if strings or not all(WHOLE.fullmatch(text) for text in whole.values()):
        return Target(np.array(texts), missing)
    numbers = [0 if gone else int(whole[text]) for text, gone in zip(texts, missing, strict=True)]
    return Target(np.array(numbers), missing)


def _numbers(given: np.ndarray, name: str | None, where: str) -> Target:
    """Targets in float64 [N] or [N, C], and which rows lack one."""
    if given.dtype.kind in "iufb":
        found = given.astype(np.float64)
        return Target(found, np.asarray(np.isnan(found).reshape(len(found), -1).any(axis=1)))
    found = np.full(len(given), np.nan)
    for row, each in enumerate(given.tolist()):
        text = "" if _nothing(each) else str(each).strip()
        if text.lower() in MISSING:
            continue
        try:
            found[row] = number(text)
        except ValueError:
            raise VclError(
                f"the target {name!r} of {where} is {text!r} in row {row} (rows count from 0); a regressor needs "
                "numbers."
            ) from None
    return Target(found, np.isnan(found))


def _nothing(value: object) -> bool:
    return value is None or value != value


def _some(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
