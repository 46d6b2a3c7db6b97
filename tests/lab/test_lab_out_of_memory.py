"""Memory that runs out in the middle of a command: one sentence, and the finished work goes on later."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import among_digits, call, done, fault, part_folder, shown_rows

from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.step import Eager
from vcl.lab import cli
from vcl.predicting import prediction

CUDA = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.72 GiB."
CHILD = """
import resource, sys
from pathlib import Path
from vcl.fitting.step import Eager
from vcl.lab import cli
step = Eager.__call__
def with_little_room(*given):
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + {room}, resource.RLIM_INFINITY))
    return step(*given)
Eager.__call__ = with_little_room
sys.argv[1:] = {arguments!r}
cli.main()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return among_digits(tmp_path, monkeypatch)


def from_call(patch: pytest.MonkeyPatch, owner: Any, name: str, number: int, error: Exception) -> Callable[[], None]:
    """From now on, call ``number`` and those after it fail; returns what mends it."""
    real, calls = getattr(owner, name), iter(range(1, 10**9))

    def failing(*given: Any, **more: Any) -> Any:
        if next(calls) >= number:
            raise error
        return real(*given, **more)

    patch.setattr(owner, name, failing)
    return lambda: patch.setattr(owner, name, real)


def line(method: str, out: str, more: str = "") -> str:
    return f"run split-digits --preset smoke --device cpu --method {method} --out {out} {more}"


@pytest.mark.parametrize(
    ("method", "owner", "name", "number", "said"),
    [
        ("vcl", Eager, "__call__", 5, "task 2 (2/3): the GPU's memory ran out in the variational fit, epoch 1 of 2, "),
        ("lp-kron", KroneckerCurvature, "__call__", 8, "task 2 (2/3): the GPU's memory ran out in the Kronecker-fac"),
        ("vcl", prediction, "_rows", 2, "the evaluation after task 2 (2/3): the GPU's memory ran out in a prediction"),
    ],
)  # fmt: skip
def test_what_is_finished_is_kept_and_the_same_command_goes_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    method: str, owner: Any, name: str, number: int, said: str,
) -> None:  # fmt: skip
    assert call(line(method, "whole")).exit_code == 0
    mend = from_call(monkeypatch, owner, name, number, torch.OutOfMemoryError(CUDA))
    monkeypatch.setattr(sys, "argv", ["vcl", *shlex.split(line(method, "out"))])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith(f"vcl: {said}")
    assert "which asked for 20.0 GiB more; " in told
    assert "Less is taken by --set batch=N, --set draws=N" in told
    again = shlex.join(["vcl", *shlex.split(line(method, "out"))])
    assert told.endswith(
        f"What is finished is kept in out, and `{again}` goes on from there where more memory is free.\n"
    )
    assert told.count("\n") == 1
    mend()
    output = done(line(method, "out"))
    assert f"{method}: continues after task 1" in output
    assert (f"{method}: goes on within task 2" in output) == (owner is not Eager), "a finished fit is not done again"
    assert shown_rows(here / "out") == shown_rows(here / "whole")


def test_where_nothing_is_finished_nothing_is_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_call(monkeypatch, Eager, "__call__", 1, MemoryError())
    said = fault(line("mle", "out"))
    assert said.startswith("task 1 (0/1): memory ran out in the maximum likelihood, epoch 1 of 2; take a smaller batch")
    assert said.endswith("--runs-per-job N.")
    assert list(here.iterdir()) == []


def test_a_single_run_that_diverges_keeps_the_tasks_before(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Task, epoch, tensor, remedy, and what is kept; the state on disk is that of task 1."""
    real = Eager.__call__
    calls = iter(range(1, 10**9))

    def wild(step: Eager, index: torch.Tensor | None) -> Any:
        found = real(step, index)
        if next(calls) == 5:
            step.parameters[1][:, -1] = torch.inf
        return found

    monkeypatch.setattr(Eager, "__call__", wild)
    said = fault(line("vcl", "out", "--seeds 1"))
    assert said.startswith(
        "task 2 (2/3): variational fit became non-finite in epoch 1 of 2 (seed 0): the learning rate"
    )
    assert "lower it, or scale the inputs; " in said
    assert "of 'heads.2/3.bias'" in said
    assert said.endswith("The tasks finished before are kept in out.")
    folder = part_folder(here / "out", "split-digits-vcl")
    assert (folder / "state.safetensors").exists()
    rows = (folder / "rows.csv").read_text().splitlines()
    assert {row.split(",")[2] for row in rows[1:]} == {"1"}
    monkeypatch.setattr(Eager, "__call__", real)
    assert "vcl: continues after task 1" in done(line("vcl", "out", "--seeds 1"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit of the address space")
def test_a_process_without_room_says_so_in_one_sentence(here: Path) -> None:
    """The gradient of 4 million weights where 8 MiB are left: torch's own allocation fails."""
    arguments = shlex.split(line("mle", "out", "--set hidden=2000,2000 --seeds 1"))
    code = CHILD.format(room=8 * 2**20, arguments=arguments)
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 1, found.stderr
    assert "Traceback" not in found.stderr
    assert found.stderr.count("\n") == 1
    assert re.match(
        r"vcl: task 1 \(0/1\): memory ran out in the maximum likelihood, epoch 1 of 2, .* more; take", found.stderr
    )
    assert not (here / "out").exists()


def test_a_fit_that_diverges_is_not_continued_where_it_is_not_finite(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal is saved after every step, so also after the one that spoils the weights, and before that is seen."""
    real, calls = Eager.__call__, iter(range(1, 10**9))
    more = "--seeds 1 --save-every 0 --set batch=8"
    assert call(line("vcl", "whole", more)).exit_code == 0

    def wild(step: Eager, index: torch.Tensor | None) -> Any:
        found = real(step, index)
        if next(calls) == 3:
            step.parameters[0][:, -1] = torch.inf
        return found

    monkeypatch.setattr(Eager, "__call__", wild)
    assert "became non-finite in epoch" in fault(line("vcl", "out", more))
    assert next(calls) > 4, "steps of the same epoch follow"
    monkeypatch.setattr(Eager, "__call__", real)
    done(line("vcl", "out", more))
    assert shown_rows(here / "out") == shown_rows(here / "whole")
