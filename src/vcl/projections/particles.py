"""Importance sampling and sequential Monte Carlo: q_{t-1}(theta) p(D_t | theta) as weighted particles, then a Gaussian.

Particles drawn from q_{t-1} are weighted by p(D_t | theta). One such step is *importance sampling*; if the data is much
more informative than q_{t-1}, nearly all weight falls on one particle. *Annealing* proceeds in stages instead,

    pi_j(theta) = q_{t-1}(theta) p(D_t | theta)^beta_j,    0 = beta_0 < beta_1 < ... < beta_J = 1,

each as far from the last as the effective sample size ESS = 1 / sum_k w_k^2 allows. At each stage the particles are
weighted by p(D_t | theta)^(beta_j - beta_{j-1}), resampled, and moved by a Markov kernel that leaves pi_j invariant.
This is for small models, up to a few hundred parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.errors import NonFiniteError, VclError, unknown
from vcl.fitting.journal import journal_of
from vcl.fitting.loop import Progress, Report, silent
from vcl.models.base import Model, refuse_latent
from vcl.ops.rng import Rng
from vcl.projections.base import Target, engine_at_points
from vcl.projections.hmc import LOWEST, LogLikelihoods, Swarm, draw, move
from vcl.projections.particle_weights import moments, next_rise, systematic, weigh

Refit = Literal["all", "local"]
REFITS: tuple[Refit, ...] = ("all", "local")

LEAST_RISE, LEAST_RATIO = 1e-12, 1e-4
"""The ladder has collapsed if an increase of beta is below the first, or below the second times beta."""


class Particles(NamedTuple):
    """Weighted draws of q_{t-1}(theta) p(D_t | theta) / Z_t for R runs.

    theta [R, K, D]; log_weight [R, K], whose exponentials sum to 1; log_evidence [R], the estimate of log Z_t =
    log p(D_t | D_{1:t-1}); ess [R], the smallest effective sample size of any stage; stages [R], their number;
    step [R], the kernel's final step size.
    """

    layout: Layout
    theta: Tensor
    log_weight: Tensor
    log_evidence: Tensor
    ess: Tensor
    stages: Tensor
    step: Tensor

    def refit(self) -> MeanField:
        """The mean-field Gaussian with the particles' weighted means and variances.

        v = sum_k w_k (theta_k - m)^2 / (1 - sum_k w_k^2), which is unbiased for independent draws.
        """
        weight = self.log_weight.exp()
        mean, var = moments(self.theta, weight)
        return MeanField(self.layout, mean, (var / (1 - weight.square().sum(1, keepdim=True)).to(var)).log())


class Climb(NamedTuple):
    """The state of annealing; every tensor has the runs as its first axis.

    ``label`` [R, K] is the same for copies of one particle; ``step`` is the kernel's step size; ``ess`` is the last
    effective sample size and ``least`` the smallest.
    """

    theta: Tensor
    log_lik: Tensor
    gradient: Tensor
    label: Tensor
    beta: Tensor
    step: Tensor
    log_evidence: Tensor
    ess: Tensor
    least: Tensor
    stages: Tensor

    @property
    def swarm(self) -> Swarm:
        """The particles."""
        return Swarm(self.theta, self.log_lik, self.gradient)

    def at(self, runs: Tensor) -> Climb:
        """The selected runs."""
        return Climb(*(part[runs] for part in self))

    def put(self, runs: Tensor, others: Climb) -> Climb:
        """The state with these runs replaced."""
        return Climb(*(part.index_copy(0, runs, other) for part, other in zip(self, others, strict=True)))


@final
@dataclass(frozen=True)
class SequentialMonteCarlo:
    """Weighted particles of q_{t-1}(theta) p(D_t | theta) / Z_t, refitted by a mean-field Gaussian.

    ``anneal=False`` is plain importance sampling. Otherwise each temperature is where the effective sample size falls
    to ``threshold`` times ``particles``, and each stage makes ``moves`` Hamiltonian trajectories of ``leapfrog`` steps
    per particle. Below ``min_ess`` effective (and, after the moves, distinct) particles, means and variances are
    unreliable, and an error is raised.

    ``refit="all"`` takes the moments of all particles, which estimate those of the posterior. A network's posterior has
    many symmetric modes, because its hidden units can be exchanged; averaging them gives a useless network.
    ``refit="local"`` copies one particle, drawn from the posterior, moves the copies ``moves`` times by the kernel, and
    takes the moments of the copies.
    """

    particles: int = 1000
    anneal: bool = True
    threshold: float = 0.5
    moves: int = 3
    leapfrog: int = 5
    min_ess: float = 10.0
    max_parameters: int = 500
    refit: Refit = "all"

    def initial(self, prior: MeanField) -> MeanField:
        """q_0 = p."""
        return prior

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if self.particles < 2:
            raise VclError(f"particles is {self.particles}; give at least 2, better some hundreds.")
        if not 0 < self.threshold < 1:
            raise VclError(f"threshold is {self.threshold}; give a share of the particles above 0 and below 1.")
        if self.moves < 0:
            raise VclError(f"moves is {self.moves}; give 0 or more trajectories per stage.")
        if self.leapfrog < 1:
            raise VclError(f"leapfrog is {self.leapfrog}; give at least 1 step per trajectory.")
        most = self.particles * (self.threshold if self.anneal else 1)
        if not 1 < self.min_ess <= most:
            raise VclError(
                f"min_ess is {self.min_ess:g}; give a number above 1 and up to {most:g}, the effective sample size to "
                f"which {self.particles} particles may fall, or take more particles."
            )
        if self.refit not in REFITS:
            raise unknown("refit", self.refit, REFITS)
        if self.refit == "local" and not (self.anneal and self.moves):
            raise VclError(
                f"refit is 'local' with anneal={self.anneal} and moves={self.moves}, so nothing would move; set "
                "anneal=True and at least 1 move, or refit='all'."
            )

    def engine_name(self, model: Model, prior: MeanField, heads: tuple[str, ...]) -> str:
        """The name of the engine that its fits use."""
        return engine_at_points(model, prior, heads)

    def __call__(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> MeanField:
        """The refit over the parameters that the data informs; the others keep their bits."""
        self.check()
        if target.data.size == 0:
            return target.q
        particles = self.sample(target, rng, report)
        if self.refit == "local":
            particles = self.around_one(particles, target, rng.at("local"))
        return target.q.merge(particles.refit())

    def sample(self, target: Target[MeanField], rng: Rng, report: Report = silent) -> Particles:
        """The weighted particles, over the parameters that the data informs."""
        self.check()
        refuse_latent(target.model, "sequential Monte Carlo")
        q, data = target.q.restrict(target.q.layout.touched(target.data.heads)), target.data
        if q.layout.size > self.max_parameters:
            raise VclError(
                f"{q.layout.size} parameters are too many for particles: the limit is max_parameters="
                f"{self.max_parameters}; take a smaller network or another projection, such as VariationalKL."
            )
        theta = q.draw(draw(q.mean[:, None].expand(-1, self.particles, -1), rng.at("start"))[0])
        likelihoods = LogLikelihoods(target.model, q.layout, data)
        climb = _begin(likelihoods(theta, gradient=self.anneal))
        finite = (climb.log_lik > LOWEST).sum(1)
        if bool((finite < self.min_ess).any()):
            raise NonFiniteError(
                f"the log-likelihood is finite at only {int(finite.min())} of {self.particles} draws from q; scale the "
                "inputs, or look for a model that divides by zero or takes the logarithm of a negative number.",
                (finite < self.min_ess).nonzero()[:, 0].tolist(),
            )
        if data.size == 0 or not self.anneal:
            climb = self._importance(climb, rng, report)
            log_weight = weigh(climb.log_lik.double())[0]
        else:
            climb = self._climb(climb, q, likelihoods, rng, report)
            log_weight = torch.full_like(climb.log_lik, -log(self.particles), dtype=torch.float64)
        summary = (climb.log_evidence, climb.least, climb.stages, climb.step)
        return Particles(q.layout, climb.theta, log_weight, *summary)

    def around_one(self, particles: Particles, target: Target[MeanField], rng: Rng) -> Particles:
        """Moved copies of one particle: draws from its mode of the posterior."""
        q = target.q.restrict(particles.layout)
        likelihoods = LogLikelihoods(target.model, particles.layout, target.data)
        scale = moments(particles.theta, particles.log_weight.exp())[1].sqrt()
        # Annealed particles have equal weights and are exchangeable, so the first is a fair draw.
        climb = _begin(likelihoods(particles.theta[:, :1].expand_as(particles.theta)))
        climb = climb._replace(label=torch.zeros_like(climb.label), beta=climb.beta + 1, step=particles.step)
        return particles._replace(theta=self._move(climb, q, likelihoods, scale, rng).theta)

    def _importance(self, climb: Climb, rng: Rng, report: Report) -> Climb:
        """Weights the particles with all data in one step."""
        _, log_evidence, ess = weigh(climb.log_lik.double())
        report(Progress("importance sampling, effective sample size", 100, 100, ess, self._note(ess)))
        _refuse(
            ess < self.min_ess,
            rng,
            f"importance sampling has an effective sample size of {float(ess.min()):.1f} of {self.particles} "
            f"particles, below min_ess={self.min_ess:g}, since the data is far more informative than q; take more "
            "particles, anneal=True, or smaller tasks",
        )
        return climb._replace(log_evidence=log_evidence, ess=ess, least=ess, stages=climb.stages + 1)

    def _climb(self, climb: Climb, q: MeanField, likelihoods: LogLikelihoods, rng: Rng, report: Report) -> Climb:
        """Anneals from beta = 0 to 1, each run at its own pace; finished runs wait."""
        stage = journal_of(report).stage("SMC", rng)
        saved = stage.entry
        stage.again(report)
        if saved is not None:
            climb = Climb(**{name: value.to(climb.theta.device) for name, value in saved.tensors.items()})

        def stands() -> dict[str, Tensor]:
            return climb._asdict()

        while bool((climb.beta < 1).any()):
            runs = (climb.beta < 1).nonzero()[:, 0]
            mine = Rng(tuple(rng.seeds[run] for run in runs.tolist()), rng.purpose).at("stage", len(stage.told) + 1)
            climb = climb.put(runs, self._stage(climb.at(runs), q.select(runs), likelihoods.at(runs), mine))
            climb = Climb(*(part.contiguous() for part in climb))
            done = min(100, max(1, int(100 * float(climb.beta.min()))))
            note = self._note(climb.least)
            stage.tell(report, Progress("SMC, effective sample size", done, 100, climb.ess, note), stands)
            stage.tick(stands)
        stage.finish(stands())
        return climb

    def _note(self, ess: Tensor) -> str:
        return f"at least {float(ess.min()):.0f} of {self.particles} particles"

    def _stage(self, climb: Climb, q: MeanField, likelihoods: LogLikelihoods, rng: Rng) -> Climb:
        """Weigh by p(D | theta)^(beta_j - beta_{j-1}), resample, move."""
        rise = next_rise(climb.log_lik.double(), 1 - climb.beta, self.threshold)
        beta = torch.where(rise < 1 - climb.beta, climb.beta + rise, 1.0)
        _refuse(
            (beta < 1) & (rise < (LEAST_RATIO * climb.beta).clamp_min(LEAST_RISE)),
            rng,
            f"the temperature ladder is stuck at {float(climb.beta.min()):.2g} of 1 (a step of "
            f"{float(rise.min()):.1g}), since the particles' likelihoods are too far apart; take more particles, more "
            "moves or smaller tasks, or scale the inputs",
        )
        log_weight, log_mean, ess = weigh(rise[:, None] * climb.log_lik.double())
        weight = log_weight.exp()
        scale = moments(climb.theta, weight)[1].sqrt()
        chosen = systematic(weight, rng.at("resample"))
        theta, log_lik, gradient = climb.swarm.take(chosen)
        resampled = Climb(
            theta, log_lik, gradient, climb.label.gather(1, chosen), beta, climb.step, climb.log_evidence + log_mean,
            ess, torch.minimum(climb.least, ess), climb.stages + 1,
        )  # fmt: skip
        return self._move(resampled, q, likelihoods, scale, rng)

    def _move(self, climb: Climb, q: MeanField, likelihoods: LogLikelihoods, scale: Tensor, rng: Rng) -> Climb:
        """Moves by trajectories that leave q(theta) p(D | theta)^beta invariant."""
        swarm, label, step, past = climb.swarm, climb.label, climb.step, q.factor()
        for turn in range(self.moves):
            here = rng.at("move", turn)
            swarm, moved, step = move(swarm, climb.beta, past, likelihoods, scale, step, self.leapfrog, here)
            new = int(label.max()) + torch.arange(1, self.particles + 1, device=label.device)
            label = torch.where(moved, new, label)
        distinct = label.sort(1).values.diff(dim=1).ne(0).sum(1) + 1
        _refuse(
            distinct < self.min_ess,
            rng,
            f"only {int(distinct.min())} distinct particles of {self.particles} are left at temperature "
            f"{float(climb.beta.min()):.2g} of 1, below min_ess={self.min_ess:g}, since too few moves were accepted; "
            "take more moves, more particles or smaller tasks",
        )
        theta, log_lik, gradient = swarm
        return climb._replace(theta=theta, log_lik=log_lik, gradient=gradient, label=label, step=step)


def _begin(swarm: Swarm) -> Climb:
    """All runs at beta = 0, with the step size of a standard normal in D dimensions, which scales as D^(-1/4)."""
    runs, K, D = swarm.theta.shape
    zero = swarm.theta.new_zeros(runs, dtype=torch.float64)
    label = torch.arange(K, device=zero.device).expand(runs, K)
    return Climb(*swarm, label, zero, zero + D**-0.25, zero, zero + K, zero + K, zero.long())


def _refuse(bad: Tensor, rng: Rng, sentence: str) -> None:
    """Raise NonFiniteError with ``sentence`` and the seeds of the bad runs, if any."""
    if bool(bad.any()):
        seeds = ", ".join(str(seed) for seed, is_bad in zip(rng.seeds, bad.tolist(), strict=True) if is_bad)
        raise VclError(f"{sentence} (seed {seeds}).")
