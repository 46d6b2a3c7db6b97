"""Nodes of Ray on this machine, which listen to nobody else; and the processes and sockets that they have."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

TIMEOUT = 240.0
"""Generous: the machine may be busy."""

LISTEN = "0A"
LOOPBACKS = {"0100007F", "0000000000000000FFFF00000100007F"}
"""127.0.0.1 as /proc/net has it, in IPv4 and as an address of IPv6."""

LOOPBACK = """
import sys
from ray._private import services
services.get_node_ip_address = lambda address=None: "127.0.0.1"
from ray.scripts.scripts import main
sys.exit(main())
"""
"""`ray start`, which would otherwise replace 127.0.0.1 by the machine's address, and listen to everybody."""


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
            [sys.executable, "-c", LOOPBACK, "start", "--block", "--node-ip-address", "127.0.0.1",
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


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses at which processes wait for connections, as /proc has them."""
    sockets = set[str]()
    for pid in pids:
        with suppress(OSError):  # it may have ended
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets.add(str(each.readlink()))
    found = set[str]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found
