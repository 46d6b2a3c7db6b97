"""Moment matching (assumed density filtering): one factor p(y | x, theta) at a time, in a single pass over the data.

With Z(m, v) = integral of N(theta; m, diag v) p(y | x, theta), the Gaussian with the mean and variances of
N(theta; m, diag v) p(y | x, theta) / Z is

    m <- m + v dlogZ/dm,    v <- v - v^2 [ (dlogZ/dm)^2 - 2 dlogZ/dv ],

exactly if log Z is exact, as for linear-Gaussian, probit and (by quadrature) logistic regression. For deeper networks
log Z comes from moment propagation (:mod:`vcl.engines.moment_propagation`), as in probabilistic backpropagation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.journal import journal_of
from vcl.fitting.loop import Progress, Report, silent
from vcl.fitting.step import gather
from vcl.models.base import Model, refuse_latent, start_of
from vcl.models.network import TRUNK
from vcl.ops.rng import Rng
from vcl.projections.base import Target, fresh, start_mean

TICKS = 10
"""The most progress reports per pass."""


@final
@dataclass(frozen=True)
class MomentMatching:
    """Visits every example once, in a separate order for each run, and matches the moments of q times its likelihood.

    With ``batch`` above 1 the sites of a batch are computed from the same q and multiplied into it together: their
    changes of 1/v and m/v add. Keep it small (about 10): each example's change ignores the others, so many similar
    examples overshoot. A coordinate whose new variance would not be positive and finite keeps its mean and variance for
    that update, as in probabilistic backpropagation.

    Means of hidden layers that are still at the prior start at small random values of deviation ``init_sd``, because
    identical units get identical updates. Start values of the model take their place, also in heads. Everything else
    starts exactly at q.
    """

    batch: int = 1
    init_sd: float = 0.1

    def initial(self, prior: MeanField) -> MeanField:
        """q_0 = p."""
        return prior

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if self.batch < 1:
            raise VclError(f"batch is {self.batch}; give at least 1 example at a time.")
        if not self.init_sd > 0:
            raise VclError(f"init_sd is {self.init_sd}; a deviation must be above 0.")

    def __call__(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> MeanField:
        """q after one pass; parameters that the data does not inform keep their bits."""
        self.check()
        q, model, data, prior, *_ = target
        refuse_latent(model, "moment matching")
        if data.size == 0:
            return q
        part = q.restrict(q.layout.touched(data.heads))
        offered = start_of(model)
        fresh_rows = fresh(part, prior).items()
        moved = {name: first for name, first in fresh_rows if name.startswith(TRUNK) or name in offered}
        mean = start_mean(model, part, moved, self.init_sd, rng)
        mean, var = self._pass(model, part.layout, mean, part.log_var.exp(), data, rng, report)
        return q.merge(MeanField(part.layout, mean, var.log()))

    def _pass(
        self, model: Model, layout: Layout, mean: Tensor, var: Tensor, data: Data, rng: Rng, report: Report
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance [R, D] after one pass over the examples."""
        device = mean.device
        generators = rng.at("order").generators(device)
        order = torch.stack([torch.randperm(data.size, generator=g, device=device) for g in generators])
        batches = torch.split(order, self.batch, dim=1)
        length = -(-len(batches) // TICKS)
        stretches = [batches[first : first + length] for first in range(0, len(batches), length)]
        stage = journal_of(report).stage("moment matching", rng)
        saved = stage.entry
        stage.again(report)
        if saved is not None:
            mean, var = saved.tensors["mean"].to(device), saved.tensors["var"].to(device)

        def stands() -> dict[str, Tensor]:
            return {"mean": mean, "var": var}

        for number, stretch in enumerate(stretches[len(stage.told) :], start=len(stage.told) + 1):
            evidence = []
            for index in stretch:
                mean, var, log_z = update(model, layout, mean, var, gather(data, index))
                evidence.append(log_z)
            mean, var = mean.contiguous(), var.contiguous()
            value = torch.cat(evidence, dim=1).mean(1)
            _check_finite(value, mean, rng)
            stage.tell(report, Progress("moment matching", number, len(stretches), value), stands)
            stage.tick(stands)
        stage.finish(stands())
        return mean, var


def update(model: Model, layout: Layout, mean: Tensor, var: Tensor, batch: Data) -> tuple[Tensor, Tensor, Tensor]:
    """The new mean and variance [R, D] and the log evidence of each example [R, B] under the old ones.

    With g = dlogZ/dm and s = g^2 - 2 dlogZ/dv of one example, matching its moments adds s / (1 - v s) to 1/v and
    (g + m s) / (1 - v s) to m/v. The sums of these over the batch give

        v <- v / (1 + v sum s / (1 - v s)),    m <- m + v' sum g / (1 - v s),  v' the new v.
    """
    log_z, g, g_var = _gradients(model, layout, mean, var, batch)
    s = torch.addcmul(-2 * g_var, g, g)
    rest = 1 - var.unsqueeze(1) * s  # v' / v for the example alone
    fine = (rest > 0) & rest.isfinite()
    g, s, rest = g.where(fine, 0), s.where(fine, 0), rest.where(fine, 1)
    new = var / (1 + var * (s / rest).sum(1))
    moved = torch.addcmul(mean, new, (g / rest).sum(1))
    fine = (new > 0) & new.isfinite()
    return moved.where(fine, mean), new.where(fine, var), log_z


def _gradients(model: Model, layout: Layout, mean: Tensor, var: Tensor, batch: Data) -> tuple[Tensor, Tensor, Tensor]:
    """log Z [R, B] of each example and its gradients in mean and variance [R, B, D].

    Every (run, example) has its own copy of the moments, so that one backward pass of the sum gives all gradients.
    """
    shape = (mean.shape[0], batch.size, mean.shape[1])

    def one(mean: Params, var: Params, x: Tensor, y: Tensor, source: Tensor) -> Tensor:
        return model.log_evidence(mean, var, Data(x, y, source, batch.sources))[0]

    m, v = (value.detach().unsqueeze(1).expand(shape).flatten(0, 1).requires_grad_() for value in (mean, var))
    examples = (value.flatten(0, 1).unsqueeze(1) for value in (batch.x, batch.y, batch.source))
    log_z = torch.vmap(one)(layout.split(m), layout.split(v), *examples)
    g, g_var = torch.autograd.grad(log_z.sum(), (m, v))
    return log_z.detach().view(shape[:2]), g.view(shape), g_var.view(shape)


def _check_finite(value: Tensor, mean: Tensor, rng: Rng) -> None:
    fine = value.isfinite() & mean.isfinite().all(1)
    if not bool(fine.all()):
        bad = [run for run, good in enumerate(fine.tolist()) if not good]
        seeds = ", ".join(str(rng.seeds[run]) for run in bad)
        what, why = "moment matching became non-finite", "the inputs are probably too large for this prior"
        mend = "scale them, or give a smaller prior_var."
        raise NonFiniteError(f"{what} (seed {seeds}): {why}; {mend}", bad, f"{what}: {why}; {mend}")
