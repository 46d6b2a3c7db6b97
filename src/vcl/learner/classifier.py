"""A classifier that learns classes one after another, by a generator for each, without a memory of old images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self, final

import torch
from torch import Tensor

from vcl.data import Array, as_labels, as_tensor
from vcl.errors import VclError
from vcl.fitting.loop import Report, silent
from vcl.learner.generative import GenerativeLearner
from vcl.models.vae import Vae
from vcl.predicting.generation import ThetaChoice
from vcl.predicting.generative_classifier import class_log_marginals, classify, score
from vcl.recursion import Method

Prior = Sequence[float] | Tensor | None
"""p(y) of the classes in the order of ``classes``; None takes all alike."""


@final
class GenerativeClassifier:
    """p(y | x) = p(y) p(x | y) / p(x), with a generator for each class; one entry per seed along the first axis.

    The generators share a part of their decoders, which has the posterior q_t. A class may come in any update, alone or
    with others, and again: its generator then resumes training. ``method`` is any projection and coreset rule that
    supports latent variables (default: :func:`vcl.learner.generative_vcl`).
    """

    def __init__(
        self,
        model: Vae,
        method: Method[Any] | None = None,
        seeds: tuple[int, ...] = (0,),
        device: torch.device | str = "cpu",
    ) -> None:
        self.learner = GenerativeLearner(model, method, seeds, device)

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes learned so far, in the order in which they came."""
        return tuple(map(int, self.learner.tasks))

    def update(self, x: Array, y: Array, report: Report = silent) -> None:
        """Learn from images x [N, ...], pixels from 0 to 1 or uint8, with labels y [N], any whole numbers."""
        images, labels = as_tensor(x, "x"), as_labels(as_tensor(y, "y"), 1)
        if labels.shape != images.shape[:1] or not len(labels):
            raise VclError(
                f"there are images of shape {tuple(images.shape)} and labels of shape {tuple(labels.shape)}; give at "
                "least one image, and one label for each."
            )
        parts = {str(label): images[(labels == label).to(images.device)] for label in torch.unique(labels).tolist()}
        known = {name: shape for name, shape in self.learner.shapes.items() if shape != tuple(images.shape[1:])}
        if known:
            raise VclError(
                f"the images have shape {tuple(images.shape[1:])}; those of the other classes have "
                f"{next(iter(known.values()))}: give all classes images of one shape."
            )
        self.learner.update_together(parts, report)

    def class_log_prob(self, x: Array, draws: int = 50, seed: int = 0, theta: ThetaChoice = "mean") -> Tensor:
        """log p(x | y) of each image x [N, ...] under each of ``classes``: [R, N, C], by importance sampling."""
        learner = self.learner
        if not learner.tasks:
            raise VclError("no class has been learned yet; call update with images and labels first.")
        shape = learner.shapes[learner.tasks[0]]
        if tuple(x.shape[1:]) != shape:
            raise VclError(f"the images have shape {tuple(x.shape[1:])}; those that were learned have {shape}.")
        images = learner.images(x)
        learner.model.pixels.check(images, "the images")
        rng = learner.rng_for("class_log_prob", seed)
        stacked = images.expand(len(rng.seeds), *images.shape)
        return class_log_marginals(learner.state, learner.model, stacked, learner.tasks, rng, draws, theta)

    def predict_proba(
        self, x: Array, draws: int = 50, seed: int = 0, theta: ThetaChoice = "mean", prior: Prior = None
    ) -> Tensor:
        """p(y | x) of each image x [N, ...] and each of ``classes``: [R, N, C]."""
        return classify(self.class_log_prob(x, draws, seed, theta), prior)

    def predict(
        self, x: Array, draws: int = 50, seed: int = 0, theta: ThetaChoice = "mean", prior: Prior = None
    ) -> Tensor:
        """The most probable class of each image x [N, ...], as the label that it was learned with: [R, N]."""
        best = self.predict_proba(x, draws, seed, theta, prior).argmax(-1)
        return torch.tensor(self.classes, device=best.device)[best]

    def log_prob(
        self, x: Array, draws: int = 50, seed: int = 0, theta: ThetaChoice = "mean", prior: Prior = None
    ) -> Tensor:
        """log p(x) of each image x [N, ...], low for images of no known class: [R, N]."""
        return score(self.class_log_prob(x, draws, seed, theta), prior)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state, written atomically. Model and method are code and are not saved."""
        self.learner.save(path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Vae,
        method: Method[Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """The classifier that :meth:`save` wrote; give the same model and method."""
        loaded = GenerativeLearner.load(path, model, method, device)
        named = [task for task in loaded.tasks if not task.removeprefix("-").isdecimal()]
        if named:
            raise VclError(
                f"{os.fspath(path)} holds the task {named[0]!r}, which is no class's number; load it as a "
                "GenerativeLearner."
            )
        made = cls(model, method, loaded.rng.seeds, device)
        made.learner = loaded
        return made
