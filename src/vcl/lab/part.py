"""A part as it is asked for: one method of a plan, with its data."""

from __future__ import annotations

from typing import NamedTuple

from vcl.lab.methods.entry import MethodEntry
from vcl.lab.plan import Plan
from vcl.lab.streams import Arrays


class Loaded(NamedTuple):
    """A dataset as arrays, where it came from, and a digest of every byte of it; all empty for own data."""

    arrays: Arrays | None
    origin: str
    digest: str | None


class Part(NamedTuple):
    """One method of a plan with its data: what is asked of the store."""

    plan: Plan
    entry: MethodEntry
    data: Loaded

    @property
    def stem(self) -> str:
        """How the names of its folders begin."""
        return f"{self.plan.name}-{self.entry.name}"
