"""Files of a generative run beside its rows: pictures after every task, and the decoders after the last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.lab.kind import EvaluationContext
from vcl.learner.checkpoint import to_bytes
from vcl.predicting.generation import generate
from vcl.recursion import State

SHOWN_IMAGES = 10
"""Images of each generator that are kept for people to look at."""

GENERATORS_SUFFIX = ".generators.safetensors"
"""How the files with decoders end; before it stands the method's name."""


def samples(context: EvaluationContext) -> Tensor:
    """Images of every task's generator so far, for people: uint8 [runs, tasks so far, SHOWN_IMAGES, ...]."""
    made = []
    for task in context.met:
        (head,) = task.heads
        rng = context.rng.at("samples", head)  # the same z after every task, so that change is the generator's
        images = generate(context.state.predictive[head], context.model, head, SHOWN_IMAGES, rng, "mean")
        made.append(images.view(*images.shape[:2], *task.train.x.shape[2:]))
    return (255 * torch.stack(made, dim=1)).round().clamp(0, 255).to(torch.uint8)


def generators(context: EvaluationContext) -> bytes:
    """The decoders after the last task."""
    kept: dict[int, MeanField | Point] = {}

    def decoder(belief: Any) -> MeanField | Point:
        if id(belief) not in kept:
            part = belief.layout.where(lambda name: context.model.role(name) != "point")
            mean = belief.layout.pick(belief.mean, part)[:1]
            log_var = belief.layout.pick(belief.log_var, part)[:1] if context.entry.draws else None
            kept[id(belief)] = Point(part, mean) if log_var is None else MeanField(part, mean, log_var)
        return kept[id(belief)]

    state = context.state
    predictive = {head: decoder(belief) for head, belief in state.predictive.items()}
    first = next(iter(predictive.values()))
    return to_bytes(State(state.t, state.heads, first, predictive, None))
