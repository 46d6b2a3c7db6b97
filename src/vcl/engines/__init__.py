"""Engines evaluate a model under a belief: a general one for any module, a layered one for chains of layers."""

from vcl.engines.structure import Chain as Chain
from vcl.engines.structure import Fork as Fork
from vcl.engines.structure import Latent as Latent
from vcl.engines.structure import Opaque as Opaque
from vcl.engines.structure import Structure as Structure
from vcl.engines.usage import Estimator as Estimator
