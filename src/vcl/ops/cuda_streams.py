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

    torch has a pool of 32 streams for each priority and hands them out in turn, so a new stream may be one on which
    another thread is recording. Ours have high priority, which the streams of users seldom have.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def stream_beside(purpose: str, stream: torch.cuda.Stream) -> torch.cuda.Stream:
    """The stream that serves a purpose for work on ``stream`` only.

    The matrix library has a workspace for each stream and thread, and all gradients of torch come from one thread. So
    graphs that were recorded on the same stream have the same workspace, and must not be replayed at once.
    """
    return stream_for(f"{purpose} beside {stream.cuda_stream}", stream.device)


@final
class Branch:
    """Small kernels that run on a second stream and use what the main stream leaves idle of the GPU.

    Only a step that is being recorded has a second stream. Elsewhere the work runs on the main one, because there the
    launches take most of the time.
    """

    def __init__(self, device: torch.device) -> None:
        recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self.line = torch.cuda.current_stream(device) if recording else None
        self.held: list[tuple[Tensor, ...]] = []

    @contextmanager
    def beside(self, *used: Tensor) -> Iterator[None]:
        """Work that waits for all that was launched before it, and that nothing waits for until :meth:`join`.

        What it uses is held until then: memory that the main line gives back would be handed out again at once.
        """
        if self.line is None:
            yield
            return
        self.held.append(used)
        stream = stream_beside("branch", self.line)
        stream.wait_stream(self.line)
        with torch.cuda.stream(stream):
            yield

    def join(self) -> None:
        """The main line waits for the work beside it."""
        if self.line is not None and self.held:
            self.line.wait_stream(stream_beside("branch", self.line))
            self.held.clear()
