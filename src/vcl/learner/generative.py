"""A generator that learns one set of images after another: the recursion for VAEs, as one object."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import reduce
from hashlib import sha256
from math import exp, prod
from pathlib import Path
from typing import Any, Self, final

import torch
from safetensors.torch import load, save
from torch import Tensor

from vcl.coresets import Nothing
from vcl.data import Array, as_tensor, concat, unlabelled
from vcl.errors import VclError
from vcl.fitting.loop import Ascent, Report, silent
from vcl.learner.as_it_was import as_it_was
from vcl.learner.bounded import read_bounded
from vcl.learner.checkpoint import FAULTS, from_bytes, to_bytes
from vcl.learner.folder import replace_file
from vcl.models.fingerprint import check_model
from vcl.models.vae import Vae
from vcl.ops.rng import Rng
from vcl.predicting.generation import ThetaChoice, generate, log_marginal
from vcl.projections.vi import VariationalKL
from vcl.recursion import Method, State, Task, initial, learn

FORMAT = 1


def _check(about: Mapping[str, Any], state: bytes) -> str:
    """A checksum of all that a file holds."""
    return sha256(json.dumps(about, sort_keys=True).encode() + state).hexdigest()


def generative_vcl(ascent: Ascent | None = None, draws: int = 10) -> Method[Any]:
    """VCL as in the authors' generative runs: means kept, optimised log deviations reset to -6."""
    how = Ascent(epochs=200, batch=50, lr=1e-4) if ascent is None else ascent
    project = VariationalKL(
        how, draws, start="reset", init_var=exp(-12), ml_start=False, init="glorot", climbs="log_sd"
    )
    return Method(project, Nothing(), project)


@final
class GenerativeLearner:
    """A VAE per task; the decoders share a part that has a posterior q_t. Results have one entry per seed, first axis.

    A seed that becomes non-finite is set aside (``state.set_aside``) and has no entry from then on. ``method`` is any
    projection and coreset rule that supports latent variables (default: :func:`generative_vcl`).
    """

    def __init__(
        self,
        model: Vae,
        method: Method[Any] | None = None,
        seeds: tuple[int, ...] = (0,),
        device: torch.device | str = "cpu",
    ) -> None:
        if not seeds:
            raise VclError("seeds is empty; give at least one seed.")
        self.model, self.rng = model, Rng(tuple(seeds))
        self.method = generative_vcl() if method is None else method
        self.state: State[Any] = initial(model, self.method, len(seeds), device)
        self.shapes: dict[str, tuple[int, ...]] = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks learned so far."""
        return tuple(self.shapes)

    def update(self, x: Array, task: str, report: Report = silent) -> None:
        """Learn from images x [N, ...], pixels from 0 to 1 or uint8. A known task resumes training."""
        if not isinstance(task, str):
            raise VclError(f"task is {task!r}; give its name as a string.")
        self.update_together({task: x}, report)

    def update_together(self, images: Mapping[str, Array], report: Report = silent) -> None:
        """Learn several generators at once, from the images [N, ...] of each, by one step of the recursion."""
        parts, shapes = [], dict[str, tuple[int, ...]]()
        for name, x in images.items():
            part, shape = unlabelled(self.images(x), name, name, len(self.rng.seeds)), tuple(x.shape[1:])
            if part.size == 0:
                raise VclError(f"task {name!r} has no images; give at least one.")
            if self.shapes.get(name, shape) != shape:
                raise VclError(f"task {name!r} had images of shape {self.shapes[name]}, not {shape}; use a new name.")
            parts.append(part)
            shapes[name] = shape
        if not parts:
            raise VclError("there are no images to learn from; give those of at least one task.")
        heads = {name: prod(shape) for name, shape in shapes.items()}
        step = Task("/".join(shapes), reduce(concat, parts), heads=heads)
        with as_it_was():
            (self.state,) = learn(self.state, [step], self.model, self.method, self.rng, report)
        self.shapes |= shapes

    def sample(self, task: str, count: int, seed: int = 0, theta: ThetaChoice = "drawn") -> Tensor:
        """``count`` images of ``task`` as pixel means [R, count, ...]; the same for the same seed."""
        rng = self.rng_for("sample", seed)
        images = generate(self._belief(task), self.model, task, count, rng, theta)
        return images.view(*images.shape[:2], *self.shapes[task])

    def log_prob(self, x: Array, task: str, draws: int = 5000, seed: int = 0, theta: ThetaChoice = "mean") -> Tensor:
        """log p(x) of each image x [N, ...] under ``task``'s generator [R, N], by importance sampling."""
        belief = self._belief(task)
        if tuple(x.shape[1:]) != self.shapes[task]:
            raise VclError(
                f"the images have shape {tuple(x.shape[1:])}; those of task {task!r} have {self.shapes[task]}."
            )
        x = self.images(x)
        self.model.pixels.check(x, "the images")
        rng = self.rng_for("log_prob", seed)
        return log_marginal(belief, self.model, x.expand(len(rng.seeds), *x.shape), task, rng, draws, theta)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state, written atomically. Model and method are code and are not saved."""
        about, state = {"format": FORMAT, "seeds": self.rng.seeds, "shapes": self.shapes}, to_bytes(self.state)
        parts = {"learner": json.dumps({**about, "check": _check(about, state)}).encode(), "state": state}
        content = save({name: torch.frombuffer(bytearray(part), dtype=torch.uint8) for name, part in parts.items()})
        try:
            replace_file(Path(path), content)
        except OSError as error:
            raise VclError(
                f"cannot write {os.fspath(path)} ({error.strerror or error}); free space or give another path."
            ) from error

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Vae,
        method: Method[Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """The learner that :meth:`save` wrote; give the same model and method."""
        if not os.path.isfile(path):  # noqa: PTH113
            raise VclError(f"there is no file {os.fspath(path)}; give the path that a learner was saved to.")
        try:
            parts = {name: bytes(value.numpy()) for name, value in load(read_bounded(path)).items()}
            about, state = json.loads(parts["learner"]), parts["state"]
            if type(about["format"]) is int and about["format"] > FORMAT:
                raise VclError(
                    f"{os.fspath(path)} has format {about['format']}, and this version of vcl reads up to {FORMAT}; "
                    "install a newer version of vcl."
                )
            told = {name: value for name, value in about.items() if name != "check"}
            if about.get("check", _check(told, state)) != _check(told, state):  # older files have none
                raise ValueError("it is not what was saved")
            seeds, shapes = tuple(about["seeds"]), {task: tuple(shape) for task, shape in about["shapes"].items()}
            fine = about["format"] == FORMAT and bool(seeds) and all(type(seed) is int for seed in seeds)
            if not fine or any(type(side) is not int for shape in shapes.values() for side in shape):
                raise ValueError("its format, seeds or shapes are of other types than were saved")
        except FAULTS as error:
            said = str(error).partition("\n")[0]
            raise VclError(
                f"{os.fspath(path)} is not a saved learner, or it is damaged ({said}); save it again."
            ) from error
        learner = cls(model, method, seeds, device)
        learner.state = from_bytes(state, device)
        learner.shapes = shapes
        q = learner.state.propagated
        try:
            check_model(model, q.layout, learner.state.heads, learner.state.fingerprint, q.mean)
        except VclError as error:
            raise VclError(f"{os.fspath(path)} was saved with another model: {error}") from error
        return learner

    def images(self, x: Array) -> Tensor:
        """Images on the belief's device; floating-point pixels in its dtype."""
        x, mean = as_tensor(x, "x"), self.state.propagated.mean
        return x.to(mean) if x.is_floating_point() else x.to(mean.device)

    def rng_for(self, *purpose: object) -> Rng:
        """The randomness of the remaining seeds."""
        return self.rng.select(self.state.alive).at(*purpose)

    def _belief(self, task: str) -> Any:
        if task not in self.shapes:
            known = ", ".join(self.shapes) or "none yet"
            raise VclError(f"task {task!r} was never learned; known are: {known}.")
        return self.state.predictive[task]
