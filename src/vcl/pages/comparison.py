"""A comparison of methods on one stream of tasks, as data: every number of every run, packed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final

import numpy as np

Better = Literal["more", "less"]


@final
@dataclass(frozen=True)
class Metric:
    """How a metric is shown: numbers are multiplied by ``scale`` and followed by ``unit``."""

    name: str
    scale: float = 1.0
    unit: str = ""
    better: Better | None = None
    table: bool = True
    """Whether the headline table has a column for it."""


@final
@dataclass(frozen=True)
class Fit:
    """The objective of one fit of a task, by epoch, for all seeds: ``values`` [seeds, epochs]."""

    task: int
    fit: str
    epochs: tuple[int, ...]
    values: Any


@final
@dataclass(frozen=True)
class Measures:
    """How far a fit of a task got: one number per seed of each measure."""

    task: int
    fit: str
    measures: Mapping[str, Sequence[float]]


@final
@dataclass(frozen=True)
class Line:
    """One line of the comparison. ``values`` are [seeds, T (T + 1) / 2] by metric: on tasks 1 to t after each t."""

    label: str
    part: str
    """The label without its lambda: what was computed together."""
    lam: float | None
    seeds: tuple[int, ...]
    tasks: int
    values: Mapping[str, Any]
    paper: float | None = None
    seconds: float | None = None
    settings: Sequence[tuple[str, str]] = ()
    made: Sequence[Mapping[str, Any]] = ()
    objective: Sequence[Fit] = ()
    fits: Sequence[Measures] = ()
    going: bool = False
    """Whether more tasks are to come: numbers are of those so far."""
    reliability: Mapping[str, Any] = field(default_factory=dict)
    """[seeds, bins, 3]: examples, those that are right, and the sum of confidences; ``end`` and ``learned``."""


@final
@dataclass(frozen=True)
class Going:
    """What is computed while a live page is open: ``done`` of ``tasks`` tasks, 0 where their number is not known."""

    label: str
    done: int
    tasks: int
    about: str = ""
    """What it is at, in words."""


@final
@dataclass(frozen=True)
class Picture:
    """A picture of samples of a line's first run; ``source`` is a data URI."""

    label: str
    source: str
    rows: int
    columns: int


@final
@dataclass(frozen=True)
class Comparison:
    """What stands in one table: lines, metrics, and what is told beside them."""

    name: str
    title: str
    tasks: tuple[str, ...]
    score: str
    """The metric of the headline, and what it is called in the table."""
    score_name: str
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    about: str = ""
    explained: str = ""
    notes: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    going: tuple[Going, ...] = ()
    thinned: str = ""
    """A sentence where the objectives of only some epochs are on the page."""

    def described(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "explained": self.explained,
            "tasks": list(self.tasks),
            "score": {"metric": self.score, "name": self.score_name},
            "metrics": [asdict(metric) for metric in self.metrics],
            "lines": [_line(line) for line in self.lines],
            "notes": list(self.notes),
            "unfinished": list(self.unfinished),
            "pictures": [asdict(picture) for picture in self.pictures],
            "going": [asdict(each) for each in self.going],
            "thinned": self.thinned,
        }


def _line(line: Line) -> dict[str, Any]:
    return {
        "label": line.label,
        "part": line.part,
        "lam": line.lam,
        "seeds": list(line.seeds),
        "tasks": line.tasks,
        "values": {name: packed(values) for name, values in line.values.items()},
        "paper": line.paper,
        "seconds": line.seconds,
        "going": line.going,
        "settings": [list(pair) for pair in line.settings],
        "made": [dict(one) for one in line.made],
        "objective": [
            {"task": fit.task, "fit": fit.fit, "epochs": list(fit.epochs), "values": packed(fit.values)}
            for fit in line.objective
        ],
        "fits": [
            {"task": fit.task, "fit": fit.fit, "measures": {name: list(each) for name, each in fit.measures.items()}}
            for fit in line.fits
        ],
        "reliability": {when: packed(values) for when, values in line.reliability.items()},
    }


def packed(values: Any) -> dict[str, Any]:
    """An array as base64 of float32 where that is exact, and else of float64; little-endian."""
    wide = np.ascontiguousarray(values, dtype="<f8")
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f4")
    exact = bool(np.array_equal(narrow.astype("<f8"), wide, equal_nan=True))
    return {"size": 4 if exact else 8, "data": b64encode((narrow if exact else wide).tobytes()).decode()}
