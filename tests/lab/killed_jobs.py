"""Jobs in processes, one of which is killed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from vcl.lab.launching.job import Job
from vcl.lab.launching.processes import Processes, Worker
from vcl.lab.launching.work import End


class Killing:
    """Processes, the first of which that has finished a task of several is killed."""

    def __init__(self, slots: int) -> None:
        self.processes, self.slots = Processes(slots, 1), slots
        self.jobs, self.killed, self.made = dict[Worker, Job](), list[Job](), set[Worker]()

    def start(self, job: Job) -> Worker:
        worker = self.processes.start(job)
        self.made.add(worker)
        self.jobs[worker] = job
        return worker

    def end(self, handle: Worker) -> End | None:
        job = self.jobs[handle]
        if not self.killed and any(Path(job.out).rglob(f"{job.folder}/state.safetensors")):
            handle.process.send_signal(signal.SIGKILL)
            handle.process.wait()
            self.killed.append(job)
        return self.processes.end(handle)

    def stop(self, handles: Sequence[Worker]) -> None:
        self.processes.stop(handles)

    def close(self) -> None:
        self.processes.close()

    def left(self) -> int:
        """The processes that have not ended."""
        return sum(worker.process.poll() is None for worker in self.made)
