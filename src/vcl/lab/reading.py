"""Reads files that vcl wrote without trusting them: each fault is reported in one sentence that names the file."""

from __future__ import annotations

import csv
import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.errors import VclError
from vcl.lab.folder import UnwritableError
from vcl.lab.kind import Run
from vcl.lab.results import Row
from vcl.lab.settings import check
from vcl.learner.checkpoint import unpacked
from vcl.models.fingerprint import check_model
from vcl.recursion import SetAside, State

S = TypeVar("S")

ANEW = "delete its folder to compute it anew"
"""What to do about a file that `vcl paper` kept."""


DAMAGED = (
    LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, SafetensorError, csv.Error,
)  # fmt: skip
"""What reading a file may end in that is not as it was written."""


class DamagedError(ValueError):
    """What is wrong with a file, for :func:`reading` to tell."""


@contextmanager
def reading(path: Path, mend: str = ANEW) -> Iterator[None]:
    """Whatever fails in here, but for a write, is told as a fault of this file, with what to do about it."""
    try:
        yield
    except UnwritableError:
        raise
    except VclError as error:
        raise VclError(f"{path} cannot be read ({str(error).rstrip('.')}); {mend}.") from error
    except OSError as error:
        raise VclError(f"{path} cannot be read ({error.strerror}); {mend}.") from error
    except DAMAGED as error:
        fault = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise VclError(f"{path} cannot be read ({fault}); {mend}.") from error


def require(fine: bool, fault: str) -> None:
    """Within :func:`reading`: the fault, unless all is fine."""
    if not fine:
        raise DamagedError(fault)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; within :func:`reading`."""
    found = json.loads(path.read_text())
    require(isinstance(found, dict), "it is no JSON object")
    return dict(found)


def read_part(path: Path) -> dict[str, Any]:
    """What `vcl paper` wrote of a part, its kinds of values checked."""
    with reading(path):
        known = read_object(path)
        finished, seconds, notes = known["finished"], known["seconds"], known["notes"]
        require(isinstance(finished, bool), f"finished is {finished!r}")
        require(type(seconds) in (int, float) and isfinite(seconds) and seconds >= 0, f"seconds is {seconds!r}")
        builds = known.get("builds", [])
        require(isinstance(builds, list) and all(isinstance(one, dict) for one in builds), f"builds is {builds!r}")
        require(isinstance(notes, list) and all(isinstance(note, str) for note in notes), f"notes is {notes!r}")
        require(isinstance(known["description"], dict), "description is no object")
    return known


def read_set_aside(path: Path, known: Mapping[str, Any], runs: int) -> tuple[SetAside, ...]:
    """The runs, of so many, that a part's numbers are without."""
    with reading(path):
        found = tuple(SetAside(**each) for each in known.get("set_aside", []))
        fine = all(type(each.run) is int and 0 <= each.run < runs and type(each.task) is int for each in found)
        require(fine and len({each.run for each in found}) == len(found) < runs, f"set_aside is {found}")
    return found


def read_state(
    path: Path, model: Any, runs: int, tasks: int, images: Tensor, device: torch.device | str = "cpu"
) -> State[Any]:
    """The state in a file, which must be of this model, so many runs, at most so many tasks and such images."""
    with reading(path):
        state = unpacked(path.read_bytes(), device)
        mean, coreset, wanted = state.propagated.mean, state.coreset, model.layout(state.heads)
        require(state.runs_begun == runs, f"it is of {state.runs_begun} runs, not {runs}")
        require(mean.dtype == torch.float32, f"its weights are {mean.dtype}")
        require(state.t <= tasks, f"it is of {state.t} tasks, not of up to {tasks}")
        require(same_layout(state.propagated.layout, wanted), "it is of another network")
        check_model(model, state.propagated.layout, state.heads, state.fingerprint, mean)
        for head, belief in state.predictive.items():
            fits = same_layout(belief.layout, wanted) or same_layout(belief.layout, wanted.touched([head]))
            require(fits, f"head {head!r} is of another network")
        if coreset is not None:
            pixels = coreset.x.shape[2:].numel()
            require(coreset.x.dtype == images.dtype and pixels == images[0].numel(), "its coreset is of other images")
            require(coreset.y.dtype == torch.int64 and coreset.y.dim() == 2, "its coreset has labels of another kind")
            known = (coreset.y >= 0) & (coreset.y < max(state.heads.values(), default=0))
            require(bool(known.all()) and set(coreset.heads) <= set(state.heads), "its coreset has unknown labels")
    return state


def same_layout(one: Layout, other: Layout) -> bool:
    """Whether both have the same parameters of the same shapes, in any order."""
    return dict(zip(one.names, one.shapes, strict=True)) == dict(zip(other.names, other.shapes, strict=True))


def check_rows(rows: Sequence[Row], runs: Sequence[Run], tasks: int, path: Path) -> None:
    """Raise one clear sentence unless the rows are those of these runs: every metric after and on every task, once."""
    with reading(path):
        wanted = {
            (run.label, run.seed, after, on)
            for run in runs
            for after in range(1, tasks + 1)
            for on in range(1, after + 1)
        }
        by_metric: dict[str, list[tuple[str, int, int, int]]] = {}
        for row in rows:
            by_metric.setdefault(row.metric, []).append(row[:4])
            require(not isnan(row.value), f"the {row.metric} of {row.method} on task {row.on} is not a number")
        require(bool(by_metric) or not wanted, "it has no rows")
        for metric, found in by_metric.items():
            lacking, more = wanted - set(found), set(found) - wanted
            require(not lacking, f"{len(lacking)} values of {metric} are missing")
            require(not more and len(found) == len(wanted), f"it has values of {metric} that no run made")


def check_pictures(pictures: Sequence[Tensor], runs: int, tasks: int, path: Path) -> None:
    """Raise one clear sentence unless these are pictures after each task: uint8 [runs, tasks so far, count, H, W]."""
    with reading(path):
        require(len(pictures) == tasks, f"it holds pictures after {len(pictures)} tasks, not {tasks}")
        for after, images in enumerate(pictures, start=1):
            kind = f"after task {after} it holds {images.dtype} {tuple(images.shape)}"
            fine = images.dtype == torch.uint8 and images.dim() == 5 and images.shape[:2] == (runs, after)
            require(fine and images.shape[2:] == pictures[0].shape[2:] and images.numel() > 0, kind)


def read_settings(kind: type[S], values: Mapping[str, Any]) -> S:
    """Settings of a kind from JSON, every value checked; within :func:`reading`. What is unknown is left out."""
    hints = typing.get_type_hints(kind)
    known = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name in hints
    }
    for name, value in known.items():
        require(_is(value, hints[name]), f"the setting {name} is {value!r}")
    made = kind(**known)
    check(made)  # type: ignore[arg-type]
    return made


def _is(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is of the kind that a setting has."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return value in options
    if isinstance(hint, types.UnionType):
        return any(_is(value, option) for option in options)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is(each, options[0]) for each in value)
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint
