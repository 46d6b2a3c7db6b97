"""A state as what to predict with: its belief for a head, of the runs that are left, over its own network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from vcl.beliefs.belief import Belief
from vcl.data import Array, as_tensor
from vcl.errors import VclError
from vcl.models.base import Heads, Model
from vcl.models.fingerprint import Fingerprint, check_model
from vcl.ops.rng import Rng


@runtime_checkable
class Learned(Protocol):
    """What is asked of a :class:`vcl.recursion.State`."""

    @property
    def heads(self) -> Heads:
        """The heads met so far."""
        ...

    @property
    def propagated(self) -> Belief:
        """The belief over all parameters."""
        ...

    @property
    def predictive(self) -> Mapping[str, Any]:
        """The belief to predict with, by head."""
        ...

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Of the network."""
        ...

    @property
    def runs_begun(self) -> int:
        """How many runs the stream began with."""
        ...

    @property
    def alive(self) -> tuple[int, ...]:
        """Which of them are left."""
        ...


def belief_at(given: Belief | Learned, model: Model, head: str, rng: Rng) -> tuple[Belief, Rng]:
    """The belief for ``head`` and the seeds of its runs; of a state, once ``model`` is known to be its network.

    A belief by itself does not know its network, and is taken as it is.
    """
    if not isinstance(given, Learned):
        return given, rng
    check_model(model, given.propagated.layout, given.heads, given.fingerprint, given.propagated.mean)
    if head not in given.predictive:
        raise VclError(
            f"no task has brought a head {head!r} yet; learn one, or ask for one of those met: {list(given.heads)}."
        )
    belief: Belief = given.predictive[head]
    return belief, rng.select(given.alive) if len(rng.seeds) == given.runs_begun else rng


def inputs_at(given: Belief | Learned, x: Array) -> Array:
    """Inputs [R, N, ...] of all runs that the stream began with, of those that are left."""
    if not isinstance(given, Learned) or len(given.alive) == given.runs_begun:
        return x
    x = as_tensor(x, "x")
    return x[list(given.alive)] if x.dim() and x.shape[0] == given.runs_begun else x
