"""Networks of the experiments, by their settings."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated

from vcl.lab.settings import Layers, Variance
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron."""

    hidden: Annotated[Layers, "units of each hidden layer"] = (100, 100)
    prior_var: Annotated[Variance, "variance of the prior of every weight"] = 1.0


def classifier(s: Mlp, shape: tuple[int, ...]) -> Network:
    """The paper's network for inputs of this shape."""
    return Network(mlp(prod(shape), s.hidden), s.hidden[-1], Categorical(), s.prior_var)
