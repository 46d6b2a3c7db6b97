"""The ways to learn, by the names of methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from vcl.errors import unknown
from vcl.learner.generators import Generative
from vcl.learner.networks import AtTheMode, IndependentWeights, Structured
from vcl.learner.way import Way

MethodName = Literal["structured", "mean-field", "laplace", "generative"]
METHOD_NAMES: tuple[MethodName, ...] = get_args(MethodName)

WAYS: Mapping[MethodName, Way] = {
    "structured": Structured(),
    "mean-field": IndependentWeights(),
    "laplace": AtTheMode(),
    "generative": Generative(),
}


def way_of(name: str) -> Way:
    """The way of a method; VclError for an unknown name."""
    if not isinstance(name, str) or name not in WAYS:
        raise unknown("method", str(name), METHOD_NAMES)
    return WAYS[name]  # type: ignore[index]
