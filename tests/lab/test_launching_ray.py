"""Jobs on a real Ray cluster of two nodes of this machine: a worker is killed, then a node; the rows are the same."""

from __future__ import annotations

import os
import signal
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from lab_made import alone, fault
from ray_nodes import LOOPBACKS, Node, cluster, has_open, listening, until
from rich.console import Console

from vcl.errors import VclError
from vcl.lab.compute import compute_all
from vcl.lab.launching.job import Job
from vcl.lab.launching.launch import launched
from vcl.lab.launching.on_ray import OnRay
from vcl.lab.launching.work import End
from vcl.lab.loading import load_named
from vcl.lab.part import Part
from vcl.lab.plan import make_plan
from vcl.lab.store import STATE, Store

pytest.importorskip("ray", reason="NOT RUN: no cluster was started: ray is missing")

CHANGES = ("train_limit=64", "test_limit=32", "hidden=16", "batch=16", "tasks=10", "epochs=60")


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
def test_jobs_survive_their_worker_and_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray._private.services.get_node_ip_address", lambda address=None: "127.0.0.1")
    wanted = make_plan("permuted-digits", "vcl", "smoke", 4, "cpu", CHANGES)
    part = Part(wanted, wanted.methods[0], load_named(wanted.dataset, None, str))
    (serial,) = compute_all([part], Store(tmp_path / "serial", wanted.device, "test"), Console(file=StringIO()))
    store, said = Store(tmp_path / "jobs", wanted.device, "test"), StringIO()
    with cluster() as (address, nodes):
        with pytest.raises(VclError, match=r"asks for 1 CPUs and 0\.5 GPUs, and no node .* \(in all it has \d and 0\)"):
            OnRay(address, None, 1, 0.5)
        launcher = OnRay(address, None, 1, 0.0)
        until(lambda: launcher.slots == 2, "the start of the second node")
        killing = Killing(launcher, nodes, tmp_path / "jobs")
        away = launched(lambda device: killing, None, 1)
        pids = [os.getpid(), *(pid for node in nodes for pid in node.members())]
        assert listening(pids) <= LOOPBACKS
        assert len(pids) > len(nodes) + 1
        (found,) = compute_all([part], store, Console(file=said, width=200), elsewhere=away)
    assert killing.killed == ["worker", "node"]
    assert found.rows == serial.rows
    assert said.getvalue().count("it is started again") >= 2
    assert said.getvalue().count("continues after task") >= 2
    assert all(f"vcl seed {seed}: done; " in said.getvalue() for seed in range(4)), "all jobs are shown"
    assert "; 4 of 4 jobs have ended" in said.getvalue()
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
