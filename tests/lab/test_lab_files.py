"""Files at the edges: a folder that two want at once, runs that are stopped or killed, a disk that takes no more."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from lab_made import alone, call, fault, one_seed

from vcl.errors import VclError
from vcl.lab import claim
from vcl.lab.claim import MARKER, Claim
from vcl.lab.cli import STOPPED
from vcl.lab.folder import RunFolder, new_under, write_new
from vcl.lab.results import read_csv

FORK = multiprocessing.get_context("fork")
TAKEN = "another vcl is at work in"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def smoke(rest: str) -> str:
    return f"run split-digits --preset smoke --device cpu --method mle {rest}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


# Two at once.

ROUNDS, AT_ONCE = 100, 4


def rivals(work: Any) -> list[list[str]]:
    """``work(round)`` in several processes, which begin each round together: what each said in every round."""
    start, end, said = FORK.Barrier(AT_ONCE), FORK.Barrier(AT_ONCE), FORK.Queue()

    def run(start: Barrier, end: Barrier) -> None:
        mine = []
        for number in range(ROUNDS):
            start.wait(60)
            mine.append(work(number))
            end.wait(60)
        said.put(mine)

    processes = [FORK.Process(target=run, args=(start, end)) for _ in range(AT_ONCE)]
    for process in processes:
        process.start()
    found = [said.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    return [list(each) for each in zip(*found, strict=True)]


def test_of_several_that_want_a_folder_at_once_one_gets_it(tmp_path: Path) -> None:
    kept = []

    def want(number: int) -> str:
        folder = RunFolder(tmp_path / "deep" / str(number))
        try:
            folder.create()
        except VclError as error:
            return str(error)
        kept.append(folder)  # until the process ends
        return "mine"

    for number, said in enumerate(rivals(want)):
        assert said.count("mine") == 1
        assert [each for each in said if each != "mine" and not each.startswith(TAKEN)] == []
        assert names(tmp_path / "deep" / str(number)) == ["rows.csv"]


def test_without_locks_one_gets_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LOCKS", None)

    def want(number: int) -> str:
        try:
            Claim(tmp_path / str(number))
        except VclError as error:
            return str(error)
        return "mine"

    for number, said in enumerate(rivals(want)):
        assert said.count("mine") == 1
        assert [
            each for each in said if each != "mine" and f"delete {tmp_path / str(number) / MARKER}" not in each
        ] == []


def test_those_that_name_no_folder_get_one_each(tmp_path: Path) -> None:
    def want(number: int) -> str:
        folder = new_under(tmp_path / "runs", str(number))
        folder.create()
        return folder.path.name

    for number, said in enumerate(rivals(want)):
        assert sorted(said) == [str(number), f"{number}-1", f"{number}-2", f"{number}-3"]


def test_of_several_that_write_a_file_at_once_one_does(tmp_path: Path) -> None:
    def want(number: int) -> str:
        content = str(os.getpid())
        try:
            write_new(tmp_path / f"{number}.png", content.encode())
        except VclError as error:
            return str(error)
        return content

    for number, said in enumerate(rivals(want)):
        (content,) = [each for each in said if each.isdigit()]
        assert (tmp_path / f"{number}.png").read_text() == content
        assert sum(each.endswith("which exists; give a new name, or delete it first.") for each in said) == AT_ONCE - 1


def test_a_folder_in_use_is_refused_and_free_again_at_the_end(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "out"), RunFolder(tmp_path / "out")
    first.create()
    with pytest.raises(VclError, match=rf"^{TAKEN} {tmp_path / 'out'}; wait for it, or give --out another folder"):
        second.create()
    assert names(tmp_path / "out") == ["rows.csv"]
    first.drop_if_bare()
    second.create()


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_marker_is_made_where_a_folder_cannot_be_locked_and_goes_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(claim.LOCKS, "flock", refuse)
    folder = RunFolder(tmp_path)
    folder.create()
    assert names(tmp_path) == [MARKER, "rows.csv"]
    folder.add(one_seed())
    folder.drop_if_bare()
    assert names(tmp_path) == ["rows.csv"]


# Stopped and killed.


def listening() -> None:
    """Take SIGINT as a terminal's foreground process does: what runs in the background of a script ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def started(out: Path, here: Path) -> subprocess.Popen[str]:
    """A run that is at work on its first task, for hours."""
    line = smoke(f"--set epochs=1000000 --out {out}")
    return subprocess.Popen(
        [sys.executable, "-m", "vcl", *shlex.split(line)], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, preexec_fn=listening,
    )  # fmt: skip


def test_a_run_that_ends_before_its_first_row_is_not_in_the_way(here: Path) -> None:
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    outs = {kind: here / kind.name for kind in kinds}
    running = {kind: started(out, here) for kind, out in outs.items()}
    try:
        for kind, process in running.items():
            until = time.monotonic() + 60
            while not (outs[kind] / "run.json").exists() and time.monotonic() < until:
                time.sleep(0.05)
            assert fault(smoke(f"--out {outs[kind]}")).startswith(f"{TAKEN} {outs[kind]};")
            process.send_signal(kind)
        ends = {kind: (*process.communicate(timeout=60), process.returncode) for kind, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    for kind, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        _, said, ended = ends[kind]
        assert (said, ended) == (
            f"vcl: {STOPPED}\n",
            code,
        )
        assert not outs[kind].exists()
    assert names(outs[signal.SIGKILL]) == ["rows.csv", "run.json"]
    for out in outs.values():
        result = call(smoke(f"--out {out}"))
        assert result.exit_code == 0, result.exception
        assert len(read_csv(out / "rows.csv")) == 2 * 3 * 4


def left_behind(folder: Path) -> None:
    """What a killed sweep leaves that had no rows yet."""
    RunFolder(folder).create()
    (folder / "run.json").write_text('{\n  "command": "vcl sweep split-digits"\n}\n')
    (folder / ".rows.csv.k2b_x").write_text("meth")
    (folder / ".run.json.abc").write_text("")
    RunFolder(folder / "validation").create()
    (folder / "validation" / ".rows.csv.zzz").write_text("")


def test_what_a_killed_run_left_makes_way(tmp_path: Path) -> None:
    in_child(lambda: left_behind(tmp_path))
    RunFolder(tmp_path).create()
    assert names(tmp_path) == ["rows.csv"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("thesis.txt", "precious"),
        ("rows.csv", "precious"),
        ("run.json", "{}"),
        ("run.json", "precious"),
        (".hidden", "precious"),
        ("validation/rows.csv", "precious"),
        ("validation/thesis.txt", "precious"),
        ("other/rows.csv", ""),
    ],
)
def test_what_is_anybody_elses_never_makes_way(tmp_path: Path, name: str, content: str) -> None:
    in_child(lambda: left_behind(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(VclError, match="already holds results"):
        RunFolder(tmp_path).create()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_json_without_rows_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"command": "vcl run"}')
    with pytest.raises(VclError, match="already holds results"):
        RunFolder(tmp_path).create()


def in_child(work: Any) -> None:
    """``work`` in a process that then ends, so that what it claimed is free."""
    child = FORK.Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0


# A disk that takes no more.


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_figure_that_cannot_be_written_is_one_sentence_and_leaves_no_half(here: Path) -> None:
    with files_of_at_most(8_000):
        said = fault(smoke("--out out"))
    assert said == "cannot write to out (File too large); give --out a folder that you may write."
    # The rows are small enough, and no part of a picture is there.
    assert names(here / "out") == ["rows.csv", "run.json", "table.md"]
    assert len(read_csv(here / "out" / "rows.csv")) == 2 * 3 * 4


def test_a_sweep_and_an_item_of_the_paper_keep_the_same_rule(here: Path) -> None:
    for out, line in (("a", "sweep split-digits --grid lambda=1,2"), ("b", "paper linear-memory")):
        with files_of_at_most(8_000):
            said = fault(f"{line} --preset smoke --device cpu --out {out}")
        assert said.startswith(f"cannot write to {out}")
        assert said.endswith(" (File too large); give --out a folder that you may write.")
        assert [path for path in (here / out).rglob("*") if path.suffix in (".png", ".svg")] == []
        assert list((here / out).rglob(".*")) == []


def test_a_picture_of_samples_is_whole_or_not_there(here: Path) -> None:
    assert call("run generative-digits --preset smoke --device cpu --method naive --out out").exit_code == 0
    with files_of_at_most(100):
        said = fault("sample out --task 0 --out grid.png")
    assert said == "cannot write to . (File too large); give --out a folder that you may write."
    assert names(here) == ["out"]
