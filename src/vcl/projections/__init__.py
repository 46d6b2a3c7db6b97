"""Projections: each file is one way to bring q_{t-1}(theta) p(D_t | theta) back to a tractable belief."""

from vcl.projections.base import Projection, Target
from vcl.projections.exact import Exact, FullGaussian
from vcl.projections.point import MaximumLikelihood, Point
from vcl.projections.vi import VariationalKL

__all__ = ["Exact", "FullGaussian", "MaximumLikelihood", "Point", "Projection", "Target", "VariationalKL"]
