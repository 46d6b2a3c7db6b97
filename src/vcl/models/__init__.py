"""Models: a prior over theta and p(D | theta)."""

from vcl.models.adapters import LowRank as LowRank
from vcl.models.adapters import adapters_in as adapters_in
from vcl.models.adapters import with_adapters as with_adapters
from vcl.models.base import HasOutputs as HasOutputs
from vcl.models.base import LatentModel as LatentModel
from vcl.models.base import Model as Model
from vcl.models.likelihoods import Categorical as Categorical
from vcl.models.likelihoods import HasCdf as HasCdf
from vcl.models.likelihoods import HasMoments as HasMoments
from vcl.models.likelihoods import HeteroscedasticNormal as HeteroscedasticNormal
from vcl.models.likelihoods import Likelihood as Likelihood
from vcl.models.likelihoods import Normal as Normal
from vcl.models.likelihoods import Poisson as Poisson
from vcl.models.likelihoods import Probit as Probit
from vcl.models.linear import LinearGaussian as LinearGaussian
from vcl.models.network import Network as Network
from vcl.models.network import mlp as mlp
from vcl.models.pixels import BernoulliPixels as BernoulliPixels
from vcl.models.pixels import NormalPixels as NormalPixels
from vcl.models.pixels import Pixels as Pixels
from vcl.models.prefix import Prefix as Prefix
from vcl.models.prefix import split_prefix as split_prefix
from vcl.models.selection import select_posterior as select_posterior
from vcl.models.split_head import split_head as split_head
from vcl.models.vae import Vae as Vae
from vcl.models.vae import mlp_vae as mlp_vae
