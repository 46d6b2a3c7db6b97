"""Variational continual learning: q_t(theta) = proj(q_{t-1}(theta) p(D_t | theta)), q_0 = prior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vcl.checkpoint import from_bytes, to_bytes
    from vcl.coresets import Budget, Everything, KCenter, Nothing, Only, RandomK
    from vcl.curvature import Curvature
    from vcl.data import Data, Source, dataset
    from vcl.errors import VclError
    from vcl.gaussian import Gaussian, kl
    from vcl.likelihood import Categorical, Normal, Probit
    from vcl.models import LinearGaussian, Model, Network, mlp
    from vcl.optimise import Ascent
    from vcl.prediction import predict
    from vcl.projections import (
        ElasticWeightConsolidation,
        Exact,
        LaplacePropagation,
        MaximumAPosteriori,
        MaximumLikelihood,
        MomentMatching,
        OnlineLinear,
        Projection,
        SequentialMonteCarlo,
        SynapticIntelligence,
        Target,
        VariationalKL,
    )
    from vcl.recursion import Method, State, Task, initial, learn
    from vcl.rng import Rng

__all__ = [
    "Ascent",
    "Budget",
    "Categorical",
    "Curvature",
    "Data",
    "ElasticWeightConsolidation",
    "Everything",
    "Exact",
    "Gaussian",
    "KCenter",
    "LaplacePropagation",
    "LinearGaussian",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "Method",
    "Model",
    "MomentMatching",
    "Network",
    "Normal",
    "Nothing",
    "OnlineLinear",
    "Only",
    "Probit",
    "Projection",
    "RandomK",
    "Rng",
    "SequentialMonteCarlo",
    "Source",
    "State",
    "SynapticIntelligence",
    "Target",
    "Task",
    "VariationalKL",
    "VclError",
    "dataset",
    "from_bytes",
    "initial",
    "kl",
    "learn",
    "mlp",
    "predict",
    "to_bytes",
]

# Public names are found when they are first asked for, so that the command line need not wait for torch.
_HOMES = {
    "vcl.checkpoint": (
        "from_bytes",
        "to_bytes",
    ),
    "vcl.coresets": (
        "Budget",
        "Everything",
        "KCenter",
        "Nothing",
        "Only",
        "RandomK",
    ),
    "vcl.curvature": ("Curvature",),
    "vcl.data": (
        "Data",
        "Source",
        "dataset",
    ),
    "vcl.errors": ("VclError",),
    "vcl.gaussian": (
        "Gaussian",
        "kl",
    ),
    "vcl.likelihood": (
        "Categorical",
        "Normal",
        "Probit",
    ),
    "vcl.models": (
        "LinearGaussian",
        "Model",
        "Network",
        "mlp",
    ),
    "vcl.optimise": ("Ascent",),
    "vcl.prediction": ("predict",),
    "vcl.projections": (
        "ElasticWeightConsolidation",
        "Exact",
        "LaplacePropagation",
        "MaximumAPosteriori",
        "MaximumLikelihood",
        "MomentMatching",
        "OnlineLinear",
        "Projection",
        "SequentialMonteCarlo",
        "SynapticIntelligence",
        "Target",
        "VariationalKL",
    ),
    "vcl.recursion": (
        "Method",
        "State",
        "Task",
        "initial",
        "learn",
    ),
    "vcl.rng": ("Rng",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'vcl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
