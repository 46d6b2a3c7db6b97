"""`vcl run`, `sweep` and `paper` by jobs in processes, of which one is killed: the rows of the same command without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from killed_jobs import Killing
from lab_made import alone, call

from vcl.lab.launching import choose

SMALL = "--preset smoke --device cpu"
LONG = "--set tasks=6 --set epochs=20 --set train_limit=64 --set test_limit=32 --set hidden=16 --set batch=16"
COMMANDS = {
    "run": f"run permuted-digits --method vcl,si --seeds 2 {SMALL} {LONG}",
    "sweep": f"sweep permuted-digits --method ewc --grid lambda=1,10 --seeds 2 {SMALL} {LONG}",
    "paper": f"paper lambda-permuted --seeds 2 {SMALL} --set tasks=4 --set train_limit=100 --set test_limit=32",
}
DATA = os.environ.get("VCL_DATA")


def tables(out: Path) -> dict[str, bytes]:
    """All rows that were merged, and not the parts."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("rows.csv"))
        if "parts" not in path.relative_to(out).parts
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_worker_is_killed_has_the_rows_of_one_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "paper" and not DATA:
        pytest.skip("VCL_DATA names no folder with MNIST")
    here = alone(tmp_path, monkeypatch)
    if name == "paper":
        monkeypatch.setenv("VCL_DATA", str(DATA))
    killing, asked = list[Killing](), list[tuple[int, int]]()

    def made(jobs: int, cpus: int) -> Killing:
        asked.append((jobs, cpus))
        killing.append(Killing(jobs))
        return killing[-1]

    monkeypatch.setattr(choose, "Processes", made)
    result = call(f"{COMMANDS[name]} --out jobs --launcher processes --jobs 2 --cpus 1")
    assert result.exit_code == 0, result.output
    assert "its process was killed by signal 9; it is started again" in result.output
    assert ": continues after task " in result.output
    assert len(killing[0].killed) == 1
    assert set(asked) == {(2, 1)}
    assert not any(each.left() for each in killing)
    assert call(f"{COMMANDS[name]} --out serial").exit_code == 0
    found = tables(here / "jobs")
    assert found
    assert found == tables(here / "serial")
