"""Ctrl-C and SIGTERM during a fit: they wait for the end of its step, so that it can be saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, final

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@final
class Stop:
    """What a signal asked for, while ``waits`` says that work will look here soon."""

    def __init__(self, waits: Callable[[], bool]) -> None:
        self.waits = waits
        self.asked: Callable[[], Any] | None = None

    def now(self) -> None:
        """Do what the signal would have done, if there was one."""
        if self.asked is not None:
            asked, self.asked = self.asked, None
            asked()


@contextmanager
def delayed(waits: Callable[[], bool]) -> Iterator[Stop]:
    """Delay the handlers of both signals while ``waits()``; a second signal does not wait.

    Other threads than the main one get no signals, and nothing changes there.
    """
    stop = Stop(waits)
    if current_thread() is not main_thread():
        yield stop
        return
    before: dict[int, Any] = {}

    def handle(number: int, frame: Any) -> None:
        how = before[number]
        if not callable(how):  # the system's own way
            signal.signal(number, how)
            signal.raise_signal(number)
        elif stop.asked is None and stop.waits():
            stop.asked = lambda: how(number, frame)
        else:
            how(number, frame)

    for each in SIGNALS:
        how = signal.getsignal(each)
        if callable(how):
            before[int(each)] = how
            signal.signal(each, handle)
    try:
        yield stop
    finally:
        for number, how in before.items():
            signal.signal(number, how)
