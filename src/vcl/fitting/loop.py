"""The training loop, shared by every projection that maximises an objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, cos, pi
from typing import Literal

import torch
from torch import Tensor

from vcl.data import Data, ready, weight_of_each
from vcl.errors import VclError, unknown
from vcl.fitting.guard import Fit, Guard, named
from vcl.fitting.health import Health
from vcl.fitting.journal import journal_of
from vcl.fitting.processes import agree_on
from vcl.fitting.progress import Progress as Progress
from vcl.fitting.progress import Report as Report
from vcl.fitting.progress import silent as silent
from vcl.fitting.standing import Path, again, go_on, result, standing
from vcl.fitting.step import MakeOptimiser, Objective, Step, make_step
from vcl.ops.adam import make_adam
from vcl.ops.devices import is_queued
from vcl.ops.out_of_memory import FIT, told_of_memory
from vcl.ops.rng import Rng

Schedule = Literal["constant", "cosine"]
SCHEDULES: tuple[Schedule, ...] = ("constant", "cosine")


Diagnose = Callable[[tuple[Tensor, ...]], Health]
"""From the last parameters of a fit to how far it got."""


def scaled_sum(log_lik: Tensor, total: int) -> Tensor:
    """An unbiased estimate of the sum over all N examples from a batch [..., B]: N/B times the batch's sum.

    The KL and other penalties are never rescaled.
    """
    return log_lik.sum(-1) * weight_of_each(log_lik.shape[-1], total)


@dataclass(frozen=True)
class Ascent:
    """Adam over shuffled batches, restarted for every fit; ``batch=None`` takes all examples at once.

    A fit returns the mean iterate over the last fraction ``average`` of its steps (0: the last iterate).
    """

    epochs: int = 100
    batch: int | None = 256
    lr: float = 1e-3
    schedule: Schedule = "constant"
    average: float = 0.0

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if self.epochs < 1:
            raise VclError(f"epochs is {self.epochs}; give at least 1.")
        if self.batch is not None and self.batch < 1:
            raise VclError(f"batch is {self.batch}; give at least 1, or none to take all examples at once.")
        if not self.lr > 0:
            raise VclError(f"lr is {self.lr}; a learning rate must be above 0.")
        if self.schedule not in SCHEDULES:
            raise unknown("schedule", self.schedule, SCHEDULES)
        if not 0 <= self.average <= 1:
            raise VclError(f"average is {self.average}; give a share of the steps, from 0 (none) to 1 (all).")

    def reach(self, examples: int) -> float:
        """The farthest that Adam can move a parameter in a fit to this many examples: the sum of its rates."""
        steps = self.steps(examples)
        return sum(self.rate(step, steps) for step in range(steps))

    def steps(self, examples: int) -> int:
        """The number of steps of a fit to this many examples."""
        return self.epochs * -(-examples // min(self.batch or examples, examples))

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step: constant, or half a cosine from ``lr`` down to 0."""
        return self.lr if self.schedule == "constant" else self.lr * 0.5 * (1 + cos(pi * step / steps))


def ascend(
    objective: Objective,
    start: tuple[Tensor, ...],
    data: Data,
    settings: Ascent,
    rng: Rng,
    report: Report = silent,
    what: str = "fit",
    optimiser: MakeOptimiser = make_adam,
    diagnose: Diagnose | None = None,
) -> tuple[Tensor, ...]:
    """Maximise ``objective`` from ``start`` (each [R, ...]) and return the final parameters.

    ``diagnose`` looks at the last iterate, and the last report has what it says.
    """
    steps = settings.steps(data.size)
    first = steps - ceil(settings.average * steps)
    path = Path()
    iterates = climb(objective, start, data, settings, rng, report, what, optimiser, diagnose, path)
    del start  # frees the memory while the fit runs, if the caller holds no reference either
    with told_of_memory(f"the {what}", FIT):
        for now, _ in iterates:
            if path.steps == first + 1:
                path.kept = tuple(value.clone() for value in now)
            elif path.steps > first:  # the mean of the iterates since ``first``
                torch._foreach_lerp_(path.kept, now, 1 / (path.steps - first))
    return path.kept or path.now


def climb(
    objective: Objective,
    start: tuple[Tensor, ...],
    data: Data,
    settings: Ascent,
    rng: Rng,
    report: Report = silent,
    what: str = "fit",
    optimiser: MakeOptimiser = make_adam,
    diagnose: Diagnose | None = None,
    path: Path | None = None,
) -> Iterator[tuple[tuple[Tensor, ...], Step]]:
    """Yields every step: the parameters after it, and the objective and gradient before it.

    Each epoch visits every example once, in a separate order for each run. Runs share the arithmetic and nothing else:
    the loss is their sum and the optimiser works element by element. The next step overwrites the parameters and the
    gradient, so copy what you keep. A fit that the journal of ``report`` knows goes on after its last saved step: keep
    in ``path`` what must be saved with it, and find the parameters at the end there, as a finished fit yields nothing.
    """
    settings.check()
    path = Path() if path is None else path
    device = start[0].device
    stage = journal_of(report).stage(what, rng)
    saved = stage.entry
    stage.again(report)
    if saved is not None and saved.done:
        again(path, saved.tensors, device)
        return
    path.now = now = tuple(value.detach().clone().contiguous() for value in start)
    del start
    batch = min(settings.batch or data.size, data.size)
    if batch == data.size:
        data = ready(data)  # every step has the same batch
    steps = settings.steps(data.size)
    order = rng.at("order").generators(device)
    take = make_step(objective, now, data, settings.lr, rng.at("noise"), optimiser)
    fit = Fit(what, settings.epochs, settings.lr, rng.seeds, named(objective, now))
    guard = Guard(fit, now, data, report, lag=1 if is_queued(device) else 0)
    values: list[Tensor] = []
    if saved is not None:
        values, guard.start = go_on(path, take, order, saved.tensors)
    agree_on(take.group, what, settings, rng, data, now, path.steps)
    begun = [each.get_state() for each in order]

    def stands() -> dict[str, Tensor]:
        guard.end()  # what is not finite is not saved
        return standing(path, take, begun, values, guard.start)

    def told(progress: Progress) -> None:
        nonlocal begun, values
        begun, values = [each.get_state() for each in order], []
        stage.tell(report, progress, stands)

    guard.report = told
    try:
        for epoch in range(len(stage.told) + 1, settings.epochs + 1):
            with told_of_memory(f"the {what}, epoch {epoch} of {settings.epochs}", FIT):
                # A full batch needs no order and no gathering.
                index = (
                    None
                    if batch == data.size
                    else torch.stack([torch.randperm(data.size, generator=g, device=device) for g in order])
                )
                for first in range(batch * len(values), data.size, batch):
                    take.rate(settings.rate(path.steps, steps))
                    step = take(None if index is None else index[:, first : first + batch])
                    values.append(step.value)
                    path.steps += 1
                    yield now, step
                    stage.tick(stands)
                health = diagnose(now) if diagnose is not None and epoch == settings.epochs else None
                guard.epoch(epoch, torch.stack(values).mean(0), now, values[0], health)
        guard.end()
    finally:
        guard.report = report  # else guard and ``told`` hold each other, and with them the fit's memory
    stage.finish(result(path))
