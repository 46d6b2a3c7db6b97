"""CUDA streams: one for each purpose, and branches of a step that is being recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import final

import torch
from torch import Tensor


@cache
def stream_for(purpose: str, device: torch.device) -> torch.cuda.Stream:
    """One CUDA stream for each purpose, kept for good.

    torch has 32 of a priority and hands them out in turn: who asks for a new one each time ends up on a stream where
    another thread is recording. Ours are of high priority, all alike; those of our users seldom are.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


@final
class Branch:
    """Work beside the main line of a step: small kernels that fill what the main line leaves of the GPU.

    Only in a step that is being recorded (one at a time is); elsewhere it is done in line, since the launches
    themselves are what takes the time there.
    """

    def __init__(self, device: torch.device) -> None:
        self.recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self.device = device
        self.held: list[tuple[Tensor, ...]] = []

    @contextmanager
    def beside(self, *used: Tensor) -> Iterator[None]:
        """Work that waits for all that was launched before it, and that nothing waits for until :meth:`join`.

        What it uses is held until then: memory that the main line gives back would be handed out again at once.
        """
        if not self.recording:
            yield
            return
        self.held.append(used)
        stream = stream_for("branch", self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            yield

    def join(self) -> None:
        """The main line waits for the work beside it."""
        if self.held:
            torch.cuda.current_stream(self.device).wait_stream(stream_for("branch", self.device))
            self.held.clear()
