"""Where jobs run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from vcl.lab.launching.job import Job
from vcl.lab.launching.work import End


class Launcher(Protocol):
    """Starts jobs and says how they ended. A handle is whatever tells its jobs apart."""

    @property
    def slots(self) -> int:
        """The number of jobs that have room at once."""

    @abstractmethod
    def start(self, job: Job) -> Any:
        """Start a job; returns its handle."""

    @abstractmethod
    def end(self, handle: Any) -> End | None:
        """How a job ended; None while it runs."""

    @abstractmethod
    def stop(self, handles: Sequence[Any]) -> None:
        """Let jobs save and end; returns when they have."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind."""
