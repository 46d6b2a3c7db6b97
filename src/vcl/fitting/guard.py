"""Stops a fit that leaves the finite numbers, and says where it left them: in which epoch, run and tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan
from typing import NamedTuple, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import Data
from vcl.errors import NonFiniteError, too_fast
from vcl.fitting.health import Health
from vcl.fitting.progress import Progress, Report

FEW = 2
"""The tensors that an error names."""
LOOKS = 50
"""How often in a fit the largest value of each tensor is taken: a GPU could take a short epoch's steps meanwhile."""


class Climbed(NamedTuple):
    """What one of the optimised parameters is, such as "log variances", and its layout; None: one tensor."""

    what: str
    layout: Layout | None


@runtime_checkable
class Named(Protocol):
    """An objective that says what its parameters are."""

    def climbed(self) -> tuple[Climbed, ...]:
        """What each of the parameters is, in their order; empty if that is not known."""
        ...


def named(objective: object, parameters: Sequence[Tensor]) -> tuple[Climbed, ...]:
    """What the parameters of an objective are; those of one that does not say so are numbered."""
    found = objective.climbed() if isinstance(objective, Named) else ()
    return found or tuple(Climbed(f"parameter {place + 1}", None) for place in range(len(parameters)))


class Fit(NamedTuple):
    """A fit as errors name it."""

    what: str
    epochs: int
    lr: float
    seeds: tuple[int, ...]
    climbed: tuple[Climbed, ...]

    def tensors(self) -> list[str]:
        """Every tensor, in the order of :func:`heights`."""
        found = []
        for what, layout in self.climbed:
            found += [what] if layout is None else [f"{what} of {name!r}" for name in layout.names]
        return found


def heights(climbed: Sequence[Climbed], parameters: Sequence[Tensor]) -> Tensor:
    """The largest absolute value of each tensor in each run [tensors, R]; NaN or infinite if any value is."""
    found = []
    for (_, layout), values in zip(climbed, parameters, strict=True):
        parts = [values] if layout is None else torch.split(values, list(layout.sizes), dim=-1)
        for part in parts:
            if part.numel():
                low, high = torch.aminmax(part.flatten(1), dim=1)
                found.append(torch.maximum(high, -low))
            else:
                found.append(values.new_zeros(len(values)))
    return torch.stack(found)


def finite(value: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Whether all numbers of each run are finite [R]: those of the objective [R] and of the parameters [R, ...]."""
    fine = value.isfinite()
    for values in parameters:  # min and max are NaN if any value is, without a mask the size of theta
        if values.numel():
            low, high = torch.aminmax(values.flatten(1), dim=1)
            fine = fine & low.isfinite() & high.isfinite()
    return fine


@final
class Guard:
    """Reports every epoch and stops a fit that becomes non-finite; the error names runs and tensors.

    Checking forces a sync, so on queued devices it lags some epochs.
    """

    def __init__(self, fit: Fit, parameters: tuple[Tensor, ...], data: Data, report: Report, lag: int) -> None:
        self.fit, self.data, self.report, self.lag = fit, data, report, lag
        self.unseen: list[tuple[int, Tensor, Tensor | None]] = []
        self.parameters, self.before = parameters, heights(fit.climbed, parameters)
        self.stride = 1 + (fit.epochs - 1) // LOOKS
        self.start: Tensor | None = None

    def epoch(
        self,
        epoch: int,
        value: Tensor,
        parameters: tuple[Tensor, ...],
        first: Tensor | None = None,
        health: Health | None = None,
    ) -> None:
        """Record an epoch: its mean objective [R], the parameters, and the objective ``first`` of its first step."""
        if epoch == 1:
            self.start = first  # before any step was taken
        self.parameters = parameters
        looked = heights(self.fit.climbed, parameters) if epoch % self.stride == 0 else None
        self.unseen.append((epoch, finite(value, parameters), looked))
        while len(self.unseen) > self.lag:
            self._look(*self.unseen.pop(0))
        self.report(Progress(self.fit.what, epoch, self.fit.epochs, value, health=health))

    def end(self) -> None:
        """Check the remaining epochs."""
        while self.unseen:
            self._look(*self.unseen.pop(0))

    def _look(self, epoch: int, fine: Tensor, looked: Tensor | None) -> None:
        if bool(fine.all()):
            self.before = self.before if looked is None else looked
            return
        now = heights(self.fit.climbed, self.parameters) if looked is None else looked
        if self.start is not None and not bool(self.start.isfinite().all()):
            fine = self.start.isfinite()
            raise self._error(
                fine,
                f"{self.fit.what} is not finite at its start",
                ", so the learning rate is not the cause: a variance (init_var, prior_var), init_sd or lambda is out "
                f"of range for this network, or the inputs are too large; {self._largest(fine, inputs=True)}.",
            )
        raise self._error(
            fine,
            f"{self.fit.what} became non-finite in epoch {epoch} of {self.fit.epochs}",
            f": {too_fast(self.fit.lr).rstrip('.')}; {self._left(fine, now)}.",
        )

    def _left(self, fine: Tensor, now: Tensor) -> str:
        """Which tensors left the finite numbers first, in the first of the bad runs."""
        run = _first_bad(fine)
        names, gone = self.fit.tensors(), (~now[:, run].isfinite()).tolist()
        lost = [name for name, bad in zip(names, gone, strict=True) if bad]
        if 0 < len(lost) < len(names):
            more = f" and {len(lost) - FEW} more" if len(lost) > FEW else ""
            return f"not finite after it: the {' and the '.join(lost[:FEW])}{more}"
        which = "every tensor left the finite numbers in it" if lost else "the objective alone left the finite numbers"
        return f"{which}, and {self._largest(fine)}"

    def _largest(self, fine: Tensor, inputs: bool = False) -> str:
        """The largest magnitude before, in the first of the bad runs, and where it was."""
        run = _first_bad(fine)
        found = dict(zip([f"the {name}" for name in self.fit.tensors()], self.before[:, run].tolist(), strict=True))
        if inputs:
            found["the inputs"] = float(self.data.x[run].abs().max())
        where = max(found, key=lambda name: inf if isnan(found[name]) else found[name])
        return f"the largest magnitude before was {found[where]:.3g}, in {where}"

    def _error(self, fine: Tensor, what: str, why: str) -> NonFiniteError:
        bad = [run for run, good in enumerate(fine.tolist()) if not good]
        seeds = dict.fromkeys(str(self.fit.seeds[run]) for run in bad)
        return NonFiniteError(f"{what} (seed {', '.join(seeds)}){why}", bad, what + why)


def _first_bad(fine: Tensor) -> int:
    return fine.tolist().index(False)
