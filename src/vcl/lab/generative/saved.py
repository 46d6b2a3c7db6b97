"""The generators of a finished run, to draw from later: the decoders of its first seed, without their encoders."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcl.errors import VclError, unknown
from vcl.lab.experiments import experiment
from vcl.lab.folder import ABOUT
from vcl.lab.generative.artifacts import GENERATORS_SUFFIX
from vcl.lab.generative.kind import GENERATIVE
from vcl.lab.generative.settings import GenerativeSettings
from vcl.lab.reading import read_settings, reading, require, same_layout
from vcl.learner.checkpoint import unpacked
from vcl.models.base import spread
from vcl.ops.rng import Rng
from vcl.predicting.generation import generate
from vcl.recursion import State

MOST_IMAGES = 10_000
AGAIN = "run it again"
"""What to do about a file of a run."""


class SavedGenerators(NamedTuple):
    """Generators by task, and what is needed to draw from them."""

    method: str
    settings: GenerativeSettings
    shape: tuple[int, ...]
    state: State[Any]

    def images(self, task: str, count: int, seed: int) -> Tensor:
        """``count`` images of one task's generator [count, ...], weights and z drawn; a seed gives the same images."""
        if task not in self.state.predictive:
            raise unknown("task", task, list(self.state.predictive))
        if count < 1:
            raise VclError(f"--count is {count}; give at least 1.")
        if count > MOST_IMAGES:
            raise VclError(f"--count is {count}; give at most {MOST_IMAGES:,}, which is what one picture can show.")
        model = GENERATIVE.model(self.settings, self.shape)
        images = generate(self.state.predictive[task], model, task, count, Rng((seed,)).at("sample"))[0]
        return images.view(count, *self.shape)


def read(run: Path, method: str | None) -> SavedGenerators:
    """The generators that a run left in its folder, all that is read of them checked."""
    try:
        about = json.loads((run / ABOUT).read_text())
        found = experiment(about["experiment"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, VclError) as error:
        fault = str(error).rstrip(".")
        raise VclError(f"{run} is not the folder of a run ({fault}); give one that `vcl run` made.") from error
    if found.kind is not GENERATIVE:
        raise VclError(f"{run} is a run of {found.name}, which has no generators; give one of a generative experiment.")
    with reading(run / ABOUT, AGAIN):
        shape, methods = tuple(about["shape"]), about["methods"]
        require(len(shape) == 2 and all(type(side) is int and side > 0 for side in shape), f"shape is {about['shape']}")
        require(isinstance(methods, list) and all(isinstance(name, str) for name in methods), f"methods is {methods!r}")
        there = [name for name in methods if (run / f"{name}{GENERATORS_SUFFIX}").exists()]
    if not there:
        raise VclError(f"{run} holds no generators: no method of that run was finished; run it again.")
    chosen = method or there[0]
    if chosen not in there:
        raise unknown("method", chosen, there)
    with reading(run / ABOUT, AGAIN):
        settings = read_settings(GenerativeSettings, {**about["settings"], **about["settings_of"].get(chosen, {})})
        require(about["seeds"] == list(range(settings.seeds)), f"seeds is {about['seeds']!r}, of {settings.seeds}")
    path = run / f"{chosen}{GENERATORS_SUFFIX}"
    with reading(path, AGAIN):
        state = unpacked(path.read_bytes())
        check_fits(state, settings, shape)
    return SavedGenerators(chosen, settings, shape, state)


def check_fits(state: State[Any], settings: GenerativeSettings, shape: tuple[int, ...]) -> None:
    """Within :func:`reading`: that these are the decoders of one run, of the network that the settings describe."""
    with torch.device("meta"):  # shapes alone
        model = GENERATIVE.model(settings, shape)
    require(set(state.heads.values()) <= {prod(shape)}, f"its images are not of {' x '.join(map(str, shape))} pixels")
    layout = model.layout(state.heads)
    decoders = spread(model, layout)
    for belief in (state.propagated, *state.predictive.values()):
        require(belief.mean.shape[0] == 1, f"it is of {belief.mean.shape[0]} runs, not of one")
        require(belief.mean.dtype == torch.float32, f"its weights are {belief.mean.dtype}")
        require(same_layout(belief.layout, decoders), f"it is of another network than {ABOUT} says")
