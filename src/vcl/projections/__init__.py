"""Projections: each file is one way to bring q_{t-1}(theta) p(D_t | theta) back to a tractable belief."""

from vcl.projections.base import Projection, Target
from vcl.projections.ewc import ElasticWeightConsolidation
from vcl.projections.exact import Exact
from vcl.projections.laplace import LaplacePropagation
from vcl.projections.map import MaximumAPosteriori
from vcl.projections.moment_matching import MomentMatching
from vcl.projections.online_linear import OnlineLinear
from vcl.projections.particles import Particles, SequentialMonteCarlo
from vcl.projections.point import MaximumLikelihood
from vcl.projections.si import SynapticIntelligence
from vcl.projections.vi import VariationalKL

__all__ = [
    "ElasticWeightConsolidation",
    "Exact",
    "LaplacePropagation",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "MomentMatching",
    "OnlineLinear",
    "Particles",
    "Projection",
    "SequentialMonteCarlo",
    "SynapticIntelligence",
    "Target",
    "VariationalKL",
]
