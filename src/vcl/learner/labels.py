"""Class labels as people have them (strings, whole numbers, bools), and their positions in a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vcl.data import refuse_hidden
from vcl.errors import VclError
from vcl.learner.frames import is_nothing
from vcl.learner.given import require_utf8
from vcl.learner.inputs import some_rows

Label = str | int | bool


class Classes(NamedTuple):
    """The labels of a head, in the order of its outputs."""

    labels: tuple[Label, ...]

    def __str__(self) -> str:
        return f"{len(self.labels)} classes, {_some(self.labels)}"

    def grown(self, given: np.ndarray) -> Classes:
        """With the labels that are new, sorted, at the end: the outputs of the known ones keep their places."""
        known = set(self.labels)
        new = [label for label in plain(np.unique(given)) if label not in known]
        kinds = {_kind(label) for label in (*self.labels, *new)}
        if len(kinds) > 1:
            raise VclError(
                f"the labels are of several kinds ({', '.join(sorted(kinds))}); give strings, whole numbers or bools, "
                "one kind for all updates."
            )
        return Classes((*self.labels, *new))

    def positions(self, given: np.ndarray, what: str) -> Tensor:
        """The output of each label [N], int64; VclError names labels that have none."""
        place = {label: at for at, label in enumerate(self.labels)}
        distinct, inverse = np.unique(given, return_inverse=True)
        found = plain(distinct)
        unknown = [label for label in found if label not in place]
        if unknown:
            raise VclError(
                f"{what}: {_some(unknown)} is not among the classes {_some(self.labels)}; these are fixed, so relabel "
                "or drop those examples."
            )
        places = np.array([place[label] for label in found], dtype=np.int64)
        return torch.from_numpy(places[inverse.reshape(-1)])

    def named(self, positions: np.ndarray) -> np.ndarray:
        """The labels at these outputs, as an array of their kind."""
        found: np.ndarray = self.array()[positions]
        return found

    def array(self) -> np.ndarray:
        """All labels, in the order of the outputs."""
        return as_array(self.labels)


def as_array(labels: Sequence[Label]) -> np.ndarray:
    """Labels as an array of their kind; of Python objects if there are several kinds."""
    return np.array(labels, dtype=None if len({_kind(label) for label in labels}) < 2 else object)


def labels(y: object, count: int) -> np.ndarray:
    """Labels [N] as a numpy array of strings, whole numbers or bools; VclError for anything else."""
    found = _array(y)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim == 2 and len(found) == count and _one_hot(found):
        raise VclError(
            f"y has shape {found.shape} with a single 1 in each row, one column for each class; give the labels "
            "themselves, as in y.argmax(1)."
        )
    if found.ndim != 1 or len(found) != count:
        raise VclError(f"y has shape {found.shape} for {count} examples; give one label for each.")
    if found.dtype == object:
        found = _of_objects(found)
    if found.dtype.kind == "f":
        _whole(found)
        found = found.astype(np.int64)
    if found.dtype.kind == "u" and len(found) and int(found.max()) > MOST:
        raise _too_large(found, np.flatnonzero(found > np.uint64(MOST)))
    if found.dtype.kind not in "iubUS":
        raise VclError(f"the labels have dtype {found.dtype}; give strings, whole numbers or bools.")
    found = found.astype(str) if found.dtype.kind == "S" else found
    for label in plain(np.unique(found)) if found.dtype.kind == "U" else []:
        require_utf8("a label", str(label))
    return found


MOST = 2**63 - 1
"""The largest whole number that is a label: all labels of a head fit into one array of int64."""


def _too_large(found: np.ndarray, rows: np.ndarray) -> VclError:
    return VclError(
        f"y is {found[rows[0]]} at row {rows[0]}, where whole numbers of dtype {found.dtype} no longer have labels of "
        "their own; give such labels as strings."
    )


def _array(y: object) -> np.ndarray:
    """y as an array; VclError where its entries have different lengths."""
    refuse_hidden("y", y)
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        return (y.float() if y.dtype == torch.bfloat16 else y).numpy()
    try:
        found = np.asarray(y)
    except ValueError as error:
        raise VclError("y has entries of different lengths; give one label for each example.") from error
    # numpy turns numbers beside strings into strings
    if found.dtype.kind in "US" and isinstance(y, list | tuple) and not all(isinstance(e, str | bytes) for e in y):
        return np.array(y, dtype=object)
    return found


def as_numbers(y: object) -> np.ndarray:
    """y as an array; numbers in an array of objects as float64, and what stands for a missing one as NaN."""
    found = _array(y)
    if found.dtype != object:
        return found
    try:
        flat = [np.nan if is_nothing(each) else float(each) for each in found.ravel().tolist()]
    except (TypeError, ValueError):
        return found
    return np.array(flat).reshape(found.shape)


def _one_hot(found: np.ndarray) -> bool:
    return found.dtype.kind in "iufb" and bool(np.isin(found, (0, 1)).all() and (found.sum(1) == 1).all())


def _of_objects(found: np.ndarray) -> np.ndarray:
    """An array of Python objects as one of their kind."""
    missing = [at for at, each in enumerate(found) if is_nothing(each)]
    if missing:
        raise VclError(f"y has no label in the rows {some_rows(missing)}; drop those examples or give them a label.")
    kinds = {_kind(each) for each in found}
    if len(kinds) > 1:
        raise VclError(
            f"the labels are of several kinds ({', '.join(sorted(kinds))}); give strings, whole numbers or bools, one "
            "kind for all."
        )
    if kinds - {"bools", "whole numbers", "strings"} - {"float"}:
        raise VclError(f"the labels are of the kind {', '.join(sorted(kinds))}; give strings, whole numbers or bools.")
    if kinds == {"whole numbers"}:
        large = np.flatnonzero([not -MOST - 1 <= int(each) <= MOST for each in found])
        if len(large):
            raise _too_large(found, large)
    return np.array(found.tolist())


def _whole(found: np.ndarray) -> None:
    missing = np.flatnonzero(np.isnan(found))
    if len(missing):
        raise VclError(
            f"y has no label in the rows {some_rows(missing.tolist())}; drop those examples or give them a label."
        )
    bad = np.flatnonzero(~np.isfinite(found) | (found != np.floor(found)))
    if len(bad):
        raise VclError(
            f"y is {found[bad[0]]} at row {bad[0]}, which names no class; give strings, whole numbers or bools (for "
            "targets that are numbers, use ContinualRegressor)."
        )
    # From here on neighbouring whole numbers are one float.
    large = np.flatnonzero(np.abs(found) >= 2.0 ** (np.finfo(found.dtype).nmant + 1))
    if len(large):
        raise _too_large(found, large)


def fixed_classes(given: Any) -> list[Label] | None:
    """The classes of a learner as Python's own values; None where they follow from the data."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise VclError(f"classes are {given!r}; give a list of labels, such as ['cat', 'dog'].")
    found = plain(labels(given, len(given))) if len(given) else []
    if len(found) < 2:
        raise VclError(f"classes are {found}; give at least two.")
    if len(set(found)) != len(found):
        raise VclError(f"classes are {found}, with one of them twice; give each once.")
    return found


def plain(values: np.ndarray) -> list[Label]:
    """The values as Python's own strings, ints and bools."""
    return list(values.tolist())


def _kind(label: object) -> str:
    if isinstance(label, bool | np.bool_):
        return "bools"
    if isinstance(label, int | np.integer):
        return "whole numbers"
    return "strings" if isinstance(label, str) else type(label).__name__


def _some(values: Sequence[object], most: int = 8) -> str:
    """The first values, readable in a message."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"
