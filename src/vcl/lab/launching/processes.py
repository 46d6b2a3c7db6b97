"""Jobs in processes of this machine, each of which does one job after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, final

from vcl.lab.launching.job import Job
from vcl.lab.launching.work import End

GRACE = 60.0
"""Seconds for a job to save before it is killed."""


@final
class Worker:
    """A process that does one job after another."""

    def __init__(self, cpus: int) -> None:
        threads = {name: str(cpus) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        # Files and not pipes: nobody need read them while a job runs.
        self.out = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with the worker)
        self.err = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vcl.lab.launching.work"],
            stdin=subprocess.PIPE,
            stdout=self.out,
            stderr=self.err,
            env=os.environ | threads,
        )
        self.ends = 0

    def start(self, job: Job) -> None:
        """Give it a job."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # then it is lost, which its end says
            # The pipe stays open: its end tells the worker that this process is gone.
            self.process.stdin.write(job.to_json().encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> End | None:
        """How the job ended; a process that ends without a word on it is lost."""
        code = self.process.poll()  # before its output is read
        lines = _lines(self.out)
        if len(lines) > self.ends:
            self.ends += 1
            how, why, said = json.loads(lines[self.ends - 1])
            return End(how, why, tuple(said))
        if code is None:
            return None
        what = f"its process was killed by signal {-code}" if code < 0 else f"its process ended with code {code}"
        complaint = "".join(f" ({line})" for line in _lines(self.err)[-1:])
        return End("lost", f"{what}{complaint}")

    def close(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.out.close()
        self.err.close()


@final
class Processes:
    """Up to ``jobs`` at once, each with ``cpus`` threads."""

    def __init__(self, jobs: int, cpus: int) -> None:
        self.slots, self.cpus = jobs, cpus
        self.idle: list[Worker] = []

    def start(self, job: Job) -> Worker:
        """Give the job to an idle worker, or to a new one."""
        worker = self.idle.pop() if self.idle else Worker(self.cpus)
        worker.start(job)
        return worker

    def end(self, handle: Worker) -> End | None:
        """How its job ended."""
        end = handle.end()
        if end is not None and end.how != "lost":
            self.idle.append(handle)
        elif end is not None:
            handle.close()
        return end

    def stop(self, handles: Sequence[Worker]) -> None:
        """Terminate the workers, which save, and kill those that have not ended in time."""
        for handle in handles:
            handle.process.terminate()
        for handle in handles:
            handle.close()

    def close(self) -> None:
        """End the idle workers."""
        for worker in self.idle:
            worker.close()
        self.idle.clear()


def cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lines(file: IO[bytes]) -> list[str]:
    """The whole lines that a worker wrote; its place in the file, which both share, stays."""
    text = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
    return text.split("\n")[:-1]
