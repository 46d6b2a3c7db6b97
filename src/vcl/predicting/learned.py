"""Prediction from a state: the belief for a head, for the remaining runs, checked against its network."""

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
    """The part of :class:`vcl.recursion.State` that prediction uses."""

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
        """The fingerprint of the network."""
        ...

    @property
    def runs_begun(self) -> int:
        """The number of initial runs of the stream."""
        ...

    @property
    def alive(self) -> tuple[int, ...]:
        """The positions of the remaining runs."""
        ...


def belief_at(given: Belief | Learned, model: Model, head: str, rng: Rng, checked: bool = False) -> tuple[Belief, Rng]:
    """The belief for ``head`` and the seeds of its runs. A state is first checked against ``model``.

    A bare belief does not know its network and is not checked; nor is a state that was ``checked`` before.
    """
    if not isinstance(given, Learned):
        return given, rng
    if not checked:
        check_model(model, given.propagated.layout, given.heads, given.fingerprint, given.propagated.mean)
    if head not in given.predictive:
        raise VclError(
            f"no task has added a head {head!r} yet; learn one, or use one of the known heads: {list(given.heads)}."
        )
    belief: Belief = given.predictive[head]
    return belief, rng.select(given.alive) if len(rng.seeds) == given.runs_begun else rng


def inputs_at(given: Belief | Learned, x: Array) -> Array:
    """Inputs of the remaining runs, from inputs [R, N, ...] of all initial runs."""
    if not isinstance(given, Learned) or len(given.alive) == given.runs_begun:
        return x
    x = as_tensor(x, "x")
    return x[list(given.alive)] if x.dim() and x.shape[0] == given.runs_begun else x
