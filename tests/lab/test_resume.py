"""A part that is stopped anywhere goes on there, and ends as if it had not been stopped, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest
from lab_made import call
from resuming import ends, plan, raising, run, stopped_at, stopped_every, until_finished

from vcl.errors import VclError
from vcl.lab.plan import Plan
from vcl.lab.registry import methods
from vcl.learner.generations import Generations

NETWORKS = [(name, "permuted-digits") for name in methods("networks")]
GENERATORS = [(name, "generative-digits") for name in methods("generators")]


@pytest.mark.parametrize(("method", "name"), [*NETWORKS, *GENERATORS])
def test_any_method_that_is_stopped_again_and_again_ends_at_the_same_bits(
    method: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = plan(method, name)
    run(wanted, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stopped_every(3, patch)
        stops = until_finished(lambda: run(wanted, tmp_path / "stopped"))
    assert stops >= 2
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


@pytest.mark.parametrize("place", [1, 3, 4, 7, 8, 12])
def test_a_stop_at_the_end_of_an_epoch_loses_nothing(place: int, tmp_path: Path) -> None:
    """Eight epochs in the first task: maximum likelihood, a variational fit and one to the coreset."""
    wanted = plan("vcl-random")
    run(wanted, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(wanted, tmp_path / "stopped", stopped_at(place, KeyboardInterrupt()))
    said = run(wanted, tmp_path / "stopped")
    assert f"goes on within task {1 if place <= 8 else 2}" in said
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


@pytest.mark.parametrize(
    ("where", "name", "call"),
    [
        ("vcl.lab.classification.predict", "permuted-digits", 1),
        ("vcl.lab.classification.predict", "permuted-digits", 3),
        ("vcl.lab.generative.quality.generate", "generative-digits", 2),
        ("vcl.lab.learning.packed", "permuted-digits", 1),
        ("vcl.lab.learning.write_csv", "permuted-digits", 2),
    ],
)
def test_a_stop_in_an_evaluation_or_between_tasks(
    where: str, name: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = plan("vcl", name)
    run(wanted, tmp_path / "whole")
    module, _, function = where.rpartition(".")
    with monkeypatch.context() as patch:
        patch.setattr(where, raising(call, getattr(sys.modules[module], function), KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run(wanted, tmp_path / "stopped")
    assert "goes on within task" in run(wanted, tmp_path / "stopped")
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5, 6, 9, 14, 40])
def test_a_stop_while_a_file_is_written(call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is saved; the stop comes before a file's bytes are on the disk."""
    wanted = plan("si")
    run(wanted, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raising(call, os.fsync, SystemExit(9)))
        with pytest.raises(SystemExit):
            run(wanted, tmp_path / "stopped", every=0.0)
    run(wanted, tmp_path / "stopped")
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")
    assert not list((tmp_path / "stopped").rglob("*.tmp"))


def test_a_full_disk_is_told_and_the_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan("vcl")
    run(wanted, tmp_path / "whole")
    monkeypatch.setattr(Generations, "_replace", raising(5, Generations._replace, OSError(28, "No space left")))
    said = run(wanted, tmp_path / "full", every=0.0)
    assert "(No space left): the work goes on, and what was saved is kept" in said
    assert ends(tmp_path / "full") == ends(tmp_path / "whole")


def stopped_with_two_generations(wanted: Plan, root: Path) -> Path:
    """A part that was saved at every step and stopped; returns the newest manifest."""
    with pytest.raises(KeyboardInterrupt):
        run(wanted, root, stopped_at(5, KeyboardInterrupt()), every=0.0)
    manifests = sorted(root.rglob("journal-*.json"), key=lambda path: int(path.stem.removeprefix("journal-")))
    assert len(manifests) == len(list(root.rglob("journal-*.safetensors"))) == 2
    return manifests[-1]


def flipped(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2], "emptied": lambda data: b"", "flipped": flipped,
    "longer": lambda data: data + b" 1", "nested": lambda data: b"[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_generation_falls_back_to_the_one_before(
    damage: Callable[[bytes], bytes], ending: str, tmp_path: Path
) -> None:
    wanted = plan("vcl")
    run(wanted, tmp_path / "whole")
    newest = stopped_with_two_generations(wanted, tmp_path / "stopped").with_suffix(ending)
    newest.write_bytes(damage(newest.read_bytes()))
    said = run(wanted, tmp_path / "stopped")
    assert f"{newest.with_suffix('.json').name} is damaged (" in said
    assert "goes on within task 1" in said
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


def test_where_both_generations_are_damaged_the_task_begins_again(tmp_path: Path) -> None:
    wanted = plan("vcl")
    run(wanted, tmp_path / "whole")
    newest = stopped_with_two_generations(wanted, tmp_path / "stopped")
    for path in newest.parent.glob("journal-*.safetensors"):
        path.write_bytes(flipped(path.read_bytes()))
    said = run(wanted, tmp_path / "stopped")
    assert said.count("is damaged (") == 2
    assert "goes on within" not in said
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


def test_the_journal_of_another_run_is_not_used(tmp_path: Path) -> None:
    wanted, other = plan("vcl"), plan("vcl", "permuted-digits", "init_sd=0.2")
    run(wanted, tmp_path / "whole")
    theirs = stopped_with_two_generations(other, tmp_path / "other").parent
    mine = stopped_with_two_generations(wanted, tmp_path / "stopped").parent
    for path in mine.glob("journal-*"):
        path.unlink()
    for path in theirs.glob("journal-*"):
        (mine / path.name).write_bytes(path.read_bytes())
    assert "goes on within" not in run(wanted, tmp_path / "stopped")
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


def test_a_journal_of_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan("vcl")
    with monkeypatch.context() as patch:
        patch.setattr("vcl.learner.generations.FORMAT", 2)
        stopped_with_two_generations(wanted, tmp_path)
    with pytest.raises(VclError, match="has format 2, and this version of vcl reads up to 1"):
        run(wanted, tmp_path)


LINE = (
    "run permuted-digits --method vcl --preset smoke --seeds 2 --device cpu --set tasks=2 --set epochs=15 "
    "--set train_limit=100 --set test_limit=10 --set hidden=4 --set batch=8"
)


def command(out: Path, *more: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "vcl", *LINE.split(), "--out", str(out), *more]
    return subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_gets_a_signal_is_continued_by_the_same_command(number: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = command(out, "--save-every", "0")
    end = monotonic() + 60
    while not list(out.rglob("journal-2*.json")) and monotonic() < end:
        sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert number == signal.SIGKILL or "` goes on from there." in said
    assert list(out.rglob("journal-*.json"))
    assert not list(out.rglob("predictive.safetensors"))
    again = command(out)
    again.communicate(timeout=120)
    assert again.returncode == 0
    rows = [path for path in out.rglob("rows.csv") if path.parent.parent.name == "parts"]
    assert [path.read_text() for path in rows] == [whole_rows(tmp_path)]


def whole_rows(tmp_path: Path) -> str:
    """The rows of the same command, in this process and without a stop."""
    assert call(f"{LINE} --out {tmp_path / 'whole'}").exit_code == 0
    (rows,) = (tmp_path / "whole" / "parts").rglob("rows.csv")
    return rows.read_text()
