"""Variational KL: q_t = argmin_q KL( q(theta) || q_{t-1}(theta) p(D_t | theta) / Z_t ), the paper's eq. (1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Literal, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Params
from vcl.beliefs.mean_field import KlTo, MeanField
from vcl.data import Data
from vcl.engines.draws import draw_params
from vcl.engines.forward import ESTIMATORS, Estimator, Plan, evaluate_drawn, evaluate_draws, plan
from vcl.engines.perceptron import Perceptron, Workspace, fit, fit_gradient, fused
from vcl.engines.perceptron.fused import bound_gradient
from vcl.engines.places import pieces
from vcl.errors import VclError, unknown
from vcl.fitting.loop import Ascent, Report, ascend, scaled_sum, silent
from vcl.fitting.step import Step, by_autograd
from vcl.models.base import Model, Perceptrons, held, points, spread
from vcl.ops import kernels
from vcl.ops.noise import Key
from vcl.ops.rng import Rng
from vcl.projections.base import Init, Target, fresh, small_random
from vcl.projections.point import maximum_likelihood

Start = Literal["continue", "reset", "restart"]
STARTS: tuple[Start, ...] = ("continue", "reset", "restart")

Climbs = Literal["log_var", "log_sd"]
CLIMBS: tuple[Climbs, ...] = ("log_var", "log_sd")


ALIGNED = 16
"""Values: 64 bytes."""


@final
class Elbo:
    """L(q) = sum_n E_{theta ~ q} log p(y^(n) | theta, x^(n)) - KL(q || q_{t-1}), the paper's eq. (4).

    With latent variables log p is the bound of each example, and the expectation is over theta and z: S draws of both.
    The KL is over the parameters that have a posterior. Climbed are mean and log variance (or log deviation) of what is
    drawn, and the points, if there are any, beside them.
    """

    def __init__(
        self, model: Model, previous: MeanField, draws: int, estimator: Estimator, climbs: Climbs = "log_var"
    ) -> None:
        self.layout = previous.layout
        self.spread, self.held, self.points = (part(model, self.layout) for part in (spread, held, points))
        self.model, self.previous, self.kl = model, previous, KlTo(previous.restrict(self.held))
        self.draws, self.estimator, self.climbs = draws, estimator, climbs
        self.plans: dict[int, Plan] = {}
        self.perceptrons = Perceptrons(model, self.layout)
        self.workspace = Workspace()

    def plan(self, batch: Data) -> Plan:
        """How each parameter is treated in batches of this size; found by one recorded pass and kept."""
        if batch.size not in self.plans:
            one = Data(batch.x[0], batch.y[0], batch.source[0], batch.sources)
            params = self.layout.split(self.previous.mean[0])
            zero = self.previous.mean.new_zeros(batch.size, self.model.latent) if self.model.latent else None
            self.plans[batch.size] = plan(
                lambda p: self.model.log_lik(p, one, zero),
                params, batch.size, self.estimator, self.model.row_wise, self.points.names,
            )  # fmt: skip
        return self.plans[batch.size]

    def noise(self, batch: Data) -> int:
        """S draws of the plan's noise, and of every example's latent variables."""
        each = self.plan(batch).noise + batch.size * self.model.latent
        # A GPU reads four values at once where each draw's noise begins at a multiple of them; what is over is unused.
        return self.draws * (-(-each // ALIGNED) * ALIGNED if self.previous.mean.is_cuda else each)

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key) -> Tensor:
        """L(q) of each run, by Monte Carlo over S draws and one batch."""
        mean, log_var, fixed = self.moments(parameters)
        expected = self.expected_log_lik(mean, log_var.exp(), batch, noise, fixed)
        return scaled_sum(expected, total) - self.kl(*(self.spread.cut(part, self.held) for part in (mean, log_var)))

    def seeded(self, batch: Data) -> bool:
        """Whether weights are drawn by kernels that make their own noise."""
        if self.estimator != "weights" or not kernels.usable(self.previous.mean):
            return False
        return self.plan(batch).row_wise or self.perceptron(self.previous.mean, batch) is not None

    @torch.no_grad()
    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key) -> Step:
        """L(q) and its gradient: the KL's written out, the fit's too for a perceptron and by torch for others."""
        if self.held.names != self.spread.names[: len(self.held.names)]:
            return by_autograd(self, parameters, batch, total, noise)
        mean, log, *rest = parameters
        log_var = log if self.climbs == "log_var" else 2 * log
        net = self.perceptron(mean, batch)
        if net is not None and mean.is_cuda:
            return self.by_kernels(net, parameters, batch, total, noise)
        if net is not None:
            assert isinstance(noise, Tensor)
            value, g_mean, g_log_var, kl = self.by_hand(net, mean, log_var, batch, total, noise)
            g_rest: list[Tensor] = []
        else:
            var = log_var.exp()
            value, (g_mean, g_var, *g_rest) = self.by_torch((mean, var, *rest), batch, total, noise)
            g_log_var, size = g_var.mul_(var), self.held.size
            q_mean, q_log_var, to_mean, to_log_var, q_var = (
                part[:, :size] for part in (mean, log_var, g_mean, g_log_var, var)
            )
            kl = self.kl.taken_from(q_mean, q_log_var, to_mean, to_log_var, q_var)
        g_log = g_log_var if self.climbs == "log_var" else g_log_var.mul_(2)
        return Step(value - kl, (g_mean, g_log, *g_rest))

    def by_kernels(
        self, net: Perceptron, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key
    ) -> Step:
        """L(q) and its gradient on a CUDA device."""
        mean, log = parameters
        q = mean, log if self.climbs == "log_var" else 2 * log
        how = self.layout, self.estimator, self.draws
        value, g_mean, g_log_var = bound_gradient(net, *how, q, self.kl.moments, batch, total, noise)
        return Step(value, (g_mean, g_log_var if self.climbs == "log_var" else g_log_var.mul_(2)))

    def perceptron(self, mean: Tensor, batch: Data) -> Perceptron | None:
        """The perceptron whose gradient is written out, if the model is one on batches like this."""
        return self.perceptrons.on(mean, batch, fused.suits if mean.is_cuda else fit.suits)

    def by_hand(
        self, net: Perceptron, mean: Tensor, log_var: Tensor, batch: Data, total: int, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The fit of a perceptron, L(q)'s gradient and the KL, taken run by run while each is in the caches."""
        kl = []

        def take(run: slice, g_mean: Tensor, g_log_var: Tensor, var: Tensor | None) -> None:
            kl.append(self.kl.taken_from(mean[run], log_var[run], g_mean, g_log_var, var, run))

        fit = fit_gradient(
            net, self.layout, self.estimator, self.draws, mean, log_var, batch, total, noise, self.workspace, take
        )
        return *fit, torch.cat(kl)

    def by_torch(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key) -> Step:
        """sum_n E_q log p(y^(n) | theta, x^(n)) and its gradient, at mean, variance and points."""

        def fit(parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key) -> Tensor:
            mean, var, *fixed = parameters
            points = pieces(self.points, fixed[0]) if fixed else {}
            return scaled_sum(self.expected_log_lik(mean, var, batch, noise, points), total)

        return by_autograd(fit, parameters, batch, total, noise)

    def parameters(self, q: MeanField) -> tuple[Tensor, ...]:
        """What is climbed, at q."""
        mean, log_var = (self.layout.cut(part, self.spread) for part in q[1:])
        drawn = mean, log_var if self.climbs == "log_var" else 0.5 * log_var
        return (*drawn, self.layout.cut(q.mean, self.points)) if self.points.names else drawn

    def belief(self, parameters: tuple[Tensor, ...]) -> MeanField:
        """The inverse: q, where points have variance 0."""
        mean, log_var, fixed = self.moments(parameters)
        means = self.layout.join({**self.spread.split(mean), **fixed}, lead=1)
        return MeanField(self.layout, means, self.layout.pad(log_var, self.spread, -inf))

    def moments(self, parameters: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Params]:
        """Mean and log variance of what is drawn, and the points."""
        mean, log, *rest = parameters
        fixed = pieces(self.points, rest[0]) if rest else {}
        return mean, log if self.climbs == "log_var" else 2 * log, fixed

    def expected_log_lik(
        self, mean: Tensor, var: Tensor, batch: Data, noise: Tensor | Key, fixed: Params | None = None
    ) -> Tensor:
        """E_q log p(y^(n) | theta, x^(n)) of each example [R, B] over S draws; ``fixed`` are the points."""

        def log_lik(params: Params, x: Tensor, y: Tensor, source: Tensor, *z: Tensor) -> Tensor:
            return self.model.log_lik(params, Data(x, y, source, batch.sources), *z)

        planned, values, latent = self.plan(batch), (batch.x, batch.y, batch.source), batch.size * self.model.latent
        if isinstance(noise, Key):
            theta = draw_params(self.spread, mean, var, noise, self.draws)
            each = self._latent(noise.beside(self.draws * latent), batch)
            return evaluate_drawn(log_lik, theta, *values, each=each, points=fixed).mean(1)
        tape = noise.view(noise.shape[0], self.draws, -1)
        each = self._latent(tape[..., planned.noise : planned.noise + latent], batch)
        tape = tape[..., : planned.noise]
        found = evaluate_draws(planned, log_lik, self.spread, mean, var, tape, *values, each=each, points=fixed)
        return found.mean(1)

    def _latent(self, noise: Tensor, batch: Data) -> tuple[Tensor, ...]:
        """The noise of every example's latent variables [R, S, B, latent], if there are any."""
        return (noise.view(len(noise), self.draws, batch.size, -1),) if self.model.latent else ()


@final
@dataclass(frozen=True)
class VariationalKL:
    """Maximise the lower bound over mean and log variance, by Adam on Monte Carlo gradients.

    Parameters that data has informed start at q_{t-1} (``continue``); those still at the prior start at small
    random means with variance ``init_var``, and if that is all of them (the first task) at the maximum-likelihood
    solution. ``reset`` keeps the means of q_{t-1} but sets every variance back to ``init_var`` at every task, as the
    authors' generative runs do. ``restart`` starts every parameter at small random means, at every task, with q_{t-1}
    as the prior only. ``init`` says which small random means: see :func:`vcl.projections.base.small_random`.

    The length of Adam's steps does not depend on the scale of the gradient, so it matters what is climbed: with
    ``climbs="log_sd"`` variances move twice as fast as with ``"log_var"``.
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

    def initial(self, prior: MeanField) -> MeanField:
        """q_0 = p."""
        return prior

    def check(self) -> None:
        """Raise one clear sentence unless these settings can be run."""
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

    def __call__(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> MeanField:
        """The maximiser over the parameters that the data touches; the others stay, bit for bit."""
        self.check()
        q, model, data, *_ = target
        if data.size == 0:
            return q
        previous = q.restrict(q.layout.touched(data.heads))
        elbo = Elbo(model, previous, self.draws, self.estimator, self.climbs)
        # The start has no name here, so that its memory is free once the climb has its copy.
        ends = ascend(
            elbo, elbo.parameters(self.first(previous, target, rng, report)),
            data, self.ascent, rng, report, "variational fit",
        )  # fmt: skip
        return q.merge(elbo.belief(ends))

    def first(self, previous: MeanField, target: Target[MeanField], rng: Rng, report: Report) -> MeanField:
        """Where the climb starts."""
        layout = previous.layout
        new = list(layout.names) if self.start == "restart" else fresh(previous, target.prior)
        mean = small_random(layout, new, previous.mean, self.init_sd, rng, self.init)
        if self.start != "restart" and self.ml_start and len(new) == len(layout.names):
            rng = rng.at("ml")
            mean = maximum_likelihood(target.model, layout, mean, target.data, self.ascent, rng, report, self.draws)
        log_vars = layout.split(previous.log_var)
        wide = spread(target.model, layout).names
        for name in wide if self.start == "reset" else [name for name in new if name in wide]:
            log_vars[name] = torch.full_like(log_vars[name], log(self.init_var))
        return MeanField(layout, mean, layout.join(log_vars, lead=1))
