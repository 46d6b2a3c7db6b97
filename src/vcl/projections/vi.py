"""Variational KL: q_t = argmin_q KL( q(theta) || q_{t-1}(theta) p(D_t | theta) / Z_t ), the paper's eq. (1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import exp
from typing import Any, Literal, final

from torch import Tensor

from vcl.beliefs.kronecker_fit import KroneckerFit
from vcl.beliefs.layout import Rows
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.mean_field_fit import CLIMBS, Climbs, MeanFieldFit
from vcl.beliefs.registry import FAMILIES
from vcl.data import Data
from vcl.engines.bound import Bound, DrawnBound, GeneralBound
from vcl.engines.choose import choose, choose_bound
from vcl.engines.general import General
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError, unknown
from vcl.fitting.guard import Climbed
from vcl.fitting.health import Health, health_of
from vcl.fitting.loop import Ascent, Report, ascend, silent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.fitting.step import Step
from vcl.models.base import Model, roles, spread
from vcl.ops.adam import make_adam
from vcl.ops.noise import Key, NoiseShape
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, fresh, start_mean
from vcl.projections.point import maximum_likelihood

Start = Literal["continue", "reset", "restart"]
STARTS: tuple[Start, ...] = ("continue", "reset", "restart")


@final
class Elbo:
    """L(q) = sum_n E_{theta ~ q} log p(y^(n) | theta, x^(n)) - KL(q || q_{t-1}), the paper's eq. (4).

    With latent variables log p is the bound of each example, and the expectation is over theta and z: S draws of both.
    The family of q defines the optimised parameters, the draws of theta and the KL; an engine computes p.
    """

    def __init__(
        self, model: Model, previous: Any, draws: int, estimator: Estimator, climbs: Climbs = "log_var"
    ) -> None:
        self.model, self.layout, self.draws, self.estimator = model, previous.layout, draws, estimator
        self.like = previous.mean
        self.fit = previous.bind(roles(model, previous.layout), climbs)
        self.bounds: dict[object, Bound] = {}
        self.noises: dict[object, NoiseShape] = {}

    def bound(self, batch: Data) -> Bound:
        """The bound that computes L(q) on such batches."""
        if batch.sources not in self.bounds:
            self.bounds[batch.sources] = self.bound_for(batch.heads)
        return self.bounds[batch.sources]

    def bound_for(self, heads: tuple[str, ...]) -> Bound:
        """The bound that computes L(q) on batches of these heads."""
        engine = choose(self.model, self.layout, heads, self.like)
        return choose_bound(engine, self.fit, self.estimator, self.draws, self.model.latent)

    def noise(self, batch: Data) -> int:
        """The number of standard normals per run: S draws for the parameters and every example's latent variables."""
        return self.noise_shape(batch).size(batch.size)

    def noise_shape(self, batch: Data) -> NoiseShape:
        """What they are for."""
        kind = (batch.sources, batch.x.shape)
        if kind not in self.noises:
            bound = self.bound(batch)
            widths, latent = bound.widths(batch), self.model.latent
            fixed = bound.noise(batch) - batch.size * sum(widths)
            self.noises[kind] = NoiseShape(self.draws, fixed, (*widths, latent) if latent else widths, bound.unit)
        return self.noises[kind]

    def seeded(self, batch: Data) -> bool:
        """Whether kernels draw the weights and generate their own noise."""
        return self.bound(batch).seeded

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(q) of each run [R], by Monte Carlo over S draws and one batch; differentiable by torch."""
        general = General(self.model, self.layout)
        if isinstance(self.fit, MeanFieldFit):
            plain = GeneralBound(general, self.fit, self.estimator, self.draws, self.model.latent)
            return plain.value(parameters, batch, total, noise)
        return DrawnBound(general, self.fit, self.draws, self.model.latent).value(parameters, batch, total, noise)

    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key) -> Step:
        """L(q) and its gradient."""
        return Step(*self.bound(batch).gradient(parameters, batch, total, noise))

    def climbed(self) -> tuple[Climbed, ...]:
        """What the optimised parameters are, in the families that are known here."""
        fit = self.fit
        if not isinstance(fit, MeanFieldFit | KroneckerFit):
            return ()
        logs = "log variances" if fit.scale == 1 else "log deviations"
        points = (Climbed("points", fit.points),) if fit.points.names else ()
        return (Climbed("means", fit.spread), Climbed(logs, fit.spread), *points)

    def parameters(self, q: Any) -> tuple[Tensor, ...]:
        """The optimised parameters at q."""
        climbed: tuple[Tensor, ...] = self.fit.parameters(q)
        return climbed

    def belief(self, parameters: tuple[Tensor, ...]) -> Any:
        """The inverse of :meth:`parameters`."""
        return self.fit.belief(parameters)


@final
@dataclass(frozen=True)
class VariationalKL:
    """Maximises the lower bound over mean and log variance, by Adam or natural gradients from Monte Carlo gradients.

    ``start`` selects where a fit begins. ``continue``: informed parameters start at q_{t-1}; those still at the prior
    start at small random means with variance ``init_var``, or, at the first task, at the maximum-likelihood solution.
    ``reset`` keeps the means of q_{t-1} but resets every variance to ``init_var`` at every task, as the authors'
    generative runs do. ``restart`` starts every task at small random means, with q_{t-1} only as the prior. ``init``
    selects the distribution of small random means: see :func:`vcl.projections.base.small_random`.

    ``family`` is the family of q: ``mean-field``, or ``full`` for small models, whose covariance has D^2 values.

    The length of Adam's steps does not depend on the scale of the gradient, so the parameterisation matters: with
    ``climbs="log_sd"`` variances move twice as fast as with ``"log_var"``. With ``natural`` the fit takes steps of
    natural gradients instead: their length does depend on it, and neither ``climbs`` nor ``init_var`` matters. Epochs
    and batch are those of ``ascent``, whose learning rate is then that of points and of the maximum-likelihood start.

    The last report of a fit has its :class:`vcl.fitting.health.Health`: whether variances were still moving. The family
    ``full`` has none: its steps move a Cholesky factor, so no step limits a single variance.
    """

    ascent: Ascent = field(default_factory=Ascent)
    draws: int = 10
    estimator: Estimator = "weights"
    start: Start = "continue"
    init_var: float = exp(-6)
    init_sd: float = 0.1
    ml_start: bool = True
    init: Init = "normal"
    climbs: Climbs = "log_var"

    family: str = "mean-field"
    natural: NaturalGradient | None = None

    def initial(self, prior: MeanField) -> Any:
        """q_0 = p, as a member of the family."""
        return self._family().from_prior(prior)

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        self.ascent.check()
        if self.draws < 1:
            raise VclError(f"draws is {self.draws}; give at least 1.")
        if not self.init_var > 0:
            raise VclError(f"init_var is {self.init_var}; a variance must be above 0.")
        if self.estimator not in ESTIMATORS:
            raise unknown("estimator", self.estimator, ESTIMATORS)
        if self.start not in STARTS:
            raise unknown("start", self.start, STARTS)
        if self.climbs not in CLIMBS:
            raise unknown("climbs", self.climbs, CLIMBS)
        self._family()
        if self.natural is not None:
            self.natural.check()
            if self.family != "mean-field":
                raise VclError(
                    f"natural gradients are for the family 'mean-field', not {self.family!r}; leave out natural, or "
                    "choose that family."
                )

    def _family(self) -> Any:
        family = FAMILIES.get(self.family)
        fitted = [name for name, known in FAMILIES.items() if hasattr(known, "bind")]
        if family is None or self.family not in fitted:
            raise unknown("family", self.family, fitted)
        return family

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use, and whether that has rules for the family."""
        q = self.initial(prior.restrict(prior.layout.touched(heads)))
        return Elbo(model, q, self.draws, self.estimator, self.climbs).bound_for(heads).name

    def __call__(self, target: Target[Any], rng: Rng, report: Report = silent) -> Any:
        """The maximiser over the parameters that the data informs; the others keep their bits."""
        return self.begin_at(None, target, rng, report)

    def begin_at(self, begin: Any | None, target: Target[Any], rng: Rng, report: Report = silent) -> Any:
        """The same by a fit that begins at the belief ``begin``, whatever ``start`` says; None: where it says."""
        self.check()
        q, model, data, *_ = target
        if data.size == 0:
            return q
        previous = q.restrict(q.layout.touched(data.heads))
        elbo = Elbo(model, previous, self.draws, self.estimator, self.climbs)
        steps, natural = self.ascent.steps(data.size), self.natural
        optimiser = make_adam if natural is None else natural.optimiser(steps, elbo.fit.scale)
        # A health counts from the start that the settings give.
        known = isinstance(elbo.fit, MeanFieldFit) and begin is None
        diagnose = partial(self._health, elbo, previous, target) if known else None
        # The start is not bound to a name, so it can be freed during the fit.
        ends = ascend(
            elbo, elbo.parameters(
                self.first(previous, target, rng, report) if begin is None else begin.restrict(previous.layout)
            ),
            data, self.ascent, rng, report, "variational fit", optimiser, diagnose,
        )  # fmt: skip
        return q.merge(elbo.belief(ends))

    def _health(self, elbo: Elbo, previous: MeanField, target: Target[Any], parameters: tuple[Tensor, ...]) -> Health:
        """How far the fit got that ends here."""
        natural, size = self.natural, target.data.size
        adams = elbo.fit.scale * self.ascent.reach(size)
        reach = adams if natural is None else natural.reach(self.ascent.steps(size))
        _, wide = self._new(previous, target)
        return health_of(elbo.fit, parameters, previous, wide, self.init_var, reach, natural is not None)

    def _new(self, previous: Any, target: Target[Any]) -> tuple[Rows, Rows]:
        """The rows that start at small random means, and those that start at the variance ``init_var``."""
        layout = previous.layout
        new = dict.fromkeys(layout.names, 0) if self.start == "restart" else fresh(previous, target.prior)
        drawn = spread(target.model, layout).names
        if self.start == "reset":
            return new, dict.fromkeys(drawn, 0)
        return new, {name: first for name, first in new.items() if name in drawn}

    def first(self, previous: Any, target: Target[Any], rng: Rng, report: Report) -> Any:
        """The start of the fit."""
        layout, (new, wide) = previous.layout, self._new(previous, target)
        mean = start_mean(target.model, previous, new, self.init_sd, rng, self.init)
        whole = len(new) == len(layout.names) and not any(new.values())
        if self.start != "restart" and self.ml_start and whole:
            rng = rng.at("ml")
            mean = maximum_likelihood(target.model, layout, mean, target.data, self.ascent, rng, report, self.draws)
        return previous.start(mean, wide, self.init_var)
