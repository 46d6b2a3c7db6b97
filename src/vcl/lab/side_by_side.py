"""Runs several pieces of work at once: on a GPU each on its own stream, on a CPU each with its share of the threads.

One stack of runs seldom fills a GPU: much of it idles between small kernels and at the end of each. Work on another
stream uses that time. The pieces share only the device, so their results are the same as one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event

import torch

from vcl.errors import VclError
from vcl.fitting.loop import Progress, Report
from vcl.ops.cuda_streams import stream_for

MOST_ON_GPU = 10
"""torch has 32 streams, and each piece uses three: its own, one to record graphs and one for branches."""


class StoppedError(Exception):
    """Ends a piece of work at the end of an epoch, after a failure of another piece or an interrupt."""


def check_jobs(jobs: int) -> None:
    """Raise VclError unless ``jobs`` is at least 1."""
    if jobs < 1:
        raise VclError(f"--jobs is {jobs}; give at least 1.")


def side_by_side(pieces: Sequence[Callable[[Report], object]], jobs: int, device: torch.device) -> None:
    """Run all ``pieces``, up to ``jobs`` at once. Each must call the given report after every epoch.

    A GPU runs at most :data:`MOST_ON_GPU` at once. The first error stops all pieces and is raised; files already
    written are kept.
    """
    jobs = max(1, min(jobs, len(pieces), *((MOST_ON_GPU,) if device.type == "cuda" else ())))
    stop, threads, places = Event(), max(1, torch.get_num_threads() // jobs), SimpleQueue[int]()
    for place in range(jobs):
        places.put(place)

    def report(progress: Progress) -> None:
        if stop.is_set():
            raise StoppedError

    def do(piece: Callable[[Report], object]) -> None:
        place = places.get()
        try:
            with _share(device, place, threads):
                piece(report)
        finally:
            places.put(place)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(do, piece) for piece in pieces]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise


@contextmanager
def _share(device: torch.device, place: int, threads: int) -> Iterator[None]:
    """Use the CUDA stream of this place, or this number of CPU threads."""
    if device.type == "cuda":
        stream = stream_for(f"place {place}", device)
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()
        return
    torch.set_num_threads(threads)  # torch keeps this number per calling thread
    yield
