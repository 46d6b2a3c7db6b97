"""Models: a prior over theta and p(D | theta)."""

from vcl.models.base import LatentModel, Model
from vcl.models.linear import LinearGaussian
from vcl.models.network import Network, mlp
from vcl.models.vae import Vae, mlp_vae

__all__ = ["LatentModel", "LinearGaussian", "Model", "Network", "Vae", "mlp", "mlp_vae"]
