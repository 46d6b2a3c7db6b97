"""What an update did, as values and as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

from torch import Tensor

from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.mean_field import MeanField
from vcl.fitting.health import MANY, still_moving
from vcl.fitting.journal import Journal
from vcl.fitting.loop import Progress
from vcl.learner.way import Step
from vcl.models.base import Model
from vcl.recursion import State

FEW = 4
"""The layers that a line names, those with the largest KL."""


class Update(NamedTuple):
    """One update: its data, its fit, and what the belief says about it."""

    task: str
    head: str
    examples: int
    seconds: float
    epochs: int
    objective: float | None
    """The mean objective of the last epoch, per example, in nats; None where no fit ran."""
    limited: float | None
    """The share of log variances that moved as far as the steps allow; None where the fit has no variances."""
    reach: float
    kl: Mapping[str, float]
    """KL(q_t || q_{t-1}) of each tensor or layer, in nats."""
    lost: float
    """What the fit to earlier data lost by the belief's own estimate, in nats."""
    notes: tuple[str, ...]
    growth: bool = False
    """Whether the steps limit only how far log variances grow: fits by natural gradients."""
    fits: int = 1
    """The fits that the epochs belong to."""

    def line(self) -> str:
        """One line for people."""
        fits = f" in {self.fits} fits" if self.fits > 1 else ""
        parts = [f"{self.task}: {self.examples} examples, {self.epochs} epochs{fits}, {self.seconds:.1f} s"]
        if self.limited is not None:
            moving = still_moving(self.limited, self.reach, self.growth)
            parts.append("variances converged" if self.limited < MANY else moving)
        if self.kl:
            total = sum(self.kl.values())
            most = sorted(self.kl.items(), key=lambda each: -each[1])[:FEW]
            shown = ", ".join(f"{name} {value:.0f}" for name, value in most)
            parts.append(f"KL {total:.0f} nats ({shown}{', …' if len(self.kl) > FEW else ''})")
        if self.lost > 0:
            parts.append(f"the fit to earlier data lost about {self.lost:.1f} nats")
        return "; ".join((*parts, *self.notes))

    def described(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**self._asdict(), "kl": dict(self.kl), "notes": list(self.notes)}

    @classmethod
    def from_described(cls, given: Mapping[str, Any]) -> Update:
        """The inverse of :meth:`described`."""
        return cls(**{**given, "kl": dict(given["kl"]), "notes": tuple(given["notes"])})


@final
class Watch:
    """Receives the reports of the fits of an update, and passes them on."""

    def __init__(self, show: Any, journal: Journal | None = None) -> None:
        self.show = show
        self.journal = Journal() if journal is None else journal
        """Where stages of the update are kept."""
        self.last: Progress | None = None
        self.health: Any = None
        self.notes: dict[str, None] = {}
        self.epochs = self.fits = 0

    def begin(self) -> None:
        """A step of the recursion begins. Its first variational fit is that of q_t; a coreset's comes after it."""
        self.health = None

    def __call__(self, progress: Progress) -> None:
        """Keep what an update is described with."""
        self.last = progress
        if progress.note:
            self.notes[progress.note] = None
        else:
            self.epochs += 1
            self.fits += progress.epoch == 1
        if progress.health is not None and self.health is None:
            self.health = progress.health
        self.show(progress)


def lost(before: Any, after: Tensor, prior: MeanField) -> float:
    """1/2 (m_t - m_{t-1})^T (P_{t-1} - P_0) (m_t - m_{t-1}): the second-order loss of log p(D_{1:t-1} | theta).

    P_{t-1} is the precision of q_{t-1} and P_0 the prior's. It is an estimate: the belief is all that is known of old
    data. ``after`` is m_t [R, D] over the parameters of q_{t-1}.
    """
    pulled = float(before.factor().pull(after).sum())
    delta = (-prior.restrict(before.layout).log_var.to(before.mean)).exp()
    part = DiagonalFactor(before.layout, before.mean, delta.expand_as(before.mean))
    return max(0.0, pulled - float(part.pull(after).sum()))


def recorded(step: Step, state: State[Any], examples: int, watch: Watch, seconds: float, model: Model) -> Update:
    """What an update did, from the states before and after it and the reports of its fits."""
    health, last = watch.health, watch.last
    past = 0.0 if step.before.t == 0 else _past(step.before.propagated, state, model.prior(state.heads))
    return Update(
        step.task, step.head, examples, seconds, watch.epochs,
        None if last is None else float(last.objective.mean()) / examples,
        None if health is None else float(health.limited.max()), 0.0 if health is None else health.reach,
        {} if health is None else {name: float(value.sum()) for name, value in health.kl.items()}, past,
        tuple(watch.notes), False if health is None else health.growth, watch.fits,
    )  # fmt: skip


def _past(before: Any, state: State[Any], prior: MeanField) -> float:
    """:func:`lost` over the parameters of before, in their shapes of now: data said nothing of outputs that are new."""
    known, grown = set(before.layout.names), before.grow(prior)
    part = grown.layout.where(lambda name: name in known)
    return lost(grown.restrict(part), state.propagated.restrict(part).mean, prior)
