"""Jobs in other processes: the same rows as in this one, also where processes are killed."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from killed_jobs import Killing
from lab_made import alone, call, fault
from rich.console import Console

from vcl.errors import VclError
from vcl.lab.compute import compute_all
from vcl.lab.evaluation import Run
from vcl.lab.launching import choose
from vcl.lab.launching.job import Job, jobs_of, shown_runs, split
from vcl.lab.launching.launch import TRIES, launched
from vcl.lab.launching.work import End, do
from vcl.lab.loading import load_named
from vcl.lab.part import Part
from vcl.lab.plan import Plan, make_plan
from vcl.lab.results import Row
from vcl.lab.store import PART, Store

SMALL = ("train_limit=64", "test_limit=32", "hidden=16", "batch=16")


class Here:
    """Does each job in this process, as text; loses those that ``loses`` says."""

    slots = 4

    def __init__(self, loses: Sequence[End] = ()) -> None:
        self.loses, self.started = list(loses), list[Job]()

    def start(self, job: Job) -> Job:
        self.started.append(job)
        return Job.from_json(job.to_json())

    def end(self, handle: Job) -> End:
        return self.loses.pop() if self.loses else do(handle)

    def stop(self, handles: Sequence[Job]) -> None:
        assert not handles

    def close(self) -> None:
        self.slots = 0


def plan(*changes: str, methods: str = "vcl,ewc", seeds: int = 3, grid: str | None = None) -> Plan:
    return make_plan("permuted-digits", methods, "smoke", seeds, "cpu", (*SMALL, *changes), grid)


def rows(plan: Plan, root: Path, launcher: Any = None, most: int | None = None, terminal: bool = False) -> Any:
    """The rows of a plan and what was said."""
    data, said = load_named(plan.dataset, None, str), StringIO()
    store, console = Store(root, plan.device, "vcl run test"), Console(file=said, width=200, force_terminal=terminal)
    parts = [Part(plan, entry, data) for entry in plan.methods]
    elsewhere = None if launcher is None else launched(lambda device: launcher, None, most)
    results = compute_all(parts, store, console, elsewhere=elsewhere)
    found: list[Row] = [row for result in results for row in result.rows]
    return found, said.getvalue()


@pytest.mark.parametrize("grid", [None, "lambda=1,10"])
def test_jobs_of_few_runs_give_the_rows_of_one_stack(tmp_path: Path, grid: str | None) -> None:
    wanted = plan(methods="ewc,si" if grid else "vcl,ewc", grid=grid)
    here = Here()
    found, said = rows(wanted, tmp_path / "jobs", here, most=2)
    assert found == rows(wanted, tmp_path / "serial")[0]
    assert len(here.started) == (6 if grid else 4)
    assert f"{len(here.started)} of {len(here.started)} jobs have ended" in said
    again = Here()
    assert rows(wanted, tmp_path / "jobs", again)[0] == found
    assert not again.started, "what is finished is skipped"


def test_more_seeds_are_jobs_of_their_own(tmp_path: Path) -> None:
    rows(plan(seeds=2), tmp_path)
    here = Here()
    rows(plan(seeds=4), tmp_path, here)
    assert sorted(job.runs[0][1] for job in here.started) == [2, 2, 3, 3]


def test_a_lost_job_is_started_again_and_given_up_after_some_tries(tmp_path: Path) -> None:
    loss = End("lost", "its node is gone")
    here = Here([loss] * (TRIES - 1))
    found, said = rows(plan(methods="vcl"), tmp_path / "jobs", here, most=3)
    assert "lost after 0 of 2 tasks, for its node is gone; it is started again" in said
    assert [job.folder for job in here.started] == [here.started[0].folder] * TRIES
    assert found == rows(plan(methods="vcl"), tmp_path / "serial")[0]
    with pytest.raises(VclError, match=f"lost {TRIES} times in a row: its node is gone"):
        rows(plan(methods="vcl"), tmp_path / "never", Here([loss] * TRIES), most=3)


def test_a_job_that_fails_stops_no_other(tmp_path: Path) -> None:
    here = Here([End("failed", "it is ill")])
    with pytest.raises(VclError, match=r"^1 of 2 jobs failed, .* vcl: it is ill\.$"):
        rows(plan(), tmp_path, here, most=3)
    here = Here()
    rows(plan(), tmp_path, here, most=3)
    assert [job.name for job in here.started] == ["vcl"]


@pytest.mark.parametrize(("field", "told"), [("part", "is another part here"), ("source", "has other source files")])
def test_a_machine_that_would_compute_something_else_refuses(tmp_path: Path, field: str, told: str) -> None:
    wanted = plan(methods="vcl")
    store = Store(tmp_path, torch.device("cpu"), "vcl run test")
    part = Part(wanted, wanted.methods[0], load_named(wanted.dataset, None, str))
    (job,) = jobs_of([part], store, ["vcl"], None, slots=1, most=None)
    end = do(job._replace(**{field: "0" * 12}))
    assert end.how == "failed"
    assert told in end.why
    assert not (store.root / job.folder / PART).exists()


def test_runs_are_split_evenly_and_named() -> None:
    runs = [Run("ewc", seed, lam) for lam in (1.0, 10.0) for seed in range(3)]
    assert [len(each) for each in split(runs, 4)] == [2, 2, 1, 1]
    assert [run for piece in split(runs, 4) for run in piece] == runs
    assert [shown_runs(each, True) for each in split(runs, 2)] == ["lambda 1 seeds 0-2", "lambda 10 seeds 0-2"]
    assert shown_runs(runs[2:4], True) == "lambda 1 seed 2 to lambda 10 seed 0"
    assert shown_runs(runs[:1], False) == "seed 0"


def test_a_terminal_shows_a_bar_for_each_job(tmp_path: Path) -> None:
    _, said = rows(plan(), tmp_path, Here(), most=3, terminal=True)
    assert "jobs" in said
    assert "vcl: tasks" in said
    assert "ewc: tasks" in said


def test_a_killed_process_is_replaced_and_its_job_goes_on_bit_for_bit(tmp_path: Path) -> None:
    wanted, root = plan("tasks=8", "epochs=20", methods="vcl", seeds=2), tmp_path / "jobs"
    killing = Killing(2)
    found, said = rows(wanted, root, killing, most=1)
    assert found == rows(wanted, tmp_path / "serial")[0]
    assert "its process was killed by signal 9; it is started again" in said
    assert ": continues after task " in said
    assert killing.killed
    assert killing.left() == 0


def tables(out: Path) -> list[Path]:
    """The rows of each comparison in a folder of results, renamed after it."""
    return [path.rename(path.with_name(f"{path.parent.name}.csv")) for path in sorted(out.glob("*/rows.csv"))]


def test_a_command_takes_a_launcher_and_refuses_what_it_has_no_use_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = alone(tmp_path, monkeypatch)
    monkeypatch.setattr(choose, "Processes", lambda jobs, cpus: Here())
    sweep = "sweep split-digits --method ewc --grid lambda=1,10 --preset smoke --device cpu"
    for rest in ("--out serial", "--out jobs --launcher processes --jobs 3 --runs-per-job 1"):
        result = call(f"{sweep} {rest}")
        assert result.exit_code == 0, result.output
    assert "lambda 10" in result.output
    serial, jobs = ({path.name: path.read_bytes() for path in tables(here / out)} for out in ("serial", "jobs"))
    assert len(serial) == 2, "of the choice, and of what was chosen"
    assert jobs == serial
    run = "run split-digits --preset smoke"
    assert fault(f"{run} --cpus 2") == "--cpus is 2, which --launcher local has no use for; leave it out."
    assert fault(f"{run} --launcher processes --runs-per-job 0") == "--runs-per-job is 0; give at least 1."
    assert fault(f"{run} --launcher processes --gpus 1").startswith("--gpus is 1.0, which --launcher processes has no")
    assert fault(f"{run} --launcher ray --gpus 1.5") == (
        "--gpus is 1.5; give a share of one GPU, such as 0.25, or a whole number."
    )
    assert "proceses" in fault(f"{run} --launcher proceses")
