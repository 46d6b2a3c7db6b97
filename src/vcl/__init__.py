"""Variational continual learning: q_t(theta) = proj(q_{t-1}(theta) p(D_t | theta)), q_0 = prior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vcl.checkpoint import from_bytes, to_bytes
    from vcl.coresets import Budget, Everything, KCenter, Nothing, Only, RandomK
    from vcl.curvature import Curvature
    from vcl.data import Data, Source, dataset, unlabelled
    from vcl.errors import VclError
    from vcl.gaussian import Gaussian, kl
    from vcl.generative import GenerativeLearner, generative_vcl
    from vcl.latent import classifier_uncertainty, generate, log_marginal
    from vcl.likelihood import Categorical, Normal, Probit
    from vcl.models import LinearGaussian, Model, Network, Vae, mlp, mlp_vae
    from vcl.optimise import Ascent
    from vcl.pixels import BernoulliPixels, NormalPixels
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
    "BernoulliPixels",
    "Budget",
    "Categorical",
    "Curvature",
    "Data",
    "ElasticWeightConsolidation",
    "Everything",
    "Exact",
    "Gaussian",
    "GenerativeLearner",
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
    "NormalPixels",
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
    "Vae",
    "VariationalKL",
    "VclError",
    "classifier_uncertainty",
    "dataset",
    "from_bytes",
    "generate",
    "generative_vcl",
    "initial",
    "kl",
    "learn",
    "log_marginal",
    "mlp",
    "mlp_vae",
    "predict",
    "to_bytes",
    "unlabelled",
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
        "unlabelled",
    ),
    "vcl.errors": ("VclError",),
    "vcl.gaussian": (
        "Gaussian",
        "kl",
    ),
    "vcl.generative": ("GenerativeLearner", "generative_vcl"),
    "vcl.latent": (
        "classifier_uncertainty",
        "generate",
        "log_marginal",
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
        "Vae",
        "mlp",
        "mlp_vae",
    ),
    "vcl.optimise": ("Ascent",),
    "vcl.pixels": (
        "BernoulliPixels",
        "NormalPixels",
    ),
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
