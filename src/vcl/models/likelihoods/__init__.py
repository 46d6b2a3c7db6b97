"""p(y | theta, x) given the network's output: log densities, and the moments that prediction averages over draws."""

from vcl.models.likelihoods.base import HasCdf as HasCdf
from vcl.models.likelihoods.base import HasLabelPoints as HasLabelPoints
from vcl.models.likelihoods.base import HasMoments as HasMoments
from vcl.models.likelihoods.base import Likelihood as Likelihood
from vcl.models.likelihoods.classes import Categorical as Categorical
from vcl.models.likelihoods.classes import Probit as Probit
from vcl.models.likelihoods.heteroscedastic import HeteroscedasticNormal as HeteroscedasticNormal
from vcl.models.likelihoods.normal import Normal as Normal
from vcl.models.likelihoods.poisson import Poisson as Poisson
from vcl.models.likelihoods.quadrature import log_logistic_normal as log_logistic_normal
from vcl.models.likelihoods.quadrature import log_ndtr as log_ndtr
