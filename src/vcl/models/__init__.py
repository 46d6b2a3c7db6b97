"""Models: a prior over theta and p(D | theta)."""

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
from vcl.models.vae import Vae as Vae
from vcl.models.vae import mlp_vae as mlp_vae
