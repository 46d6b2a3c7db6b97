"""Several pieces of work at once: on a GPU each on a stream of its own, on a CPU each with its share of the threads.

One stack of runs seldom fills a GPU: between small kernels, and at the end of each, much of it waits. Work on another
stream goes on there. Nothing is shared by the pieces but the device, so their numbers are those of one at a time.
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
"""torch has 32 streams, and each piece has three: its own, one to record on and one for branches."""


class StoppedError(Exception):
    """Ends a piece of work at the end of an epoch, because another one failed or somebody interrupted."""


def check_jobs(jobs: int) -> None:
    """Raise one clear sentence unless so many can be at work."""
    if jobs < 1:
        raise VclError(f"--jobs is {jobs}; give at least 1.")


def side_by_side(pieces: Sequence[Callable[[Report], object]], jobs: int, device: torch.device) -> None:
    """Do all of ``pieces``, up to ``jobs`` at once, each of which must tell the report that it is given of its epochs.

    On a GPU no more than :data:`MOST_ON_GPU` are at work, whatever ``jobs`` is.
    The first error ends them all and is raised; what a piece has written by then stays.
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
    """The stream of a place, or so many of the CPU's threads."""
    if device.type == "cuda":
        stream = stream_for(f"place {place}", device)
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()
        return
    torch.set_num_threads(threads)  # of what is called from here: every caller has a number of its own
    yield
