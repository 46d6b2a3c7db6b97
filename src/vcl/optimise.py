"""The one training loop. Every projection that climbs an objective climbs it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from vcl.data import Data
from vcl.errors import NonFiniteError, VclError, unknown
from vcl.rng import Rng

Schedule = Literal["constant", "cosine"]
SCHEDULES: tuple[Schedule, ...] = ("constant", "cosine")


class Progress(NamedTuple):
    """One finished epoch: what is being fitted, how far it is, and the objective of each run [R]."""

    what: str
    epoch: int
    epochs: int
    objective: Tensor


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


class Objective(Protocol):
    """What is climbed: one value per run, so that stacked runs never meet."""

    def noise(self, batch: Data) -> int:
        """How many standard normals one run's estimate takes."""
        ...

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        """Estimate [R] of the objective over all ``total`` examples from one batch and noise [R, K]."""
        ...


def scaled_sum(log_lik: Tensor, total: int) -> Tensor:
    """sum over all N examples, estimated without bias from a batch [..., B]: N/B times the batch's sum.

    The only place where N/B stands. The KL and other penalties are never rescaled.
    """
    return log_lik.sum(-1) * (total / log_lik.shape[-1])


@dataclass(frozen=True)
class Ascent:
    """Adam (made anew for every fit) over shuffled batches; ``batch=None`` takes all examples at once."""

    epochs: int = 100
    batch: int | None = 256
    lr: float = 1e-3
    schedule: Schedule = "constant"

    def check(self) -> None:
        """Raise one clear sentence unless these settings can be run."""
        if self.epochs < 1:
            raise VclError(f"epochs is {self.epochs}; give at least 1.")
        if self.batch is not None and self.batch < 1:
            raise VclError(f"batch is {self.batch}; give at least 1, or none to take all examples at once.")
        if not self.lr > 0:
            raise VclError(f"lr is {self.lr}; a learning rate must be above 0.")
        if self.schedule not in SCHEDULES:
            raise unknown("schedule", self.schedule, SCHEDULES)

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
) -> tuple[Tensor, ...]:
    """Climb ``objective`` from ``start`` (each [R, ...]) and return where it ends.

    Each epoch visits every example once, in an order of its own for each run. Runs share the arithmetic and
    nothing else: the loss is their sum and Adam works element by element.
    """
    settings.check()
    device = start[0].device
    parameters = tuple(value.detach().clone().contiguous().requires_grad_() for value in start)
    batch = min(settings.batch or data.size, data.size)
    steps = settings.epochs * -(-data.size // batch)
    order = rng.at("order").generators(device)
    step = _stepper(device)(objective, parameters, data, settings.lr, rng.at("noise").generators(device))
    done = 0
    for epoch in range(1, settings.epochs + 1):
        # A whole-data batch has no order, so none is drawn and nothing is gathered.
        index = (
            None
            if batch == data.size
            else torch.stack([torch.randperm(data.size, generator=g, device=device) for g in order])
        )
        values = []
        for first in range(0, data.size, batch):
            step.rate(settings.rate(done, steps))
            values.append(step(None if index is None else index[:, first : first + batch]))
            done += 1
        value = torch.stack(values).mean(0)
        _check_finite(value, parameters, what, epoch, settings, rng)
        report(Progress(what, epoch, settings.epochs, value))
    return tuple(value.detach() for value in parameters)


class _Step(Protocol):
    """One step of Adam, and the way to set its learning rate."""

    def rate(self, lr: float) -> None: ...

    def __call__(self, index: Tensor | None) -> Tensor: ...


class _Eager:
    """A step run operation by operation."""

    def __init__(
        self,
        objective: Objective,
        parameters: tuple[Tensor, ...],
        data: Data,
        lr: float,
        generators: tuple[torch.Generator, ...],
    ) -> None:
        self.objective, self.parameters, self.data, self.generators = objective, parameters, data, generators
        self.device = parameters[0].device
        on_gpu = self.device.type == "cuda"
        # On a GPU the rate is a tensor, so that a captured step sees it change.
        self.lr = torch.tensor(lr, device=self.device) if on_gpu else lr
        # Each run is a tensor of its own to Adam: the fused kernel rounds the last few elements of a tensor
        # differently, and a run must end at the same bits whatever stands beside it.
        self.rows = [row for parameter in parameters for row in parameter.detach().unbind(0)]
        self.adam = torch.optim.Adam(self.rows, lr=self.lr, fused=True, capturable=on_gpu)

    def rate(self, lr: float) -> None:
        if isinstance(self.lr, Tensor):
            self.lr.fill_(lr)
        else:
            self.adam.param_groups[0]["lr"] = lr

    def __call__(self, index: Tensor | None) -> Tensor:
        batch = self.data if index is None else gather(self.data, index)
        noise = draw_noise(self.objective.noise(batch), self.generators, self.parameters[0])
        value = self.objective(self.parameters, batch, self.data.size, noise)
        gradients = torch.autograd.grad(-value.sum(), self.parameters)
        for row, gradient in zip(self.rows, (row for g in gradients for row in g.unbind(0)), strict=True):
            row.grad = gradient
        self.adam.step()
        return value.detach()


class _Captured:
    """The same step recorded once per batch size as a CUDA graph and replayed: no Python between its kernels."""

    WARM_UP = 3
    """Steps (real ones) that run eagerly first, so that every lazily made buffer exists before recording."""

    def __init__(
        self,
        objective: Objective,
        parameters: tuple[Tensor, ...],
        data: Data,
        lr: float,
        generators: tuple[torch.Generator, ...],
    ) -> None:
        self.eager = _Eager(objective, parameters, data, lr, generators)
        self.seen: dict[int, int] = {}
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor | None, Tensor]] = {}

    def rate(self, lr: float) -> None:
        self.eager.rate(lr)

    def __call__(self, index: Tensor | None) -> Tensor:
        size = self.eager.data.size if index is None else index.shape[1]
        if size not in self.graphs:
            self.seen[size] = self.seen.get(size, 0) + 1
            if self.seen[size] <= self.WARM_UP:
                return self._aside(index)
            self.graphs[size] = self._capture(index)
        graph, slot, value = self.graphs[size]
        if slot is not None and index is not None:
            slot.copy_(index)
        graph.replay()
        return value.clone()

    def _aside(self, index: Tensor | None) -> Tensor:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            value = self.eager(index)
        torch.cuda.current_stream().wait_stream(stream)
        return value

    def _capture(self, index: Tensor | None) -> tuple[torch.cuda.CUDAGraph, Tensor | None, Tensor]:
        graph = torch.cuda.CUDAGraph()
        for generator in self.eager.generators:
            graph.register_generator_state(generator)
        slot = None if index is None else index.clone()
        with torch.cuda.graph(graph):
            value = self.eager(slot)
        return graph, slot, value


def _stepper(device: torch.device) -> type[_Eager] | type[_Captured]:
    return _Captured if device.type == "cuda" else _Eager


def gather(data: Data, index: Tensor) -> Data:
    """The batch at ``index`` [R, B]. Unlike :meth:`Data.take` it keeps the sources, and so never looks at values."""
    runs = torch.arange(data.runs, device=data.x.device)[:, None]
    source = data.source[:, : index.shape[1]] if len(data.sources) == 1 else data.source[runs, index]
    return Data(data.x[runs, index], data.y[runs, index], source, data.sources)


def draw_noise(size: int, generators: tuple[torch.Generator, ...], like: Tensor) -> Tensor:
    """Standard normals [R, size], each run's from its own generator."""
    noise = torch.empty(len(generators), size, dtype=like.dtype, device=like.device)
    for row, generator in zip(noise, generators, strict=True):
        row.normal_(generator=generator)
    return noise


def _check_finite(
    value: Tensor, parameters: tuple[Tensor, ...], what: str, epoch: int, settings: Ascent, rng: Rng
) -> None:
    fine = value.isfinite() & torch.stack([p.detach().isfinite().flatten(1).all(1) for p in parameters]).all(0)
    if not bool(fine.all()):
        bad = ", ".join(str(seed) for seed, good in zip(rng.seeds, fine.tolist(), strict=True) if not good)
        raise NonFiniteError(
            f"{what} became non-finite in epoch {epoch} of {settings.epochs} (seed {bad}): the learning rate "
            f"{settings.lr:g} is probably too large for this data; lower it, or scale the inputs."
        )
