"""The family ``soak`` of ``make faults``, with a few tasks."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "faults"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read as on Linux")
def test_a_short_soak_loses_nothing_and_tells_what_was_held(tmp_path: Path) -> None:
    end = subprocess.run(
        [sys.executable, str(TOOL), "--only", "soak", "--short", "--out", str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert end.returncode == 0, end.stdout + end.stderr
    with (tmp_path / "counts.csv").open() as file:
        counts = {row["fault"]: int(row["survived"]) for row in csv.DictReader(file)}
    assert counts.keys() == {"memory over 8 tasks", "SIGKILL through 8 tasks"}
    assert min(counts.values()) > 0
    outcomes = json.loads((tmp_path / "soak.json").read_text())["outcomes"]
    assert "MiB after task 8" in outcomes[0][2]
