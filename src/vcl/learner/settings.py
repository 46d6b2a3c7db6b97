"""Everything a learner is made with, but the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vcl.errors import VclError, unknown
from vcl.learner.backbone import Shape
from vcl.learner.defaults import Effort
from vcl.learner.given import require_whole
from vcl.learner.scaling import Standardize
from vcl.learner.ways import MethodName, way_of

Heads = Literal["auto", "shared", "per-task"]
HEADS: tuple[Heads, ...] = ("auto", "shared", "per-task")


@dataclass(frozen=True)
class Settings:
    """Everything a learner was made with, but the network."""

    method: MethodName
    shape: Shape
    effort: Effort
    heads: Heads
    memory: int
    standardize: Standardize
    forgettable: bool
    seed: int
    extra: Mapping[str, Any]
    """Settings of one kind of learner."""

    @property
    def one_head(self) -> bool:
        """Whether all updates share one head, whatever their names."""
        return way_of(self.method).shares or self.shape.head == "own" or self.heads == "shared"

    def check(self) -> None:
        """Raise VclError unless every value is valid."""
        self.shape.check()
        self.effort.check()
        way = way_of(self.method)
        if self.heads not in HEADS:
            raise unknown("heads", str(self.heads), HEADS)
        require_whole("memory", self.memory, 0, ": the examples to keep of each update")
        if self.standardize not in (True, False, "auto"):
            raise VclError(f"standardize is {self.standardize!r}; give True, False or 'auto'.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise VclError(f"seed is {self.seed!r}; give a whole number.")
        if not isinstance(self.forgettable, bool):
            raise VclError(f"forgettable is {self.forgettable!r}; give True or False.")
        if self.forgettable and not way.forgets:
            raise VclError(
                f"forgettable=True needs a family whose quotient is known, and method {self.method!r} has none; give "
                "method='mean-field'."
            )
        if self.forgettable and self.memory:
            raise VclError(
                f"forgettable=True and memory={self.memory} were given, and a task is divided out of a belief that "
                "never saw the memory; leave out one of them."
            )
        way.check(self.shape, self.effort, self.memory)
        if way.shares and self.heads == "per-task":
            raise VclError(f"method {self.method!r} tells all classes apart by itself; leave out heads.")
        if self.shape.head == "own" and self.heads == "per-task":
            raise VclError("head='own' takes the network's last layer as the one shared head; leave out heads.")

    def described(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**asdict(self), "extra": dict(self.extra)}

    @classmethod
    def from_described(cls, given: Mapping[str, Any]) -> Settings:
        """The inverse of :meth:`described`, checked."""
        made = cls(**{**given, "shape": Shape(**given["shape"]), "effort": Effort(**given["effort"])})
        made.check()
        return made
