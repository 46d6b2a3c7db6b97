"""Jobs on a Ray cluster. Nothing else knows Ray, which is an extra: ``pip install 'vcl[ray]'``.

Ray finds a node with room for each job and says when one is lost. Jobs travel as text and ends as plain lists.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from time import monotonic
from typing import Any, final

import torch

from vcl.errors import VclError
from vcl.lab.launching.job import Job
from vcl.lab.launching.work import End, do

CONNECT = 5.0
"""Seconds for the cluster's address to answer."""

GRACE = 60.0
"""Seconds for a job to save before it is killed."""

MEND = "start one with `ray start --head`, or give the --address HOST:PORT of one that runs"

FRESH = 2.0
"""Seconds for which a count of the nodes is used."""


@final
class OnRay:
    """Jobs of so many CPU cores and such a share of a GPU, up to ``jobs`` at once, or as many as there is room for."""

    def __init__(self, address: str | None, jobs: int | None, cpus: int, gpus: float) -> None:
        self.ray = _ray()
        self.jobs, self.wanted = jobs, {"CPU": float(cpus), "GPU": gpus}
        self._connect(address)
        self.counted, self.room = monotonic(), self._room()
        if not self.room:
            self.close()
            there = self.ray_resources
            raise VclError(
                f"a job asks for {cpus} CPUs and {gpus:g} GPUs, and no node of the Ray cluster has them (in all it has "
                f"{there.get('CPU', 0):g} and {there.get('GPU', 0):g}); give less with --cpus and --gpus."
            )
        self.remote = self.ray.remote(_do).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        self.cpus = cpus

    @property
    def slots(self) -> int:
        """The number of jobs for which the nodes that live have room."""
        if monotonic() - self.counted > FRESH:
            self.counted, self.room = monotonic(), self._room()
        return self.room if self.jobs is None else min(self.jobs, self.room)

    def start(self, job: Job) -> Any:
        """Hand the job to Ray."""
        return self.remote.remote(job.to_json(), self.cpus)

    def end(self, handle: Any) -> End | None:
        """How the job ended; lost if its worker or its node is gone."""
        ready, _ = self.ray.wait([handle], timeout=0)
        if not ready:
            return None
        try:
            how, why, said = self.ray.get(handle)
        except self.ray.exceptions.RayTaskError as error:
            return End("failed", _first_line(error))
        except self.ray.exceptions.RayError as error:
            return End("lost", f"{type(error).__name__} of Ray ({_first_line(error).partition('. ')[0]})")
        return End(how, why, tuple(said))

    def stop(self, handles: Sequence[Any]) -> None:
        """Interrupt the jobs, which save, and kill those that have not ended in time."""
        for handle in handles:
            self.ray.cancel(handle, force=False)
        _, left = self.ray.wait(list(handles), num_returns=len(handles), timeout=GRACE) if handles else ([], [])
        for handle in left:
            self.ray.cancel(handle, force=True)

    def close(self) -> None:
        """Leave the cluster, which goes on."""
        self.ray.shutdown()

    def _connect(self, address: str | None) -> None:
        where = _where(address)
        handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.ray.init(address=where, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
            raise VclError(f"no Ray cluster can be joined at {where} ({_first_line(error)}); {MEND}.") from error
        finally:
            for number, handler in handlers.items():  # Ray sets its own
                signal.signal(number, handler)
        self.ray_resources = self.ray.cluster_resources()

    def _room(self) -> int:
        """The number of jobs that fit, node by node."""
        wanted = {name: amount for name, amount in self.wanted.items() if amount}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(min(int(node.get(name, 0) / amount) for name, amount in wanted.items()) for node in nodes)


def _do(text: str, cpus: int) -> list[Any]:
    """What a worker of Ray does."""
    torch.set_num_threads(cpus)
    return list(do(Job.from_json(text)))


def check(address: str | None) -> None:
    """Raise one clear sentence, before any work, if Ray is not installed or nothing answers at the address."""
    _ray()
    where = _where(address)
    if where != "auto":
        _reach(where)


def _where(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or "auto"


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise VclError(
            f"--launcher ray needs Ray: pip install 'vcl[ray]' on every machine (the module {error.name} is missing)."
        ) from error
    return ray


def _reach(address: str) -> None:
    """Raise VclError unless something answers at HOST:PORT or ray://HOST:PORT."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 2**16):
        raise VclError(f"--address is {address!r}; give HOST:PORT, such as 10.0.0.1:6379, or ray://HOST:PORT.")
    try:
        socket.create_connection((host, int(port)), CONNECT).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise VclError(f"no Ray cluster answers at {address} ({why}); {MEND}.") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
