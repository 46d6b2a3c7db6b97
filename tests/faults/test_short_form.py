"""``make faults`` in short: a few trials of each family that is quick, and one fault that is planted."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "faults"
SHORT = [
    name
    for name, long in re.findall(r'^    Family\("(\w+)"(, in_short=False)?\)', (TOOL / "__main__.py").read_text(), re.M)
    if not long
]
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed")


def test_a_few_trials_of_each_family_lose_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pooch", reason="NOT RUN: faults were not tried: pooch is missing")
    end = subprocess.run(
        [sys.executable, str(TOOL), "--short", "--out", str(tmp_path)],
        env=ONE_THREAD, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert end.returncode == 0, end.stdout + end.stderr
    with (tmp_path / "counts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"kills", "signals", "clock"} <= set(SHORT)
    assert {row["family"] for row in rows} == set(SHORT)
    for name in SHORT:
        tried = [int(row[result]) for row in rows if row["family"] == name for result in list(row)[2:]]
        assert sum(tried) > 0, name
    assert not any(int(row["LOST"]) for row in rows)


PLANTED = """
import sys
from functools import partial
from pathlib import Path

import killing
import runs


def a_value_is_another() -> None:
    \"\"\"From now on, a journal that is read has one wrong value.\"\"\"
    from vcl.learner.generations import Generations

    right = Generations.read

    def read(files):
        found = right(files)
        for entry in found.entries.values():
            for value in entry.tensors.values():
                if value.is_floating_point():
                    value.view(-1)[0] += 0.25
        return found

    Generations.read = read


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    line = runs.line_of("vcl", more="--save-every 0")
    wanted = runs.undisturbed(line, folder / "whole")
    assert runs.run(line, folder / "trial", partial(killing.kill_at, 60), drawn=False).code == -9
    end = runs.run(line, folder / "trial", a_value_is_another, drawn=False)
    assert end.code == 0 and "goes on within task 1" in end.said, end
    print(*wanted.judged("planted", end, folder / "trial"))
"""


def test_a_journal_with_a_wrong_value_is_lost(tmp_path: Path) -> None:
    """The comparison sees it: were it blind, nothing would ever be lost."""
    (tmp_path / "planted.py").write_text(PLANTED)
    end = subprocess.run(
        [sys.executable, "-m", "planted", str(tmp_path)], cwd=tmp_path, timeout=300, check=False,
        env=ONE_THREAD | {"PYTHONPATH": f"{TOOL}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert end.returncode == 0, end.stdout + end.stderr
    assert end.stdout.startswith("planted LOST other bytes: ")
    assert "rows.csv" in end.stdout or "predictive.safetensors" in end.stdout
