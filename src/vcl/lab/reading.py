"""Reads files that vcl wrote, without trusting them. Each fault is one sentence that names the file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import Data
from vcl.errors import LaterFormatError, VclError
from vcl.lab.experiments.experiment import PRESETS
from vcl.lab.folder import MOST_JSON, UnwritableError
from vcl.lab.results import NoRowsError, Row
from vcl.lab.sums import check_signed
from vcl.learner.bounded import read_bounded
from vcl.learner.checkpoint import unpacked
from vcl.models.fingerprint import check_model
from vcl.recursion import SetAside, State

FORMAT = 1
"""Of a part.json: raised when an earlier version of vcl could no longer read one."""

ANEW = "delete its folder to compute it anew"
"""Advice for a damaged file of a part."""


DAMAGED = (
    LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError, SafetensorError,
    csv.Error,
)  # fmt: skip
"""Exceptions that reading a damaged file may raise."""


class DamagedError(ValueError):
    """A fault in a file's content; :func:`reading` reports it."""


@contextmanager
def reading(path: Path, mend: str = ANEW) -> Iterator[None]:
    """Turn any failure inside, except a failed write, into a VclError about this file; ``mend`` is the advice."""
    try:
        yield
    except UnwritableError:
        raise
    except LaterFormatError as error:  # it is whole, so it must not be deleted
        raise VclError(f"{path} {error.fault}") from error
    except VclError as error:
        fault = error.fault if isinstance(error, NoRowsError) else str(error).rstrip(".")
        raise VclError(f"{path} cannot be read ({fault}); {mend}.") from error
    except OSError as error:
        raise VclError(f"{path} cannot be read ({error.strerror}); {mend}.") from error
    except DAMAGED as error:
        fault = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise VclError(f"{path} cannot be read ({fault}); {mend}.") from error


def require(fine: bool, fault: str) -> None:
    """Raise the fault unless ``fine``; for use within :func:`reading`."""
    if not fine:
        raise DamagedError(fault)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; for use within :func:`reading`."""
    found = json.loads(read_bounded(path, MOST_JSON))
    require(isinstance(found, dict), "it is no JSON object")
    json.dumps(found, ensure_ascii=False).encode()  # half a character, as \ud800 is, cannot be written again
    return dict(found)


def read_part(path: Path) -> dict[str, Any]:
    """The content of a part.json, with its types checked."""
    with reading(path):
        known = read_object(path)
        made = known.get("format", 1)  # older parts lack it
        require(type(made) is int and made >= 1, f"format is {made!r}")
        if made > FORMAT:
            raise LaterFormatError("this part", made, FORMAT)
        finished, seconds, notes = known["finished"], known["seconds"], known["notes"]
        require(isinstance(finished, bool), f"finished is {finished!r}")
        require(type(seconds) in (int, float) and isfinite(seconds) and seconds >= 0, f"seconds is {seconds!r}")
        builds = known.get("builds", [])
        require(isinstance(builds, list) and all(isinstance(one, dict) for one in builds), f"builds is {builds!r}")
        require(isinstance(notes, list) and all(isinstance(note, str) for note in notes), f"notes is {notes!r}")
        require(isinstance(known["description"], dict), "description is no object")
        sums = known.get("files", {})
        fine = isinstance(sums, dict) and all(isinstance(each, list) for each in sums.values())
        require(fine, f"files is {sums!r}")
        check_signed(known)
    return known


def read_runs(path: Path, known: Mapping[str, Any]) -> None:
    """Check the names, runs and finished tasks of a stack in a part.json."""
    with reading(path):
        for name in ("experiment", "method", "preset", "asked", "started", "device", "engine", "command"):
            require(isinstance(known[name], str), f"{name} is {known[name]!r}")
        require(known["preset"] in PRESETS, f"preset is {known['preset']!r}")
        require(type(known["place"]) is int, f"place is {known['place']!r}")
        runs, tasks = known["runs"], known["tasks"]
        fine = isinstance(runs, list) and bool(runs) and all(isinstance(run, list) and len(run) == 2 for run in runs)
        require(fine and all(type(run[1]) is int for run in runs), f"runs is {runs!r}")
        require(all(abs(run[1]) < 2**63 for run in runs), "a seed of its runs has more than 64 bits")
        fine = all(run[0] is None or (type(run[0]) in (int, float) and 0 <= run[0] <= 1e12) for run in runs)
        require(fine, "a lambda of its runs is no number from 0 to 1e+12")
        require(len({tuple(run) for run in runs}) == len(runs), "a run is named twice")
        fine = isinstance(tasks, list) and all(isinstance(task, list) and len(task) == 2 for task in tasks)
        require(
            fine and all(isinstance(task[0], str) and type(task[1]) is bool for task in tasks), f"tasks is {tasks!r}"
        )
        changes, grid, dataset, share = (known[name] for name in ("changes", "grid", "dataset", "validation"))
        fine = isinstance(changes, list) and all(isinstance(each, str) and "=" in each for each in changes)
        require(fine, f"changes is {changes!r}")
        require(isinstance(grid, bool), f"grid is {grid!r}")
        for name in ("defaults", "metrics"):  # older parts lack them
            words = known.get(name, [])
            require(isinstance(words, list) and all(isinstance(each, str) for each in words), f"{name} is {words!r}")
        require(dataset is None or isinstance(dataset, str), f"dataset is {dataset!r}")
        require(share is None or (type(share) is float and 0 < share < 1), f"validation is {share!r}")
        builds = known["builds"]
        fine = bool(builds) and all(isinstance(each.get(name), str) for each in builds for name in ("vcl", "torch"))
        require(fine, f"builds is {builds!r}")
        read_set_aside(path, known, len(runs))


def read_set_aside(path: Path, known: Mapping[str, Any], runs: int) -> tuple[SetAside, ...]:
    """The runs that a part's numbers exclude, out of ``runs``."""
    with reading(path):
        found = tuple(SetAside(**each) for each in known.get("set_aside", []))
        fine = all(type(each.run) is int and 0 <= each.run < runs and type(each.task) is int for each in found)
        require(fine and len({each.run for each in found}) == len(found) < runs, f"set_aside is {found}")
    return found


def read_state(
    path: Path, model: Any, runs: int, tasks: int, like: Data, device: torch.device | str = "cpu"
) -> State[Any]:
    """The state in a file, checked against the model, the number of runs, the most tasks, and the type of data."""
    with reading(path):
        state = unpacked(read_bounded(path), device)
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
            fits = coreset.x.dtype == like.x.dtype and coreset.x.shape[2:] == like.x.shape[2:]
            require(fits, "its coreset is of other inputs")
            fits = coreset.y.dtype == like.y.dtype and coreset.y.shape[2:] == like.y.shape[2:]
            require(fits, "its coreset has labels of another kind")
            if not like.y.is_floating_point():
                known = (coreset.y >= 0) & (coreset.y < max(state.heads.values(), default=0))
                require(bool(known.all()), "its coreset has unknown labels")
            require(set(coreset.heads) <= set(state.heads), "its coreset has unknown heads")
    return state


def same_layout(one: Layout, other: Layout) -> bool:
    """Whether both have the same parameters of the same shapes, in any order."""
    return dict(zip(one.names, one.shapes, strict=True)) == dict(zip(other.names, other.shapes, strict=True))


def check_rows(
    rows: Sequence[Row],
    runs: Sequence[tuple[str, int]],
    tasks: Sequence[tuple[str, bool]],
    path: Path,
    metrics: Sequence[str] = (),
) -> None:
    """Raise VclError unless the rows hold each metric of these runs exactly once, after and on every task.

    Each of ``tasks`` is a name and whether it has test data; tasks without test data have no rows. ``metrics`` are
    those that must be there; older parts do not name them.
    """
    with reading(path):
        wanted = {
            (*run, after, on)
            for run in runs
            for after in range(1, len(tasks) + 1)
            for on in range(1, after + 1)
            if tasks[on - 1][1]
        }
        by_metric: dict[str, list[tuple[str, int, int, int]]] = {}
        for row in rows:
            by_metric.setdefault(row.metric, []).append(row[:4])
            require(isfinite(row.value), f"the {row.metric} of {row.method} on task {row.on} is {row.value}")
        require(bool(by_metric) or not wanted, "it has no rows")
        absent = [metric for metric in metrics if metric not in by_metric and wanted]
        require(not absent, f"all values of {' and '.join(absent)} are missing")
        for metric, found in by_metric.items():
            lacking, more = wanted - set(found), set(found) - wanted
            require(not lacking, f"{len(lacking)} values of {metric} are missing")
            require(not more and len(found) == len(wanted), f"it has unexpected rows of {metric}")


def check_pictures(pictures: Sequence[Tensor], runs: int, tasks: int, path: Path) -> None:
    """Raise VclError unless there is one uint8 [runs, tasks so far, count, H, W] after each task."""
    with reading(path):
        require(len(pictures) == tasks, f"it holds pictures after {len(pictures)} tasks, not {tasks}")
        for after, images in enumerate(pictures, start=1):
            kind = f"after task {after} it holds {images.dtype} {tuple(images.shape)}"
            fine = images.dtype == torch.uint8 and images.dim() == 5 and images.shape[:2] == (runs, after)
            require(fine and images.shape[2:] == pictures[0].shape[2:] and images.numel() > 0, kind)
