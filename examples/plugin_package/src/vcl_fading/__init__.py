"""VCL that forgets a little: before each task, q_{t-1} is replaced by q_{t-1}^(1 - f) p^f."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from vcl import Method, VariationalKL
from vcl.beliefs import fade
from vcl.fitting.loop import silent
from vcl.lab.plugin import Bound, Fit, Limit, MethodEntry


@dataclass(frozen=True)
class Fading:
    """q_t = proj( q_{t-1}^(1 - f) p^f p(D_t | theta) )."""

    inner: VariationalKL
    forget: float

    def initial(self, prior: Any) -> Any:
        """The prior as a belief."""
        return self.inner.initial(prior)

    def __call__(self, target: Any, rng: Any, report: Any = silent) -> Any:
        """The fit to the new data and the faded past."""
        prior = target.prior.to(target.q.mean.device).expand(target.q.mean.shape[0])
        return self.inner(target._replace(q=fade(target.q, prior, self.forget)), rng, report)


@dataclass(frozen=True)
class Settings:
    """What ``--set`` changes."""

    fit: Fit = field(default_factory=Fit)
    bound: Bound = field(default_factory=Bound)
    forget: Annotated[float, Limit(0.001, 0.999), "share of the prior in the tempered posterior"] = 0.01


def build(s: Settings) -> Method[Any]:
    """The method of these settings."""
    inner = VariationalKL(s.fit.ascent(), s.bound.draws, s.bound.estimator, init_var=s.bound.init_var)
    return Method(Fading(inner, s.forget))


METHODS = [MethodEntry("vcl-fading", "VCL with a forgetting factor", Settings, build)]
