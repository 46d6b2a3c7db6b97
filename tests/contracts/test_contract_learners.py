"""What every learner for own data keeps: each method, for classes and for numbers, with shared and per-task heads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from own_data import QUICK, classes_of, classifier, numbers, regressor, same, small_net, targets_of, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier, ContinualRegressor, continual
from vcl.learner.continual import ContinualLearner
from vcl.learner.record import Watch
from vcl.learner.ways import METHOD_NAMES

Update = tuple[np.ndarray, np.ndarray, str | None]


class Case(NamedTuple):
    """How to make a learner, and its updates."""

    make: Callable[..., Any]
    kind: Any
    named: bool

    @property
    def net(self) -> Any:
        """A network of its kind, with other values than the first."""
        return None if self.make.keywords.get("method") == "generative" else small_net(9)

    def update(self, number: int) -> Update:
        x = numbers(40, number)
        y = classes_of(x, 2 * number) if self.kind is ContinualClassifier else targets_of(x, number)
        return x, y, f"task {number}" if self.named else None


def cases() -> Iterator[tuple[str, Case]]:
    for method in METHOD_NAMES:
        for heads in ("shared", "per-task"):
            named = heads == "per-task"
            if method != "generative":
                yield f"regression {method} {heads}", Case(partial(regressor, method=method), ContinualRegressor, named)
            elif named:
                continue  # all classes are told apart
            yield (
                f"classification {method} {heads}",
                Case(partial(classifier, method=method), ContinualClassifier, named),
            )
    yield "poisson", Case(partial(counts), ContinualRegressor, False)
    yield "heteroscedastic", Case(partial(regressor, noise="heteroscedastic"), ContinualRegressor, True)
    yield "memory", Case(partial(classifier, memory=5), ContinualClassifier, True)
    yield "forgettable", Case(partial(regressor, method="mean-field", forgettable=True), ContinualRegressor, True)


class counts(ContinualRegressor):  # noqa: N801 made like a function
    pass


CASES = dict(cases())
"""By name."""
