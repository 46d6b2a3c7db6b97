"""A store at an address: machines without a shared disk continue each other's work, and nothing is mixed or lost."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import StringIO
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from lab_made import alone, call, done, fault, files_under, images
from rich.console import Console

from vcl.errors import VclError
from vcl.lab.claim import TakenError
from vcl.lab.compute import compute, compute_all
from vcl.lab.launching.job import Job
from vcl.lab.launching.launch import launched
from vcl.lab.launching.work import End, do
from vcl.lab.loading import load_named
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan, make_plan
from vcl.lab.remote import claims, files, published
from vcl.lab.remote.files import AddressError, Files
from vcl.lab.remote.mirror import BEGUN, PARTS, Mirror
from vcl.lab.remote.place import read_from
from vcl.lab.store import PART, ROWS, Store

REGISTRY: Any = import_module("fsspec.registry")

ARRAYS = images(train=60, test=20)
DATA = Loaded(ARRAYS, "made up", ARRAYS.digest())
SMALL = ("train_limit=30", "test_limit=10", "hidden=4", "tasks=3", "batch=8", "epochs=3")
RUN = "run permuted-digits --preset smoke --method vcl --device cpu --set hidden=8 --set train_limit=64"


def plan(methods: str = "vcl", *changes: str) -> Plan:
    return make_plan("permuted-digits", methods, "smoke", 2, "cpu", (*SMALL, *changes), None)


class Machines:
    """Machines that share an address and no disk: each has a cache of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.there = folder, patch, folder / "there"
        self.address = f"file://{self.there}"
        self.said: list[str] = []

    def on(self, name: str) -> None:
        """What is done next is done on this one."""
        self.patch.setenv("XDG_CACHE_HOME", str(self.folder / name))

    def store(self, name: str, every: float = 1e6) -> Store:
        self.on(name)
        mirror = Mirror(self.address, True, self.said.append)
        mirror.pull()
        return Store(mirror.folder, torch.device("cpu"), "vcl run test", every, mirror)

    def run(self, name: str, plan: Plan, every: float = 1e6, elsewhere: Any = None) -> Any:
        store, said = self.store(name, every), StringIO()
        data = DATA if elsewhere is None else load_named(plan.dataset, None, str)
        parts = [Part(plan, entry, data) for entry in plan.methods]
        try:
            return compute_all(parts, store, Console(file=said, width=300), elsewhere=elsewhere)
        finally:
            self.said += said.getvalue().splitlines()

    def finished(self) -> dict[str, bytes]:
        """All that finished parts have at the address, without times."""
        found = files_under(self.there / PARTS)
        return {name: data for name, data in found.items() if not name.endswith((PART, "manifest.json"))}


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


def serial(plan: Plan, root: Path, data: Loaded = DATA) -> dict[str, bytes]:
    """What a run in a folder leaves."""
    store = Store(root, torch.device("cpu"), "vcl run test")
    compute_all([Part(plan, entry, data) for entry in plan.methods], store, Console(file=StringIO()))
    return {name: data for name, data in files_under(root / PARTS).items() if not name.endswith(PART)}


def stopped_every(steps: int, patch: pytest.MonkeyPatch) -> None:
    """From now on, every so many steps all is saved and the work is stopped."""
    from vcl.learner.saving import Saver

    calls, write = iter(range(1, 10**9)), Saver.write

    def written(saver: Saver, entries: Any) -> None:
        write(saver, entries)
        if sys.exc_info()[0] is None:
            raise KeyboardInterrupt

    patch.setattr(Saver, "due", lambda saver: next(calls) % steps == 0)
    patch.setattr(Saver, "write", written)


def test_machines_continue_each_other_bit_for_bit(machines: Machines, tmp_path: Path) -> None:
    wanted = plan("vcl,ewc")
    whole, stops = serial(wanted, tmp_path / "serial"), 0
    with machines.patch.context() as patch:
        stopped_every(17, patch)
        while True:
            try:
                machines.run(f"machine {stops % 3}", wanted)
                break
            except KeyboardInterrupt:
                stops += 1
    assert stops > 4
    assert "vcl: goes on within task 1" in machines.said
    assert any("vcl: continues after task" in line for line in machines.said)
    assert machines.finished() == whole
    assert not files_under(machines.there / BEGUN), "what was kept to go on is removed"
    assert not files_under(machines.there / "claims")
    again = len(machines.said)
    machines.run("another", wanted)
    assert machines.said[again:] == [], "what is finished is skipped everywhere"


def compute_here(parts: Sequence[Part], store: Store, console: Console, names: Sequence[str]) -> None:
    for part in parts:
        compute(part, store, console)


def test_a_killed_command_goes_on_on_another_machine(machines: Machines, tmp_path: Path) -> None:
    changes = ("hidden=8", "train_limit=64", "tasks=2", "epochs=20")
    line = f"run permuted-digits --preset smoke --method vcl --device cpu --set {' --set '.join(changes)}"
    machines.on("first")
    first = subprocess.Popen(
        [sys.executable, "-m", "vcl", *line.split(), "--save-every", "0", "--out", machines.address]
    )
    end = monotonic() + 240
    while not list(machines.there.glob(f"{BEGUN}/*/*.json")):
        assert first.poll() is None, "it was too fast"
        assert monotonic() < end
        sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    machines.on("second")
    told = fault(f"{line} --out {machines.address}")
    assert f"process {first.pid} of" in told, "a machine that was heard of a moment ago may be alive"
    machines.patch.setattr(claims, "LAPSE", 0.0)
    wanted = make_plan("permuted-digits", "vcl", "smoke", None, "cpu", changes, None)
    machines.run("second", wanted, elsewhere=compute_here)
    assert any("goes on within task" in line or "continues after task" in line for line in machines.said)
    assert machines.finished() == serial(wanted, tmp_path / "whole", load_named("digits", None, str))


class Apart:
    """Does each job as a machine of its own; loses the first after its first save."""

    slots = 2

    def __init__(self, machines: Machines) -> None:
        self.machines, self.started, self.lost = machines, list[Job](), 0

    def start(self, job: Job) -> Job:
        self.started.append(job)
        return Job.from_json(job.to_json())

    def end(self, handle: Job) -> End:
        self.machines.on(f"worker {len(self.started)}")
        with self.machines.patch.context() as patch:
            if not self.lost:
                stopped_every(9, patch)
            try:
                return do(handle)
            except KeyboardInterrupt:
                self.lost += 1
                return End("lost", "its node is gone")
            finally:
                self.machines.on("command")

    def stop(self, handles: Sequence[Job]) -> None:
        assert not handles

    def close(self) -> None:
        assert self.started


def test_jobs_of_machines_without_a_shared_disk_give_the_rows_of_one(machines: Machines, tmp_path: Path) -> None:
    wanted = plan("vcl,ewc")
    data = load_named(wanted.dataset, None, str)
    store = Store(tmp_path / "serial", torch.device("cpu"), "vcl run test")
    found = compute_all([Part(wanted, entry, data) for entry in wanted.methods], store, Console(file=StringIO()))
    apart = Apart(machines)
    results = machines.run("command", wanted, elsewhere=launched(lambda device: apart, None, 2))
    assert apart.lost == 1
    assert [job.name for job in apart.started] == ["vcl", "ewc", "vcl"]
    assert [result.rows for result in results] == [result.rows for result in found]
    assert any("goes on within task 1" in line for line in machines.said)


def test_a_reader_finds_whole_parts_at_every_instant(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every file that is uploaded or removed, what is there can be read, and rows are never missing."""
    monkeypatch.setattr(claims, "LAPSE", 0.0)
    place, remove, seen = Files._place, Files.remove, list[int]()

    def look() -> None:
        if not any((machines.there / each).exists() for each in (PARTS, BEGUN)):
            return
        store = machines.store("reader")
        seen.append(sum(len(stack.rows()) for stack in store.stacks() if stack.known["tasks"]))
        machines.on("writer")

    def placed(self: Files, *given: Any) -> None:
        place(self, *given)
        if "reader" not in str(given):
            with monkeypatch.context() as patch:
                patch.setattr(Files, "_place", place)
                patch.setattr(Files, "remove", remove)
                look()

    def removed(self: Files, names: Sequence[str]) -> None:
        for name in names:
            remove(self, [name])
            with monkeypatch.context() as patch:
                patch.setattr(Files, "_place", place)
                patch.setattr(Files, "remove", remove)
                look()

    with monkeypatch.context() as patch:
        patch.setattr(Files, "_place", placed)
        patch.setattr(Files, "remove", removed)
        patch.setattr("vcl.lab.remote.mirror.SHARE", 1e9)
        machines.run("writer", plan("vcl", "tasks=2", "epochs=1"), every=0.0)
    assert len(seen) > 20
    assert seen == sorted(seen), "nothing that was there is gone later"
    assert seen[-1] > 0


def manifests(machines: Machines) -> list[Path]:
    return sorted(machines.there.glob(f"{BEGUN}/*/*.json"))


def begun(machines: Machines) -> None:
    """A run of which two generations are at the address."""
    with machines.patch.context() as patch:
        stopped_every(13, patch)
        for _ in range(4):
            with pytest.raises(KeyboardInterrupt):
                machines.run("first", plan())
    assert len(manifests(machines)) == 2, "the one before is kept"


@pytest.mark.parametrize("damage", ["manifest cut", "manifest empty", "object cut", "object flipped", "object gone"])
def test_a_damaged_generation_is_named_and_the_one_before_is_used(
    machines: Machines, tmp_path: Path, damage: str
) -> None:
    begun(machines)
    newest = manifests(machines)[-1]
    only = set(manifest_of(newest)) - set(manifest_of(manifests(machines)[0]))
    path = newest if "manifest" in damage else machines.there / sorted(only, key=lambda at: "journal" not in at)[0]
    data = path.read_bytes()
    match damage.split()[1]:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "empty":
            path.write_bytes(b"")
        case "flipped":
            path.write_bytes(bytes([*data[:-1], data[-1] ^ 1]))
        case "gone":
            path.unlink()
    machines.run("second", plan())
    assert any("is damaged" in line and "the generation before it is used" in line for line in machines.said)
    assert machines.finished() == serial(plan(), tmp_path / "serial")


def manifest_of(path: Path) -> list[str]:
    about = json.loads(json.loads(path.read_text())["about"])
    return [at for at, _, _ in about["files"].values()]


def test_a_damaged_part_is_refused_and_said(machines: Machines) -> None:
    machines.run("first", plan())
    (rows,) = machines.there.glob(f"{PARTS}/*/{ROWS}")
    rows.write_bytes(rows.read_bytes()[:-3])
    with pytest.raises(VclError, match=r"rows\.csv is damaged \(it has \d+ bytes and not \d+\); delete file://"):
        machines.run("second", plan())
    shutil.rmtree(rows.parent)
    machines.run("first", plan())
    assert rows.exists(), "what was deleted at the address is computed again, and not taken from the copy"


@pytest.mark.parametrize("fails", range(0, 12, 3))
def test_an_upload_that_fails_loses_nothing(machines: Machines, tmp_path: Path, fails: int) -> None:
    put, count = LocalFileSystem.put_file, iter(range(10**6))

    def broken(self: LocalFileSystem, *given: Any, **more: Any) -> None:
        if next(count) >= fails:
            Path(given[1]).write_bytes(b"half")
            raise ConnectionError("the line went dead")
        put(self, *given, **more)

    with machines.patch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", broken)
        with pytest.raises(AddressError, match=r"the line went dead.*finished and whole in .*the same command uploads"):
            machines.run("first", plan())
    assert not list(machines.there.glob(f"{PARTS}/*/manifest.json"))
    halves = [path for path in machines.there.rglob("*") if path.is_file() and path.read_bytes() == b"half"]
    assert not halves
    before = len(machines.said)
    machines.run("first", plan())
    assert not [line for line in machines.said[before:] if "task" in line], "it is uploaded and not computed"
    assert machines.finished() == serial(plan(), tmp_path / "serial")


def test_a_process_that_was_taken_for_dead_does_not_disturb_the_other(machines: Machines) -> None:
    begun(machines)
    (name,) = {path.parent.name for path in manifests(machines)}
    machines.patch.setattr(claims, "LAPSE", 0.0)
    slow, quick = machines.store("slow"), machines.store("quick")
    with slow.taken(slow.root / name), pytest.raises(TakenError, match="has taken over"):  # noqa: PT012
        with quick.taken(quick.root / name):
            quick.mirror.kept(quick.root / name, now=True)
            newest = manifests(machines)[-1]
        slow.mirror.kept(slow.root / name, now=True)
    assert manifests(machines)[-1] == newest


def test_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Files(f"file://{tmp_path}")
    with claims.held(there, "claims/x.json", "one", "a") as first:
        with (
            pytest.raises(
                TakenError, match=r"another vcl is at work in .*; wait for it, or, if it is dead, until 60 s"
            ),
            claims.held(there, "claims/x.json", "two", "b"),
        ):
            pytest.fail("it is taken")
        first.beat()
        first.check()
        with claims.held(there, "claims/x.json", "two", "a"):  # a job that its own command hands out again
            first.beat()
            with pytest.raises(TakenError, match="has taken over"):
                first.check()
    assert not (tmp_path / "claims" / "x.json").exists()
    there.write("claims/x.json", json.dumps(first.me._replace(beat=time() - 61)._asdict()).encode())
    with claims.held(there, "claims/x.json", "two", "b"):
        pass
    there.write("claims/x.json", b"{")
    with claims.held(there, "claims/x.json", "two", "b"):
        pass
    monkeypatch.setattr(claims, "BEAT", 0.01)
    with claims.held(there, "claims/x.json", "one", "a") as first:
        began = claims.owner_of(there, "claims/x.json").beat
        end = monotonic() + 60
        while claims.owner_of(there, "claims/x.json").beat == began:
            assert monotonic() < end


def test_a_sweep_the_paper_and_readers_take_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alone(tmp_path, monkeypatch)
    address = f"file://{here / 'there'}"
    sweep = f"sweep split-digits --method ewc --grid lambda=1,10 --preset smoke --device cpu --out {address}"
    assert call(sweep).exit_code == 0
    paper = f"paper toy2d --preset smoke --out {address}/paper"
    assert call(paper).exit_code == 0
    table = (here / "there" / "paper" / "table.csv").read_bytes()
    predict = f"predict {address} --task 0/1 --out"
    assert call(f"{predict} here.npz").exit_code == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert "split-digits, preset smoke, after 2 tasks" in done(f"show {address}")
    assert call(f"report {address}").exit_code == 0
    assert (here / "report.html").exists()
    assert call(f"{predict} there.npz").exit_code == 0
    assert (here / "here.npz").read_bytes() == (here / "there.npz").read_bytes()
    assert call(paper).exit_code == 0
    assert (here / "there" / "paper" / "table.csv").read_bytes() == table
    assert "is an address; `vcl report` makes a page" in fault("watch s3://bucket/folder")


def test_what_is_wrong_with_an_address_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alone(tmp_path, monkeypatch)
    assert "Protocol not known: wonder" in fault(f"{RUN} --out wonder://bucket/folder")
    assert fault(f"{RUN} --out memory://x --launcher processes").startswith("memory://x is this process's own memory")
    assert fault(f"{RUN} --out memory://").startswith("memory:// names no folder")
    (here / "own").mkdir()
    (here / "own" / "letter.txt").write_text("dear")
    assert "already holds files, and they are not results" in fault(f"{RUN} --out file://{here}/own")
    assert "holds no results" in fault(f"show file://{here}/nowhere")

    def refused(self: Any, *given: Any, **more: Any) -> None:
        raise PermissionError("Access Denied")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "pipe_file", refused)
        told = fault(f"{RUN} --out file://{here}/new")
        assert "cannot write to file://" in told
        assert "Access Denied); give credentials that may" in told

    def silent(self: Any, *given: Any, **more: Any) -> None:
        sleep(1)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "ls", silent)
        patch.setattr(files, "PATIENCE", 0.05)
        assert "does not answer within 0.05 s; is its endpoint right" in fault(f"{RUN} --out file://{here}/new")

    def unreachable(self: Any, *given: Any, **more: Any) -> None:
        raise ConnectionRefusedError("Connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "ls", unreachable)
        told = fault(f"{RUN} --out file://{here}/new")
        assert "ConnectionRefusedError: Connection refused); is its endpoint right, and the network there?" in told
    with monkeypatch.context() as patch:
        patch.setitem(REGISTRY.known_implementations, "s3", {"class": "no_such.Driver", "err": "Install s3fs"})
        patch.setattr(REGISTRY, "_registry", {})
        told = fault(f"{RUN} --out s3://bucket/folder")
        assert told.startswith("s3://bucket/folder needs a driver that is not installed here (Install s3fs")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fsspec", None)
        assert fault(f"{RUN} --out s3://bucket/x") == (
            "s3://bucket/x needs fsspec: pip install 'vcl[remote]' on every machine."
        )
    assert not files_under(here / "new")


@pytest.fixture
def memory() -> Iterator[str]:
    store = fsspec.filesystem("memory").store
    yield "memory://vcl-test/x"
    store.clear()


def test_a_store_in_memory(memory: str, machines: Machines) -> None:
    machines.address = memory
    for name in ("first", "second"):
        machines.run(name, plan())
    names = Files(memory).names()
    assert any(name.endswith("/rows.csv") for name in names)
    assert not [name for name in names if name.startswith((BEGUN, "claims"))]
    assert read_from(memory, str).is_dir()


@pytest.mark.parametrize(
    "names", ['{"../x": ["a", 1, "b"]}', '{".x": ["a", 1, "b"]}', '{"x": 1}', "[]", '{"x": ["a", "b", "c"]}']
)
def test_a_hostile_manifest_is_refused(tmp_path: Path, names: str) -> None:
    from hashlib import sha256

    text = f'{{"format": 1, "files": {names}}}'
    outer = {"sha256": sha256(text.encode()).hexdigest(), "about": text}
    (tmp_path / "manifest.json").write_text(json.dumps(outer))
    with pytest.raises(published.DamagedError, match="is damaged"):
        published.read(Files(f"file://{tmp_path}"), "manifest.json")
