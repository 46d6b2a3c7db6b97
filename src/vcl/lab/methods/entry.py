"""What a method of the lab is: a name, settings of its own, and how they become a projection and a coreset rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from vcl.lab.settings import settings_in
from vcl.recursion import Method

Models = Literal["networks", "generators"]
"""What a method learns: networks that classify or regress, or VAEs."""


class MethodEntry(NamedTuple):
    """A method by name.

    ``settings`` is a dataclass whose every field has a default; ``build`` makes the method from an instance of it.
    """

    name: str
    about: str
    settings: type
    build: Callable[[Any], Method[Any]]
    models: Models = "networks"
    draws: bool = True
    """Whether prediction averages over draws of the belief; otherwise it takes the belief's mean."""
    values: Mapping[str, Any] = MappingProxyType({})
    """Settings that it has in every experiment, whatever the experiment gives all methods."""
    ignores: tuple[str, ...] = ()
    """Settings of the network that its numbers do not depend on."""
    most_parameters: int | None = None
    """The largest network that it can take, if there is a limit."""
    version: int = 1
    """Raise it when the same settings give other numbers: stored results of an older one are not used."""
    grid: tuple[float, ...] = ()
    """The values of lambda to try where an experiment has none of its own for it."""

    @property
    def takes_lambda(self) -> bool:
        """Whether the weight of the past is a setting of it: ``lam``, one number or one for each run."""
        return "lam" in settings_in(self.settings)
