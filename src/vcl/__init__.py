"""Variational continual learning: q_t(theta) = proj(q_{t-1}(theta) p(D_t | theta)), q_0 = prior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vcl.beliefs.mean_field import MeanField, kl
    from vcl.coresets import Budget, Everything, KCenter, Nothing, Only, RandomK
    from vcl.data import Data, Source, dataset, unlabelled
    from vcl.errors import VclError
    from vcl.fitting.curvature import Curvature
    from vcl.fitting.loop import Ascent
    from vcl.learner.checkpoint import from_bytes, to_bytes
    from vcl.learner.generative import GenerativeLearner, generative_vcl
    from vcl.models import LinearGaussian, Model, Network, Vae, mlp, mlp_vae
    from vcl.models.likelihoods import Categorical, Normal, Probit
    from vcl.models.pixels import BernoulliPixels, NormalPixels
    from vcl.ops.rng import Rng
    from vcl.predicting.generation import classifier_uncertainty, generate, log_marginal
    from vcl.predicting.prediction import predict, predict_draws
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
    "GenerativeLearner",
    "KCenter",
    "LaplacePropagation",
    "LinearGaussian",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "MeanField",
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
    "predict_draws",
    "to_bytes",
    "unlabelled",
]

# Public names are found when they are first asked for, so that the command line need not wait for torch.
_HOMES = {
    "vcl.learner.checkpoint": (
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
    "vcl.fitting.curvature": ("Curvature",),
    "vcl.data": (
        "Data",
        "Source",
        "dataset",
        "unlabelled",
    ),
    "vcl.errors": ("VclError",),
    "vcl.beliefs.mean_field": (
        "MeanField",
        "kl",
    ),
    "vcl.learner.generative": ("GenerativeLearner", "generative_vcl"),
    "vcl.predicting.generation": (
        "classifier_uncertainty",
        "generate",
        "log_marginal",
    ),
    "vcl.models.likelihoods": (
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
    "vcl.fitting.loop": ("Ascent",),
    "vcl.models.pixels": (
        "BernoulliPixels",
        "NormalPixels",
    ),
    "vcl.predicting.prediction": ("predict", "predict_draws"),
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
    "vcl.ops.rng": ("Rng",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'vcl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
