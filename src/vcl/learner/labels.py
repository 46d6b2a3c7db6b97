"""Class labels as people have them (strings, whole numbers, bools), and their positions in a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vcl.errors import VclError

Label = str | int | bool


class Classes(NamedTuple):
    """The labels of a head, in the order of its outputs."""

    labels: tuple[Label, ...]

    def __str__(self) -> str:
        return f"classes {', '.join(map(str, self.labels))}"

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
        return np.array(self.labels)


def labels(y: object, count: int) -> np.ndarray:
    """Labels [N] as a numpy array of strings, whole numbers or bools; VclError for anything else."""
    found = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 or len(found) != count:
        raise VclError(f"y has shape {found.shape} for {count} examples; give one label for each.")
    if found.dtype == object:
        found = _of_objects(found)
    if found.dtype.kind == "f":
        _whole(found)
        found = found.astype(np.int64)
    if found.dtype.kind not in "iubUS":
        raise VclError(f"the labels have dtype {found.dtype}; give strings, whole numbers or bools.")
    return found.astype(str) if found.dtype.kind == "S" else found


def _of_objects(found: np.ndarray) -> np.ndarray:
    """An array of Python objects as one of their kind."""
    missing = [at for at, each in enumerate(found) if each is None or each != each]
    if missing:
        raise VclError(f"y has no label at {_some(missing)}; drop those examples or give them a label.")
    kinds = {_kind(each) for each in found}
    if len(kinds) > 1:
        raise VclError(
            f"the labels are of several kinds ({', '.join(sorted(kinds))}); give strings, whole numbers or bools, one "
            "kind for all."
        )
    return np.array(found.tolist())


def _whole(found: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(found) | (found != np.floor(found)))
    if len(bad):
        raise VclError(
            f"y is {found[bad[0]]} at row {bad[0]}, which names no class; give strings, whole numbers or bools (for "
            "targets that are numbers, use ContinualRegressor)."
        )


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
