"""What a way to learn is: how a network is prepared, what a task is, which method fits it, and how it predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from vcl.learner.backbone import Shape
from vcl.learner.defaults import Effort
from vcl.learner.input_kind import Inputs
from vcl.models.vae import Vae
from vcl.ops.rng import Rng
from vcl.recursion import Method, State, Task

Net = nn.Module | Vae | None


class Part(Protocol):
    """A network prepared for the inputs of the first update."""

    @property
    def note(self) -> str:
        """What is special about it, for people."""
        ...

    @property
    def own_head(self) -> tuple[Tensor, Tensor] | None:
        """Weight and bias of the network's own last layer, where that is the head."""
        ...

    def inputs(self, x: Tensor, like: Tensor) -> Tensor:
        """What the model takes, from inputs x [N, ...] on the device."""
        ...

    def digests(self) -> dict[str, str]:
        """A checksum of each value that has no posterior."""
        ...

    def model(self, likelihood: Any, prior: Mapping[str, Tensor] | None) -> Any:
        """The model with a likelihood; ``prior`` has the saved mean of the prior, if any."""
        ...

    def prior_values(self, model: Any) -> Mapping[str, Tensor]:
        """The mean of the prior, where it is not 0."""
        ...


class Step(NamedTuple):
    """What one update asks of the recursion."""

    before: State[Any]
    task: str
    head: str
    x: Tensor
    y: Tensor
    units: int
    outputs: Any
    noise: Any
    forget: float = 0.0
    """The share by which ``before`` was faded; ``noise`` was not."""


class Way(Protocol):
    """A way to learn and to predict."""

    forgets: bool
    """Whether its family of beliefs has a quotient, so that a task can be forgotten."""
    shares: bool
    """Whether all updates share one head, whatever their names."""
    tells: bool
    """Whether its user can act on how far a fit got: the variances of generators start anew at every task."""
    regresses: bool
    """Whether it also learns targets that are numbers."""
    rescales: bool
    """Whether images may be scaled: not where their pixels have a likelihood."""

    def check(self, shape: Shape, effort: Effort, memory: int) -> None:
        """Raise VclError for settings that it has no use for."""
        ...

    def part(self, net: Net, example: Tensor, inputs: Inputs, shape: Shape, seed: int) -> Part:
        """The network prepared for inputs like ``example`` [1, ...]."""
        ...

    def method(self, shape: Shape, effort: Effort, examples: int, memory: int) -> Method[Any]:
        """The projection and the coreset rule for an update of so many examples."""
        ...

    def task(self, step: Step) -> Task:
        """D_t."""
        ...

    def mean(self, state: State[Any], model: Any, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """The prediction [N, C] averaged over draws of the weights, for x [1, N, ...]."""
        ...

    def each(self, state: State[Any], model: Any, x: Tensor, head: str, units: int, rng: Rng, draws: int) -> Tensor:
        """The prediction of each draw [S, N, C]."""
        ...
