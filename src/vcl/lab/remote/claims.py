"""Claims at an address: small files that say who works on what, with a heartbeat.

An object store has no locks. A claim keeps two commands from doing the same work, nearly always; that nothing is mixed
or lost where they do it all the same is the business of :mod:`vcl.lab.remote.published` and its manifests.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import NamedTuple, final
from uuid import uuid4

from vcl.errors import VclError
from vcl.lab.claim import PAUSE, TakenError
from vcl.lab.remote.files import Files, GoneError

BEAT = 15.0
"""Seconds between two heartbeats."""

LAPSE = 60.0
"""Seconds without one, after which the process that made a claim counts as dead."""

MOST = 2**16


@final
class Owner(NamedTuple):
    """Who has a claim, and since when nothing was heard."""

    token: str
    machine: str
    """Its working copy: whoever has the same one has the same locks."""
    launch: str
    """The command that hands out the work."""
    host: str
    pid: int
    beat: float
    """Seconds since 1970, by the clock of its machine."""


def owner_of(files: Files, name: str) -> Owner | None:
    """Who has a claim; None if nobody or nobody that can be read."""
    try:
        owner = Owner(**json.loads(files.read(name, MOST)))
        return owner if isinstance(owner.beat, float) else None
    except (GoneError, ValueError, TypeError, RecursionError):
        return None


@final
class Held:
    """A claim of this process."""

    def __init__(self, files: Files, name: str, machine: str, launch: str) -> None:
        self.files, self.name, self.taken = files, name, Event()
        self.me = Owner(uuid4().hex, machine, launch, socket.gethostname(), os.getpid(), time())

    def claim(self) -> None:
        """Make the claim; TakenError if another process has it and lives."""
        other = owner_of(self.files, self.name)
        # This machine's other processes are known by their locks, and a command knows which of its jobs are lost.
        known = other is not None and (other.machine == self.me.machine or other.launch == self.me.launch)
        if other is not None and not known and abs(time() - other.beat) < LAPSE:
            raise TakenError(
                f"another vcl is at work in {self.files.address} (process {other.pid} of {other.host}, heard of "
                f"{max(0.0, time() - other.beat):.0f} s ago); wait for it, or, if it is dead, until {LAPSE:g} s have "
                "passed. Nothing was changed."
            )
        self._write()

    def beat(self) -> None:
        """Say that this process lives, unless another has taken over."""
        other = owner_of(self.files, self.name)
        if other is not None and other.token != self.me.token:
            self.taken.set()
        else:
            self._write()

    def check(self) -> None:
        """TakenError if another process has taken over."""
        if self.taken.is_set():
            raise TakenError(f"another vcl has taken over the work in {self.files.address}; it goes on with it.")

    def give_back(self) -> None:
        """Release what was claimed."""
        other = owner_of(self.files, self.name)
        if other is not None and other.token == self.me.token:
            self.files.remove([self.name])

    def _write(self) -> None:
        self.files.write(self.name, json.dumps(self.me._replace(beat=time())._asdict()).encode())


@contextmanager
def held(files: Files, name: str, machine: str, launch: str, wait: float = 0.0) -> Iterator[Held]:
    """Claim for this process inside the context, waiting up to ``wait`` seconds for another."""
    began, claim = monotonic(), Held(files, name, machine, launch)
    while True:
        try:
            claim.claim()
            break
        except TakenError:
            if monotonic() - began >= wait:
                raise
            sleep(PAUSE * 10)
    ended = Event()

    def beats() -> None:
        while not ended.wait(BEAT):
            with suppress(VclError):  # a network that is away comes back, or the work is lost later
                claim.beat()

    thread = Thread(target=beats, daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        ended.set()
        thread.join(LAPSE)
        with suppress(VclError):
            claim.give_back()
