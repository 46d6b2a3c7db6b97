"""What an experiment is: a dataset, a stream of tasks made of it, settings, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vcl.lab.discriminative import DISCRIMINATIVE
from vcl.lab.kind import Kind
from vcl.lab.settings import Preset
from vcl.lab.streams import Arrays, Stream
from vcl.ops.rng import Rng


class Experiment(NamedTuple):
    """The paper's settings and nothing else."""

    name: str
    about: str
    dataset: str
    presets: Mapping[Preset, Any]
    """Settings, of the class that the kind of experiment takes."""
    stream: Callable[[Arrays, Any, Rng], Stream]
    kind: Kind = DISCRIMINATIVE
    paper: Mapping[str, float] = {}
    """Average accuracy after the last task that the paper reports, in %, by method."""
    overrides: Mapping[Preset, Mapping[str, Mapping[str, Any]]] = {}
    """What a method does differently: settings by preset and method."""
    grids: Mapping[str, tuple[float, ...]] = {}
    """The lambdas that the paper tried, by method."""
