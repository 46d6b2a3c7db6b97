"""Models: a prior over theta and p(D | theta)."""

from vcl.models.base import Model
from vcl.models.linear import LinearGaussian
from vcl.models.network import Network, mlp

__all__ = ["LinearGaussian", "Model", "Network", "mlp"]
