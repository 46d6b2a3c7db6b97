"""The generators of a finished run, to draw from later: the decoders of its first seed, without their encoders."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from torch import Tensor

from vcl.checkpoint import from_bytes
from vcl.errors import VclError, unknown
from vcl.lab.experiments import experiment
from vcl.lab.folder import ABOUT
from vcl.lab.generative.keep import ENDING
from vcl.lab.generative.kind import GENERATIVE
from vcl.lab.generative.settings import GenerativeSettings
from vcl.latent import generate
from vcl.recursion import State
from vcl.rng import Rng

MOST_IMAGES = 10_000


class Saved(NamedTuple):
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


def read(run: Path, method: str | None) -> Saved:
    """The generators that a run left in its folder."""
    try:
        about = json.loads((run / ABOUT).read_text())
        found = experiment(about["experiment"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VclError(f"{run} is not the folder of a run ({error}); give one that `vcl run` made.") from error
    if found.kind is not GENERATIVE:
        raise VclError(f"{run} is a run of {found.name}, which has no generators; give one of a generative experiment.")
    lacking = [key for key in ("methods", "settings", "settings_of", "shape") if key not in about]
    if lacking:
        raise VclError(f"{run / ABOUT} has no {lacking[0]!r}: it was written by another version; run it again.")
    there = [name for name in about["methods"] if (run / f"{name}{ENDING}").exists()]
    if not there:
        raise VclError(f"{run} holds no generators: no method of that run was finished; run it again.")
    chosen = method or there[0]
    if chosen not in there:
        raise unknown("method", chosen, there)
    known = {field.name for field in fields(GenerativeSettings)}
    values = {**about["settings"], **about["settings_of"].get(chosen, {})}
    settings = GenerativeSettings(**{name: value for name, value in values.items() if name in known})
    try:
        state = from_bytes((run / f"{chosen}{ENDING}").read_bytes())
    except (OSError, SafetensorError) as error:
        raise VclError(f"the generators of {chosen} in {run} cannot be read ({error}); run it again.") from error
    return Saved(chosen, settings, tuple(about["shape"]), state)
