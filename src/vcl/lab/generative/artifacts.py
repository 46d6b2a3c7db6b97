"""Files of a generative run besides its rows: images after every task, and the decoders after the last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.lab.evaluation import EvaluationContext
from vcl.predicting.generation import generate
from vcl.recursion import State

SHOWN_IMAGES = 10
"""Images kept of each generator."""


def samples(context: EvaluationContext) -> Tensor:
    """Images from the generators of every task so far: uint8 [runs, tasks so far, SHOWN_IMAGES, ...].

    A task of several generators has as many images of each, and one more of the first where they do not divide.
    """
    made = []
    for task in context.met:
        drawn = []
        for place, head in enumerate(task.heads):
            rng = context.rng.at("samples", head)  # the same z after every task: only the generator changes
            count = SHOWN_IMAGES // len(task.heads) + (place < SHOWN_IMAGES % len(task.heads))
            if count:
                drawn.append(generate(context.state.predictive[head], context.model, head, count, rng, "mean"))
        images = torch.cat(drawn, dim=1)
        made.append(images.view(*images.shape[:2], *task.train.x.shape[2:]))
    return (255 * torch.stack(made, dim=1)).round().clamp(0, 255).to(torch.uint8)


def decoders(context: EvaluationContext) -> State[Any]:
    """The first run's state after the last task, without encoders: sampling does not need them, and they are large."""
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
    return State(state.t, state.heads, first, predictive, None)
