"""One step of an optimiser on an objective: eager, or as a captured CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar, final, runtime_checkable

import torch
from torch import Tensor

from vcl.data import Data
from vcl.engines.general import differentiate
from vcl.errors import VclError
from vcl.fitting.processes import Group, current
from vcl.ops.adam import Optimiser, make_adam
from vcl.ops.cuda_streams import stream_beside, stream_for
from vcl.ops.devices import is_queued
from vcl.ops.noise import KernelNoise, Key, NoiseShape, make_noise
from vcl.ops.rng import Rng
from vcl.ops.rows import examples_at, rows_at


class Objective(Protocol):
    """A function to maximise: one value per run, so that stacked runs stay independent."""

    def noise(self, batch: Data) -> int:
        """The number of standard normals per run."""
        ...

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        """An estimate [R] of the objective over all ``total`` examples from one batch and noise [R, K]."""
        ...


MakeOptimiser = Callable[[tuple[Tensor, ...], float], Optimiser]
"""Makes what moves these parameters, with a learning rate: Adam, or natural gradients."""


class Step(NamedTuple):
    """The objective [R] and its gradient in each parameter, both before the step.

    The next step overwrites the gradient.
    """

    value: Tensor
    gradients: tuple[Tensor, ...]


@runtime_checkable
class Differentiated(Objective, Protocol):
    """An objective that computes its own gradient. It must not keep batch or noise: their memory is reused."""

    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Step:
        """The estimate and its gradient, contiguous for each run; the next call may overwrite the gradient."""
        ...


Gradient = Callable[[tuple[Tensor, ...], Data, int, Tensor], Step]
"""A function from parameters, a batch, the total number of examples and noise to the estimate and its gradient."""


@runtime_checkable
class Divided(Objective, Protocol):
    """An objective whose noise can be divided between processes that share a batch."""

    def noise_shape(self, batch: Data) -> NoiseShape:
        """What the noise of such batches is for; the same for batches of any size, but for the examples' own."""
        ...


@runtime_checkable
class Seeded(Objective, Protocol):
    """An objective whose kernels can generate their own noise."""

    def seeded(self, batch: Data) -> bool:
        """Whether they do for such batches."""
        ...

    def gradient(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor | Key) -> Step:
        """The estimate and its gradient, with this noise or, if seeded, with the noise of a key."""
        ...


def gradient_of(objective: Objective) -> Gradient:
    """The objective's own gradient function, or torch's."""
    if isinstance(objective, Differentiated):
        return objective.gradient
    return partial(by_autograd, objective)


N = TypeVar("N", bound=Tensor | Key)


def by_autograd(
    objective: Callable[[tuple[Tensor, ...], Data, int, N], Tensor],
    parameters: tuple[Tensor, ...],
    batch: Data,
    total: int,
    noise: N,
) -> Step:
    """The estimate and its gradient, by torch's autograd."""
    return Step(*differentiate(lambda *leaves: objective(leaves, batch, total, noise), parameters))


@final
class Eager:
    """A step executed eagerly."""

    def __init__(
        self,
        objective: Objective,
        parameters: tuple[Tensor, ...],
        data: Data,
        lr: float,
        rng: Rng,
        optimiser: MakeOptimiser = make_adam,
    ) -> None:
        self.objective, self.parameters, self.data = objective, parameters, data
        self.device, self.gradient = parameters[0].device, gradient_of(objective)
        self.optimiser = optimiser(parameters, lr)
        self.noise = make_noise(rng, parameters[0])
        self.lends = not is_queued(self.device) and isinstance(objective, Differentiated)
        self.inputs: Tensor | None = None
        self.tape: Tensor | None = None
        self.group = current()
        rows, _ = self.group.share(data.size)
        self.mine = data if self.group.alone else data.map(lambda part: part[:, rows])

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generators of the noise."""
        return self.noise.generators

    def held(self) -> tuple[Tensor, ...]:
        """All that a step changes beside parameters and generators, to read and to write into."""
        return (*self.optimiser.held(), *self.noise.held())

    def rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        self.optimiser.rate(lr)

    def __call__(self, index: Tensor | None) -> Step:
        """Step on the batch at ``index`` [R, B], or on all data."""
        whole = self.data.size if index is None else index.shape[1]
        rows, weight = self.group.share(whole)
        batch = self.mine if index is None else gather(self.data, index[:, rows], self.inputs)
        if self.lends:
            self.inputs = None if index is None else batch.x  # memory for the next step
        seen = self._seen(batch, whole, rows)
        if not self.group.alone:
            value, *gradients = self.group.mean(weight, (seen.value, *seen.gradients))
            seen = Step(value, tuple(gradients))
        self.optimiser.step(seen.gradients)
        return seen

    def _seen(self, batch: Data, whole: int, rows: slice) -> Step:
        """The objective on these rows of a batch of ``whole`` examples."""
        objective, total = self.objective, self.data.size
        shape = None if self.group.alone else shape_of(objective, batch)
        if (
            isinstance(self.noise, KernelNoise)
            and isinstance(objective, Seeded)
            and objective.seeded(batch)
            and (shape is None or not shape.widths)
        ):
            return objective.gradient(self.parameters, batch, total, self.noise.key())
        noise = self.noise.draw(objective.noise(batch) if shape is None else shape.size(whole), self.tape)
        if self.lends:
            self.tape = noise  # memory for the next step
        noise = noise if shape is None else shape.part(noise, whole, rows)
        return self.gradient(self.parameters, batch, total, noise)


def shape_of(objective: Objective, batch: Data) -> NoiseShape:
    """What the noise of an objective is for; VclError if it does not say so."""
    if isinstance(objective, Divided):
        return objective.noise_shape(batch)
    if objective.noise(batch):
        raise VclError(
            f"{type(objective).__name__} does not say how processes divide its noise; give it "
            "noise_shape(batch), or fit in one process."
        )
    return NoiseShape(1, 0)


RECORDING = Lock()


@final
class Captured:
    """A step recorded once per batch size as a CUDA graph and replayed, without Python between its kernels."""

    WARM_UP = 3
    """Eager training steps before recording, so that every lazily allocated buffer exists."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.seen: dict[int, int] = {}
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor | None, Step]] = {}

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generators of the noise."""
        return self.eager.generators

    @property
    def group(self) -> Group:
        """The processes that share the step: this one alone."""
        return self.eager.group

    def held(self) -> tuple[Tensor, ...]:
        """All that a step changes beside parameters and generators; write into it before the first step."""
        return self.eager.held()

    def rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        self.eager.rate(lr)

    def __call__(self, index: Tensor | None) -> Step:
        """Step on the batch at ``index`` [R, B], or on all data."""
        size = self.eager.data.size if index is None else index.shape[1]
        if size not in self.graphs:
            self.seen[size] = self.seen.get(size, 0) + 1
            if self.seen[size] <= self.WARM_UP:
                return self._warm_up(index)
            self.graphs[size] = self._capture(index)
        graph, slot, step = self.graphs[size]
        if slot is not None and index is not None:
            slot.copy_(index)
        graph.replay()
        return Step(step.value.clone(), step.gradients)

    def _warm_up(self, index: Tensor | None) -> Step:
        here, device = torch.cuda.current_stream(), self.eager.device
        if here != torch.cuda.default_stream(device):
            return self.eager(index)
        stream = stream_for("warm up", device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            step = self.eager(index)
        here.wait_stream(stream)
        return step

    def _capture(self, index: Tensor | None) -> tuple[torch.cuda.CUDAGraph, Tensor | None, Step]:
        graph = torch.cuda.CUDAGraph()
        for generator in self.eager.noise.generators:
            graph.register_generator_state(generator)
        slot = None if index is None else index.clone()
        # Other threads may use other streams, but only one records at a time.
        stream = stream_beside("record", torch.cuda.current_stream(self.eager.device))
        with RECORDING, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            step = self.eager(slot)
        return graph, slot, step


def make_step(
    objective: Objective,
    parameters: tuple[Tensor, ...],
    data: Data,
    lr: float,
    rng: Rng,
    optimiser: MakeOptimiser = make_adam,
) -> Eager | Captured:
    """The stepper: captured on a GPU, eager elsewhere and where processes exchange gradients."""
    eager = Eager(objective, parameters, data, lr, rng, optimiser)
    return Captured(eager) if is_queued(eager.device) and eager.group.alone else eager


def gather(data: Data, index: Tensor, memory: Tensor | None = None) -> Data:
    """The batch at ``index`` [R, B]. Unlike :meth:`Data.take` it keeps all sources, so it needs no sync.

    Inputs are written to ``memory`` if the shape matches, because allocating new pages at every step is slow.
    """
    source = data.source[:, : index.shape[1]] if len(data.sources) == 1 else rows_at(data.source, index)
    x, y = examples_at(data.x, data.y, index, memory)
    return Data(x, y, source, data.sources, {name: rows_at(part, index) for name, part in data.extra.items()})
