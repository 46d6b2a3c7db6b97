"""CUDA streams: one per purpose, and side streams of a recorded step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import final

import torch
from torch import Tensor


@cache
def stream_for(purpose: str, device: torch.device) -> torch.cuda.Stream:
    """One CUDA stream per purpose, kept permanently.

    torch cycles through a pool of 32 streams per priority, so a new stream may be one that another thread records on.
    Ours have high priority, which user streams seldom have.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def stream_beside(purpose: str, stream: torch.cuda.Stream) -> torch.cuda.Stream:
    """The stream of a purpose for work on ``stream`` only.

    The matrix library has one workspace per stream and thread, and torch computes all gradients in one thread. So
    graphs that were recorded on the same stream share a workspace and must not be replayed concurrently.
    """
    return stream_for(f"{purpose} beside {stream.cuda_stream}", stream.device)


@final
class Branch:
    """Runs small kernels on a second stream, to use idle parts of the GPU.

    Only a recorded step has a second stream. Elsewhere the work runs on the main stream, because launches dominate the
    time.
    """

    def __init__(self, device: torch.device) -> None:
        recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self.line = torch.cuda.current_stream(device) if recording else None
        self.held: list[tuple[Tensor, ...]] = []

    @contextmanager
    def beside(self, *used: Tensor) -> Iterator[None]:
        """Work that starts after all earlier launches; nothing waits for it until :meth:`join`.

        The tensors it uses are kept until then: memory that the main stream frees would be reused at once.
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
        """Makes the main stream wait for the side stream."""
        if self.line is not None and self.held:
            self.line.wait_stream(stream_beside("branch", self.line))
            self.held.clear()
