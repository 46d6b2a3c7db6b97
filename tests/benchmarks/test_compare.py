"""`benchmarks/compare.py`: every job runs, trees take turns, ratios are new over old. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import BENCHMARKS, load

import vcl

SRC = Path(vcl.__file__).resolve().parent.parent
compare = load("compare")


def timings(**ms: float) -> dict[str, dict[str, float]]:
    return {job: {"least_ms": least, "median_ms": 2 * least, "calls": 3} for job, least in ms.items()}


def test_the_worker_runs_every_job() -> None:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    options = ["--quick", "--budget", "0", "--threads", "1"]
    script = [sys.executable, str(BENCHMARKS / "compare_worker.py"), *options]
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert Path(found["tree"]) == SRC
    jobs = found["jobs"]
    steps = {
        f"step, {way}, {runs} x {draws}"
        for way in ("local", "weights", "local, general", "weights, general")
        for runs in (1, 10)
        for draws in (1, 10)
    }
    shapes = {f"{name}, 1 x 10" for name in ("split-mnist", "split-notmnist", "permuted-digits", "generative-mnist")}
    assert set(jobs) == steps | shapes | {"prediction, local", "prediction, weights", "Fisher"}
    assert not [job for job in jobs.values() if "error" in job]
    assert all(0 < job["least_ms"] <= job["median_ms"] for job in jobs.values())


def test_ratios_are_new_over_old() -> None:
    rounds = [(timings(a=2.0), timings(a=3.0)), (timings(a=1.0), timings(a=4.0))]
    assert compare.lines(rounds) == [compare.Line("a", 1.0, 3.0, 3.0, 1.5, 4.0, 2.0)]


def test_a_job_that_fails_in_one_tree_is_named_and_left_out() -> None:
    broken = {**timings(a=1.0), "b": {"error": "KeyError: 'x'"}}
    rounds = [(timings(a=1.0, b=1.0), broken)] * 2
    assert [line.job for line in compare.lines(rounds)] == ["a"]
    assert compare.failures(rounds) == ["b failed in the new tree: KeyError: 'x'"]


def test_trees_take_turns_and_the_numbers_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new" / "src"
    for tree in (old, new):
        (tree / "vcl").mkdir(parents=True)
        (tree / "vcl" / "__init__.py").touch()
    asked: list[Path] = []

    def run(tree: Path, options: list[str]) -> dict[str, object]:
        asked.append(tree)
        assert options[:4] == ["--device", "cpu", "--only", "step"]
        return {"torch": "2", "device": "CPU", "jobs": timings(step=4.0 if tree == old else 1.0)}

    monkeypatch.setattr(compare, "run", run)
    out = tmp_path / "out.json"
    given = [str(old), str(tmp_path / "new"), "--rounds", "2", "--only", "step", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", ["compare.py", *given])
    compare.main()
    assert asked == [old, new] * 2  # the checkout's src is found
    written = json.loads(out.read_text())
    assert [line["ratio"] for line in written["lines"]] == [0.25]
    assert len(written["rounds"]) == 2
    assert "0.250 to 0.250" in capsys.readouterr().out


def test_a_folder_without_the_package_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no package vcl; give the src folder of a checkout"):
        compare.tree_at(tmp_path)


def test_a_worker_that_imports_another_tree_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text('print(\'{"tree": "/elsewhere", "jobs": {}}\')')
    monkeypatch.setattr(compare, "WORKER", worker)
    with pytest.raises(SystemExit, match="imported vcl from /elsewhere instead of"):
        compare.run(SRC, [])
