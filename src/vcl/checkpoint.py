"""A State as bytes (safetensors, never pickle) and back: all that continues, on any machine."""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vcl.data import Data, Source
from vcl.errors import VclError
from vcl.gaussian import Belief, Gaussian
from vcl.layout import Layout
from vcl.projections.exact import FullGaussian
from vcl.projections.point import Point
from vcl.projections.quadratic import Quadratic
from vcl.recursion import State

FORMAT = 1
BELIEFS: dict[str, Any] = {belief.__name__: belief for belief in (Gaussian, FullGaussian, Point, Quadratic)}
"""Beliefs are named tuples of a layout and tensors, so a name and the tensors are all that needs saving."""


def to_bytes(state: State[Any]) -> bytes:
    """The whole state."""
    return save(packed(state))


def packed(state: State[Any]) -> dict[str, Tensor]:
    """The whole state as named tensors in memory of their own, on the CPU.

    Beliefs that are one and the same object (a joint q_t for all heads) are stored once.
    """
    beliefs: list[Any] = [state.propagated]
    places = {}
    for head, belief in state.predictive.items():
        if not any(belief is known for known in beliefs):
            beliefs.append(belief)
        places[head] = next(place for place, known in enumerate(beliefs) if belief is known)
    tensors: dict[str, Tensor] = {}
    for place, belief in enumerate(beliefs):
        tensors.update({f"belief.{place}.{field}": getattr(belief, field) for field in belief._fields[1:]})
    if state.coreset is not None:
        tensors.update({f"coreset.{field}": getattr(state.coreset, field) for field in ("x", "y", "source")})
    about = {
        "format": FORMAT,
        "t": state.t,
        "heads": dict(state.heads),
        "beliefs": [{"kind": type(belief).__name__, "layout": belief.layout} for belief in beliefs],
        "predictive": places,
        "sources": None if state.coreset is None else state.coreset.sources,
    }
    tensors["about"] = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def from_bytes(content: bytes, device: torch.device | str = "cpu") -> State[Any]:
    """The state that :func:`to_bytes` wrote, on ``device``."""
    try:
        tensors = load(content)
        about = json.loads(bytes(tensors.pop("about").numpy()))
    except (SafetensorError, KeyError, ValueError) as error:
        raise VclError(f"this is no saved vcl state, or it is damaged ({error}); save it anew.") from error
    if about["format"] != FORMAT:
        raise VclError(f"this state has format {about['format']}; this version of vcl reads format {FORMAT}.")
    tensors = {name: value.to(device) for name, value in tensors.items()}
    beliefs = [_belief(place, entry, tensors) for place, entry in enumerate(about["beliefs"])]
    coreset = None
    if about["sources"] is not None:
        x, y, source = (tensors[f"coreset.{field}"] for field in ("x", "y", "source"))
        coreset = Data(x, y, source, tuple(Source(*each) for each in about["sources"]))
    predictive = {head: beliefs[place] for head, place in about["predictive"].items()}
    return State(about["t"], about["heads"], beliefs[0], predictive, coreset)


def _belief(place: int, entry: dict[str, Any], tensors: dict[str, Tensor]) -> Belief:
    names, shapes = entry["layout"]
    layout = Layout(tuple(names), tuple(tuple(shape) for shape in shapes))
    kind = BELIEFS[entry["kind"]]
    belief: Belief = kind(layout, *(tensors[f"belief.{place}.{field}"] for field in kind._fields[1:]))
    return belief
