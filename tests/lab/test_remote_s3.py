"""A store in a bucket of a server on this machine: `make test-remote` installs the server and the driver."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from urllib.request import Request, urlopen

import pytest
import torch
from lab_made import alone, call, done, fault, files_under
from rich.console import Console

from vcl.lab.compute import compute
from vcl.lab.loading import load_named
from vcl.lab.part import Part
from vcl.lab.plan import make_plan
from vcl.lab.remote import claims
from vcl.lab.remote.files import Files
from vcl.lab.remote.mirror import BEGUN, PARTS
from vcl.lab.store import PART, Store

pytest.importorskip("s3fs")
pytest.importorskip("moto")
pytestmark = pytest.mark.filterwarnings("ignore")  # the driver's own

CHANGES = ("hidden=8", "train_limit=64", "tasks=2", "epochs=20")
LINE = f"run permuted-digits --preset smoke --method vcl --device cpu --set {' --set '.join(CHANGES)}"
ADDRESS = "s3://results/mine"


class Server:
    """An S3 server that forgets everything when it ends."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = monotonic() + 120
        while True:
            with suppress(OSError):
                urlopen(Request(f"{self.url}/results", method="PUT")).close()
                break
            assert monotonic() < end, "the server does not start"
            sleep(0.1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    alone(tmp_path, monkeypatch)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {
        "AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "thing", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    found = Server(port)
    yield found
    found.close()


def serial(root: Path) -> dict[str, bytes]:
    plan = make_plan("permuted-digits", "vcl", "smoke", None, "cpu", CHANGES, None)
    store = Store(root, torch.device("cpu"), "vcl run test")
    compute(Part(plan, plan.methods[0], load_named("digits", None, str)), store, Console(file=StringIO()))
    return {name: data for name, data in files_under(root / PARTS).items() if not name.endswith(PART)}


def finished(folder: Path) -> dict[str, bytes]:
    """What finished parts have in the bucket, without times."""
    there, found = Files(ADDRESS), dict[str, bytes]()
    for name in there.names(PARTS):
        if not name.endswith((PART, "manifest.json")):
            there.get(name, folder / "one")
            found[name.removeprefix(f"{PARTS}/")] = (folder / "one").read_bytes()
    return found


def test_a_killed_command_goes_on_on_another_machine(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = subprocess.Popen([sys.executable, "-m", "vcl", *LINE.split(), "--save-every", "0", "--out", ADDRESS])
    there, end = Files(ADDRESS), monotonic() + 240
    while not [name for name in there.names(BEGUN) if name.count("/") == 2]:
        assert first.poll() is None, "it was too fast"
        assert monotonic() < end
    first.send_signal(signal.SIGKILL)
    first.wait()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    assert f"process {first.pid} of" in fault(f"{LINE} --out {ADDRESS}")
    monkeypatch.setattr(claims, "LAPSE", 0.0)
    said = done(f"{LINE} --out {ADDRESS}")
    assert "goes on within task" in said or "continues after task" in said
    assert finished(tmp_path) == serial(tmp_path / "serial")
    names = there.names()
    assert "permuted-digits/average-accuracy.png" in names
    assert not [name for name in names if name.startswith((BEGUN, "claims", ".vcl"))]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    assert "permuted-digits, preset smoke" in done(f"show {ADDRESS}")


def test_jobs_of_processes(server: Server, tmp_path: Path) -> None:
    line = f"{LINE} --launcher processes --jobs 2 --runs-per-job 1 --out {ADDRESS}"
    assert "2 of 2 jobs have ended" in done(line)
    rows = {name: data for name, data in finished(tmp_path).items() if name.endswith("rows.csv")}
    whole = serial(tmp_path / "serial")
    (own,) = (data.decode().splitlines() for name, data in whole.items() if name.endswith("rows.csv"))
    found = [data.decode().splitlines() for data in rows.values()]
    assert sorted(own[1:]) == sorted(line for lines in found for line in lines[1:])


def test_a_server_that_goes_away_loses_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vcl.lab.remote.mirror import Mirror

    finish = Mirror.finish

    def gone(mirror: Mirror, folder: Path) -> None:
        server.close()
        finish(mirror, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "finish", gone)
        told = fault(f"{LINE} --out {ADDRESS}")
    assert "is its endpoint right" in told
    assert "the part is finished and whole in" in told
    told = fault(f"{LINE} --out {ADDRESS}")
    assert told.startswith(f"cannot read {ADDRESS} (")
    again = Server(int(server.url.rpartition(":")[2]))
    try:
        assert "task 1 of" not in done(f"{LINE} --out {ADDRESS}"), "it is uploaded and not computed"
        assert finished(tmp_path) == serial(tmp_path / "serial")
    finally:
        again.close()


def test_what_is_wrong_is_said_before_any_work(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    told = fault(f"{LINE} --out s3://nowhere/mine")
    assert "cannot write to s3://nowhere/mine" in told
    assert "is the bucket or folder there?" in told
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        patch.setenv("HOME", os.devnull)
        told = fault(f"{LINE} --out {ADDRESS}")
        assert "credentials" in told
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    told = fault(f"{LINE} --out {ADDRESS}")
    assert "is its endpoint right, and the network there?" in told
    assert call(f"show {ADDRESS}").exit_code == 1
