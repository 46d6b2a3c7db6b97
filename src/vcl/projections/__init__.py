"""Projections: each file is one approximation of q_{t-1}(theta) p(D_t | theta) by a tractable belief."""

from vcl.projections.base import Projection as Projection
from vcl.projections.base import Target as Target
from vcl.projections.ewc import ElasticWeightConsolidation as ElasticWeightConsolidation
from vcl.projections.exact import Exact as Exact
from vcl.projections.kronecker import KroneckerLaplace as KroneckerLaplace
from vcl.projections.kronecker_variational import KroneckerVariational as KroneckerVariational
from vcl.projections.laplace import LaplacePropagation as LaplacePropagation
from vcl.projections.map import MaximumAPosteriori as MaximumAPosteriori
from vcl.projections.merged import Merged as Merged
from vcl.projections.merged import merge as merge
from vcl.projections.moment_matching import MomentMatching as MomentMatching
from vcl.projections.online_linear import OnlineLinear as OnlineLinear
from vcl.projections.particles import Particles as Particles
from vcl.projections.particles import SequentialMonteCarlo as SequentialMonteCarlo
from vcl.projections.point import MaximumLikelihood as MaximumLikelihood
from vcl.projections.si import SynapticIntelligence as SynapticIntelligence
from vcl.projections.vi import VariationalKL as VariationalKL
