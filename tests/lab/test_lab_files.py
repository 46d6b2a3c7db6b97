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
from lab_made import alone, call, fault, files_under, part_folder, shown_rows

from vcl.errors import VclError
from vcl.lab import claim
from vcl.lab.claim import MARKER, Claim, claimed
from vcl.lab.folder import NOW, new_under, results_folder, write_new
from vcl.lab.results import read_csv

FORK = multiprocessing.get_context("fork")
TAKEN = "another vcl is at work in"

ELSEWHERE = "make room there, or give --out a folder on another disk."


PART = "split-digits-mle"


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
        try:
            kept.append(Claim(tmp_path / "deep" / str(number)))  # until the process ends
        except VclError as error:
            return str(error)
        return "mine"

    for number, said in enumerate(rivals(want)):
        assert said.count("mine") == 1
        assert [each for each in said if each != "mine" and not each.startswith(TAKEN)] == []
        assert names(tmp_path / "deep" / str(number)) == []


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
        return new_under(tmp_path / "runs", str(number)).name

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
    wanted = rf"^{TAKEN} {tmp_path / 'out'}; wait for it, or give --out another folder\. Nothing was changed\.$"
    with claimed(tmp_path / "out"), pytest.raises(VclError, match=wanted), claimed(tmp_path / "out"):
        pytest.fail("two had it")
    assert names(tmp_path / "out") == []
    with claimed(tmp_path / "out"):
        pass


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_marker_is_made_where_a_folder_cannot_be_locked_and_goes_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(claim.LOCKS, "flock", refuse)
    with claimed(tmp_path):
        assert names(tmp_path) == [MARKER]
        (tmp_path / "rows.csv").write_text("")
    assert names(tmp_path) == ["rows.csv"]


@pytest.mark.parametrize("locked", [True, False])
def test_a_part_at_work_is_left_alone_by_a_command_that_ends_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """Of the other command there is no row yet; only what nobody works at is removed."""
    if not locked:
        monkeypatch.setattr(claim, "LOCKS", None)
    work, left = (tmp_path / "out" / "parts" / name for name in ("at-work", "left-behind"))
    for folder in (work, left):
        folder.mkdir(parents=True)
        (folder / "part.json").write_text('{"finished": false}')
    (left / ".rows.csv.k2b_x.tmp").write_text("meth")
    with claimed(work):
        with pytest.raises(VclError, match="no"), results_folder(tmp_path / "out"):
            raise VclError("no")
        assert (work / "part.json").exists()
    assert not left.exists()
    with results_folder(tmp_path / "out"):
        pass
    assert names(tmp_path / "out") == []


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


def kept_under(out: Path) -> dict[str, bytes]:
    """All files but the heartbeats, which the process at work writes meanwhile."""
    return {name: content for name, content in files_under(out).items() if not name.endswith(f"/{NOW}")}


def test_a_run_that_ends_before_its_first_row_is_not_in_the_way(here: Path) -> None:
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    outs = {kind: here / kind.name for kind in kinds}
    running = {kind: started(out, here) for kind, out in outs.items()}
    try:
        for kind, process in running.items():
            until = time.monotonic() + 60
            while not list(outs[kind].glob("parts/*/part.json")) and time.monotonic() < until:
                time.sleep(0.05)
            part = part_folder(outs[kind], PART)
            before = kept_under(outs[kind])
            said = fault(smoke(f"--set epochs=1000000 --out {outs[kind]}"))
            assert said.startswith(f"{TAKEN} {part};")
            assert said.endswith("Nothing was changed.")
            assert kept_under(outs[kind]) == before
            process.send_signal(kind)
        ends = {kind: (*process.communicate(timeout=60), process.returncode) for kind, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    for kind, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        _, said, ended = ends[kind]
        line = smoke(f"--set epochs=1000000 --out {outs[kind]}")
        assert said == f"vcl: stopped; what is done is kept in {outs[kind]}, and `vcl {line}` goes on from there.\n"
        assert ended == code
        saved = ["journal-1.json", "journal-1.safetensors", "part.json"]
        assert names(part_folder(outs[kind], PART)) == saved
    assert set(names(part_folder(outs[signal.SIGKILL], PART))) - {NOW} == {"part.json"}
    for kind, out in outs.items():
        result = call(smoke(f"--out {out}"))
        assert result.exit_code == 0, result.exception
        assert len(shown_rows(out)) == 2 * 3 * 4
        left = 1 if kind == signal.SIGKILL else 2
        assert len(list((out / "parts").iterdir())) == left, "what the killed one left without a journal is gone"


def left_behind(out: Path) -> None:
    """What a killed run leaves that had no rows yet."""
    for name in ("split-digits-mle-0123456789ab", "split-digits-vcl-0123456789ab"):
        with claimed(out / "parts" / name):
            (out / "parts" / name / "part.json").write_text('{\n "finished": false\n}\n')
            (out / "parts" / name / ".rows.csv.k2b_x.tmp").write_text("meth")
            (out / "parts" / name / ".part.json.abc.tmp").write_text("")


def test_what_a_killed_run_left_makes_way(tmp_path: Path) -> None:
    in_child(lambda: left_behind(tmp_path))
    with results_folder(tmp_path):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("thesis.txt", "precious"),
        (".hidden", "precious"),
        ("parts/thesis.txt", "precious"),
        ("parts/split-digits-mle-0123456789ab/rows.csv", "precious"),
        ("parts/split-digits-mle-0123456789ab/.hidden", "precious"),
        ("parts/split-digits-mle-0123456789ab/part.json", "precious"),
        ("parts/split-digits-mle-0123456789ab/part.json", '{"finished": true}'),
        ("parts/other/rows.csv", ""),
    ],
)
def test_what_is_anybody_elses_never_makes_way(tmp_path: Path, name: str, content: str) -> None:
    in_child(lambda: left_behind(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    with results_folder(tmp_path):
        pass
    assert files_under(tmp_path)[name] == content.encode()
    assert [each for each in files_under(tmp_path) if "split-digits-vcl" in each] == []


def test_a_folder_without_parts_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"command": "vcl run"}')
    with pytest.raises(VclError, match="already holds files"), results_folder(tmp_path):
        pytest.fail("it was taken")
    assert files_under(tmp_path) == {"run.json": b'{"command": "vcl run"}'}


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
    with files_of_at_most(12_000):
        said = fault(smoke("--set hidden=4 --out out"))
    assert said == f"cannot write to out/split-digits (File too large); {ELSEWHERE}"
    # The rows are small enough, and no part of a picture is there.
    assert names(here / "out" / "split-digits") == ["rows.csv"]
    assert len(shown_rows(here / "out")) == 2 * 3 * 4
    assert len(read_csv(part_folder(here / "out", PART) / "rows.csv")) == 2 * 3 * 4
    result = call("show out")
    assert result.exit_code == 0, result.exception
    assert names(here / "out" / "split-digits") == [
        "accuracy-by-task.png", "accuracy-by-task.svg", "average-accuracy.png", "average-accuracy.svg", "rows.csv"
    ]  # fmt: skip


def test_a_sweep_and_an_item_of_the_paper_keep_the_same_rule(here: Path) -> None:
    for out, line in (("a", "sweep split-digits --grid lambda=1,2"), ("b", "paper linear-memory")):
        with files_of_at_most(8_000):
            said = fault(f"{line} --preset smoke --device cpu --out {out}")
        assert said.startswith(f"cannot write to {out}")
        assert said.endswith(f" (File too large); {ELSEWHERE}")
        assert [path for path in (here / out).rglob("*") if path.suffix in (".png", ".svg")] == []
        assert list((here / out).rglob(".*")) == []


def test_a_picture_of_samples_is_whole_or_not_there(here: Path) -> None:
    assert call("run generative-digits --preset smoke --device cpu --method naive --out out").exit_code == 0
    with files_of_at_most(100):
        said = fault("sample out --task 0 --out grid.png")
    assert said == f"cannot write to . (File too large); {ELSEWHERE}"
    assert names(here) == ["out"]
