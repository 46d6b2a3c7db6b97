"""Jobs on a real Ray cluster of two nodes of this machine: a worker is killed, then a node; the rows are the same."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import pytest
from lab_made import alone, fault
from rich.console import Console

from vcl.lab.compute import compute_all
from vcl.lab.launching.job import Job
from vcl.lab.launching.launch import launched
from vcl.lab.launching.on_ray import OnRay
from vcl.lab.launching.work import End
from vcl.lab.loading import load_named
from vcl.lab.part import Part
from vcl.lab.plan import make_plan
from vcl.lab.store import STATE, Store

TIMEOUT = 240.0
"""Generous: the machine may be busy."""

CHANGES = ("train_limit=64", "test_limit=32", "hidden=16", "batch=16", "tasks=10", "epochs=60")


def free_ports(count: int) -> list[str]:
    """Below the ports that Ray gives its workers; where to look first depends on the process."""
    found, first = list[str](), 6400 + os.getpid() % 3000
    for port in range(first, 9990):
        with socket.socket() as each, suppress(OSError):
            each.bind(("127.0.0.1", port))
            found.append(str(port))
        if len(found) == count:
            return found
    raise AssertionError("no ports are free")


def until(true: Callable[[], object], what: str) -> None:
    end = monotonic() + TIMEOUT
    while not true():
        assert monotonic() < end, f"{what} did not happen"
        sleep(0.05)


def answers(port: str) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", int(port)), 1).close()
        return True
    return False


def has_open(pid: int, folder: Path) -> bool:
    """Whether a process has a folder open, as the one that learns its stack has."""
    with suppress(OSError):
        return any(each.readlink() == folder for each in Path(f"/proc/{pid}/fd").iterdir())
    return False


class Node:
    """A node in a session of its own, so that all of it can be found and ended."""

    def __init__(self, folder: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address", "127.0.0.1",
             "--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "80000000", "--disable-usage-stats",
             *options],
            env=os.environ | {"RAY_TMPDIR": folder, "RAY_memory_monitor_refresh_ms": "0"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def members(self, title: str = "") -> list[int]:
        """The processes of this node whose title begins so."""
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                with suppress(OSError):
                    words = (each / "cmdline").read_bytes().decode(errors="replace")
                    state, _, _, session = (each / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self.process.pid and state != "Z" and words.startswith(title):
                        found.append(int(each.name))
        return found

    def kill(self) -> None:
        """End all of it, at once."""
        until(self._killed, "the end of a node")
        self.process.wait()

    def _killed(self) -> bool:
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not self.members()


@contextmanager
def cluster() -> Iterator[tuple[str, list[Node]]]:
    """The address and the two nodes; nothing is left afterwards."""
    nodes = list[Node]()
    with TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # paths of sockets must be short
        try:
            port, client, board, first, second = free_ports(5)
            nodes.append(
                Node(
                    folder, "--head", "--port", port, "--ray-client-server-port", client,
                    "--include-dashboard", "false",
                    "--dashboard-port", board, "--dashboard-agent-listen-port", first,
                )
            )  # fmt: skip
            until(lambda: answers(port), "the start of the head")
            nodes.append(Node(folder, "--address", f"127.0.0.1:{port}", "--dashboard-agent-listen-port", second))
            yield f"127.0.0.1:{port}", nodes
        finally:
            for node in reversed(nodes):
                node.kill()


class Killing:
    """Kills the worker of the first job that has finished a task, and the second node once one of its jobs has."""

    def __init__(self, launcher: OnRay, nodes: list[Node], root: Path) -> None:
        self.launcher, self.nodes, self.root = launcher, nodes, root
        self.jobs, self.killed = dict[Any, Job](), list[str]()

    @property
    def slots(self) -> int:
        return self.launcher.slots

    def start(self, job: Job) -> Any:
        handle = self.launcher.start(job)
        self.jobs[handle] = job
        return handle

    def end(self, handle: Any) -> End | None:
        end = self.launcher.end(handle)
        if end is None and len(self.killed) < 2:
            self.kill(self.root / "parts" / self.jobs[handle].folder)
        return end

    def kill(self, folder: Path) -> None:
        holders = [(node, pid) for node in self.nodes for pid in node.members("ray::_do") if has_open(pid, folder)]
        if not holders or not (folder / STATE).exists():
            return
        ((node, pid),) = holders
        if not self.killed:
            os.kill(pid, signal.SIGKILL)
            self.killed.append("worker")
        elif node is self.nodes[1]:
            node.kill()
            self.killed.append("node")

    def stop(self, handles: Any) -> None:
        self.launcher.stop(handles)

    def close(self) -> None:
        self.launcher.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes of a node in /proc")
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_jobs_survive_their_worker_and_their_node(tmp_path: Path) -> None:
    wanted = make_plan("permuted-digits", "vcl", "smoke", 4, "cpu", CHANGES)
    part = Part(wanted, wanted.methods[0], load_named(wanted.dataset, None, str))
    (serial,) = compute_all([part], Store(tmp_path / "serial", wanted.device, "test"), Console(file=StringIO()))
    store, said = Store(tmp_path / "jobs", wanted.device, "test"), StringIO()
    with cluster() as (address, nodes):
        launcher = OnRay(address, None, 1, 0.0)
        until(lambda: launcher.slots == 2, "the start of the second node")
        killing = Killing(launcher, nodes, tmp_path / "jobs")
        away = launched(lambda device: killing, None, 1)
        (found,) = compute_all([part], store, Console(file=said, width=200), elsewhere=away)
    assert killing.killed == ["worker", "node"]
    assert found.rows == serial.rows
    assert said.getvalue().count("it is started again") >= 2
    assert said.getvalue().count("continues after task") >= 2
    assert not any(node.members() for node in nodes), "no process is left"


def test_what_is_wrong_with_a_cluster_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alone(tmp_path, monkeypatch)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    run = "run permuted-digits --preset smoke --launcher ray"
    assert fault(f"{run} --address 127.0.0.1:1").startswith(
        "no Ray cluster answers at 127.0.0.1:1 (Connection refused); start one with `ray start --head`"
    )
    assert fault(f"{run} --address here").startswith("--address is 'here'; give HOST:PORT")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert fault(f"{run} --address 127.0.0.1:1").startswith("--launcher ray needs Ray: pip install 'vcl[ray]'")
    assert not list(here.glob("runs/*"))
