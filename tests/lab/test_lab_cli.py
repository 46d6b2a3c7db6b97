"""The command line as a user meets it: most calls in this process, a few in one of their own."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import alone, call, fault, files_under, known, part_folder, shown_rows

from vcl import __version__
from vcl.errors import NonFiniteError
from vcl.lab import cli, compute, learning
from vcl.lab.classification import METRICS
from vcl.lab.datasets import names as dataset_names
from vcl.lab.experiments import EXPERIMENTS
from vcl.lab.methods.networks import METHODS
from vcl.lab.results import final, matrix, methods, read_csv
from vcl.lab.runner import FinishedTask, run_method

SHOWN = ["accuracy-by-task.png", "accuracy-by-task.svg", "average-accuracy.png", "average-accuracy.svg", "rows.csv"]
PART = ["calibration.csv", "objective.csv", "part.json", "predictive.safetensors", "rows.csv"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def smoke(rest: str) -> str:
    return f"run split-digits --preset smoke --device cpu {rest}"


def process(line: str, here: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vcl", *shlex.split(line)]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120, check=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What is there.


def test_version_and_help() -> None:
    assert call("--version").output == f"vcl {__version__}\n"
    top = call("--help").output
    assert all(
        command in top for command in ("run", "sweep", "paper", "show", "predict", "sample", "bench", "list", "data")
    )
    common = (
        "--method",
        "--preset",
        "--seeds",
        "--device",
        "--out",
        "--set",
        "--grid",
        "--data",
        "--dataset",
        "--jobs",
        "--plugin",
    )
    for command, own in (("run", ("--fallback", "--dry-run", "--settings")), ("sweep", ("--select", "--validation"))):
        helped = call(f"{command} --help").output
        assert [option for option in (*common, *own) if option not in helped] == []


def test_list_shows_every_name() -> None:
    result = call("list")
    assert result.exit_code == 0
    words = result.output.split()
    wanted = [entry.name for entry in (*EXPERIMENTS, *METHODS)] + list(dataset_names())
    assert [name for name in wanted if name not in words] == []


def test_a_missing_argument_and_an_unknown_command_are_usage_errors() -> None:
    assert call("run").exit_code == 2
    assert call("rum").exit_code == 2


# A run.


def test_a_run_leaves_the_whole_story(here: Path) -> None:
    result = call(smoke("--method mle,vcl-random --seeds 3 --set tasks=3 --out out/one"))
    assert result.exit_code == 0, result.exception
    out = here / "out" / "one"
    assert names(out) == ["parts", "split-digits", "table.md"]
    assert names(out / "split-digits") == SHOWN
    assert len(names(out / "parts")) == 2

    rows = shown_rows(out)
    assert len(rows) == 2 * 3 * (3 * 4 // 2) * 4  # methods x seeds x T (T + 1) / 2 x metrics
    assert len({row[:5] for row in rows}) == len(rows)
    assert Counter(row.method for row in rows) == {"mle": 72, "vcl-random": 72}
    assert {row.metric for row in rows} == set(METRICS)
    assert {(row.after, row.on) for row in rows} == {(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)}
    assert bool(((matrix(rows, "mle") >= 0) & (matrix(rows, "mle") <= 1)).sum() == 3 * 6)

    for name in ("mle", "vcl-random"):
        folder = part_folder(out, f"split-digits-{name}")
        assert names(folder) == (sorted(["fits.csv", *PART]) if name.startswith("vcl") else PART)
        assert read_csv(folder / "rows.csv") == [row for row in rows if row.method == name]
        about = known(out, f"split-digits-{name}")
        assert about["experiment"] == "split-digits"
        assert about["preset"] == "smoke"
        assert about["changes"] == ["tasks=3"]
        assert about["method"] == name
        assert about["runs"] == [[None, seed] for seed in range(3)]
        assert about["description"]["stream"]["tasks"] == 3
        assert about["description"]["network"]["hidden"] == [16]
        assert (about["dataset"], about["origin"]) == ("digits", "embedded in scikit-learn")
        assert about["builds"][-1]["vcl"] == __version__
        assert about["builds"][-1]["torch"] == torch.__version__
        assert about["device"].endswith("threads")
        assert about["engine"] == "layered/torch"
        assert about["tasks"] == [["0/1", True], ["2/3", True], ["4/5", True]]
        assert about["seconds"] >= 0
        assert about["finished"] is True
        assert about["started"] <= about["written"]

    table = (out / "table.md").read_text()
    assert table.startswith("# split-digits, preset smoke, after 3 tasks\n")
    assert table.count("\n| ") == 4  # names, rule and two methods
    assert "| mle |" in table

    assert "split-digits on digits: embedded in scikit-learn" in result.output
    assert "vcl-random: task 3 of 3 (4/5)" in result.output
    assert "out/one/split-digits/average-accuracy.png" in result.output


def test_the_same_command_gives_the_same_rows(here: Path) -> None:
    for out in ("a", "b"):
        assert call(smoke(f"--method vcl-random --out {out}")).exit_code == 0
    one, two = (part_folder(here / out, "split-digits-vcl-random") for out in "ab")
    assert one.name == two.name
    for name in ("rows.csv", "calibration.csv", "objective.csv", "fits.csv", "predictive.safetensors"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert (here / "a" / "split-digits" / "rows.csv").read_bytes() == (one / "rows.csv").read_bytes()


def test_a_seed_gets_the_same_rows_alone_and_in_a_stack(here: Path) -> None:
    for seeds in (1, 2):
        assert call(smoke(f"--method vcl --seeds {seeds} --out {seeds}")).exit_code == 0
    alone, stack = (shown_rows(here / str(seeds)) for seeds in (1, 2))
    first = [row for row in stack if row.seed == 0]
    assert [row[:5] for row in alone] == [row[:5] for row in first]
    # Stacked products may sum in another order, which may move a metric that counts by a whole example.
    values, others = ([row.value for row in part if row.metric == "log predictive"] for part in (alone, first))
    assert values == pytest.approx(others, abs=1e-4)


def test_results_go_under_runs_when_no_folder_is_given(here: Path) -> None:
    for _ in range(2):  # within a second perhaps: the names differ all the same
        assert call(smoke("--method mle")).exit_code == 0
    made = sorted((here / "runs").iterdir())
    assert len(made) == 2
    for path in made:
        assert path.name.startswith("split-digits-smoke-")
        assert names(path) == ["parts", "split-digits", "table.md"]


@pytest.mark.parametrize("command", ["run split-digits --method mle", "paper linear-memory"])
def test_brackets_and_colons_in_a_folders_name_are_shown_as_they_are(here: Path, command: str) -> None:
    result = call(f"{command} --preset smoke --device cpu --out 'o[b]u[/x]t:ok:'")
    assert result.exit_code == 0, result.output
    assert "o[b]u[/x]t:ok:" in result.output
    assert any((here / "o[b]u[" / "x]t:ok:").iterdir())


@pytest.mark.parametrize("name", ["thesis.txt", "rows.csv", "run.json", ".hidden", "other/rows.csv", "table.md"])
def test_a_folder_with_other_files_is_refused_and_not_touched(here: Path, name: str) -> None:
    (here / "out" / name).parent.mkdir(parents=True)
    (here / "out" / name).write_text("precious")
    for line in (smoke("--out out"), "sweep split-digits --preset smoke --grid lambda=1,2 --out out"):
        assert fault(line) == (
            "out already holds files, and they are not results of this version; give --out a folder that is new, "
            "empty, or made by `vcl run`. Nothing was changed."
        )
        assert files_under(here / "out") == {name: b"precious"}


def test_a_folder_with_results_is_added_to(here: Path) -> None:
    assert call(smoke("--method mle --out out")).exit_code == 0
    before = files_under(here / "out" / "parts")
    (here / "out" / "notes.txt").write_text("precious")
    assert call(smoke("--method vcl --out out")).exit_code == 0
    after = files_under(here / "out" / "parts")
    assert {name: after[name] for name in before} == before
    assert len(after) == 2 * len(before) + 1  # a variational fit has a file more: how far it got
    assert methods(shown_rows(here / "out")) == ["mle", "vcl"]
    assert (here / "out" / "notes.txt").read_text() == "precious"


# The other methods, and grids of lambda.


def test_every_kind_of_method_in_one_run(here: Path) -> None:
    chosen = ["vcl", "ewc", "si", "lp", "map", "mle"]
    result = call(smoke(f"--method {','.join(chosen)} --out out"))
    assert result.exit_code == 0, result.exception
    assert names(here / "out" / "split-digits") == SHOWN
    rows = shown_rows(here / "out")
    assert methods(rows) == chosen
    assert set(Counter(row.method for row in rows).values()) == {2 * 3 * 4}  # seeds x T (T + 1) / 2 x metrics
    assert all(-5 < row.value < 0 for row in rows if row.metric == "log predictive")
    table = (here / "out" / "table.md").read_text()
    assert [name for name in chosen if table.count(f"\n| {name} | ") != 1] == []
    for name in chosen:
        about = known(here / "out", f"split-digits-{name}")
        assert (about["grid"], about["changes"]) == (False, [])


def test_a_grid_is_one_stack_with_a_line_for_each_lambda(here: Path) -> None:
    line = "run permuted-digits --preset smoke --device cpu --method ewc,vcl --grid lambda=1,10 --seeds 3 --out out"
    result = call(line)
    assert result.exit_code == 0, result.exception
    out = here / "out"
    assert names(out / "permuted-digits") == sorted([*SHOWN, "lambda.png", "lambda.svg"])
    rows = shown_rows(out, "permuted-digits")
    assert Counter((row.method, row.seed) for row in rows) == {
        (name, seed): 3 * 4 for name in ("ewc lambda=1", "ewc lambda=10", "vcl") for seed in range(3)
    }
    assert final(rows, "ewc lambda=1") != final(rows, "ewc lambda=10")
    about = known(out, "permuted-digits-ewc")
    assert about["grid"] is True
    assert about["runs"] == [[lam, seed] for lam in (1.0, 10.0) for seed in range(3)]
    table = (out / "table.md").read_text()
    assert [table.count(f"\n| {name} | ") for name in ("ewc lambda=1", "ewc lambda=10", "vcl", "ewc")] == [1, 1, 1, 0]
    last = next(line for line in result.output.splitlines() if line.startswith("ewc: task 2 of 2 (permutation 2)"))
    assert last.endswith(", the best of 2")
    assert " ewc λ=10 " in result.output
    assert "figure out/permuted-digits/average-accuracy.png" in result.output
    best = max((1, 10), key=lambda lam: final(rows, f"ewc lambda={lam}")["average accuracy"].mean)
    said = f"ewc: lambda={best} is best, "
    assert said in result.output
    assert said in table


def test_a_grid_of_one_needs_no_picture_of_itself(here: Path) -> None:
    assert call(smoke("--method si --grid lambda=0.5 --out out")).exit_code == 0
    assert names(here / "out" / "split-digits") == SHOWN
    assert methods(shown_rows(here / "out")) == ["si lambda=0.5"]
    assert "is best" not in (here / "out" / "table.md").read_text()


def test_split_with_one_head_is_over_all_ten_classes(here: Path) -> None:
    chosen = ["ewc", "si", "lp", "map"]
    result = call(smoke(f"--method {','.join(chosen)} --set heads=single --out out"))
    assert result.exit_code == 0, result.exception
    rows = shown_rows(here / "out")
    assert methods(rows) == chosen
    assert known(here / "out", "split-digits-ewc")["description"]["stream"]["heads"] == "single"
    # Two epochs teach little: a guess of one in ten has -2.30 nats, one of two would have -0.69.
    assert all(-3 < final(rows, name)["log predictive"].mean < -1.5 for name in chosen)


@pytest.mark.parametrize("rest", ["--method adf", "--method smc --set hidden=4 --set particles=50"])
def test_methods_that_do_not_climb(here: Path, rest: str) -> None:
    result = call(smoke(f"{rest} --out out"))
    assert result.exit_code == 0, result.exception
    rows = shown_rows(here / "out")
    assert len(rows) == 2 * 3 * 4
    # Measured: 94 % and 98 %; chance is 50 %.
    assert final(rows, rest.split()[1])["average accuracy"].mean > 0.8


# What can be wrong.


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run split-digit", "unknown experiment 'split-digit': did you mean 'split-digits'?"),
        (smoke("--method vlc"), "unknown method 'vlc': did you mean 'vcl'?"),
        (smoke("--method vcl,vcl"), "must name at least one method, each once"),
        ("run split-digits --preset smok", "unknown preset 'smok': did you mean 'smoke'?"),
        (smoke("--set epoch=3"), "unknown setting 'epoch': did you mean 'epochs'?"),
        (smoke("--set epochs=few"), "setting epochs takes a whole number, not 'few'"),
        (smoke("--set epochs=0"), "epochs is 0; give at least 1"),
        (smoke("--set tasks=6"), "tasks is 6; 10 classes make at most 5 tasks of 2: give fewer tasks"),
        (smoke("--seeds 0"), "--seeds is 0; give at least 1"),
        (smoke("--device gpu"), "unknown device 'gpu'"),
        (smoke("--fallback permuted-digit"), "unknown experiment 'permuted-digit': did you mean 'permuted-digits'?"),
        (smoke("--data nowhere"), "the data folder nowhere is not a folder"),
        (smoke("--method vcl,vcl-random --set coreset=100000"), "a coreset of 100000 points cannot be taken"),
        (
            smoke("--method smc --set hidden=100"),
            "smc takes networks of up to 500 parameters a task, and this one has 6,702",
        ),
        (smoke("--method smc --set hidden=4 --set particles=1"), "particles is 1; give at least 2"),
        (smoke("--method smc --set hidden=4 --set particles=19"), "or take more particles"),
        (smoke("--method ewc --grid 1,10"), "--grid '1,10' is not of the form lambda=1,10,100 or lambda=paper"),
        (
            smoke("--method ewc --grid lambda=-1"),
            "lambda is -1 in --grid; give a number from 0 (which forgets) to 1e+12.",
        ),
        (smoke("--method ewc --grid lambda=paper"), "the paper has no grid of lambda for ewc on split-digits"),
        (smoke("--method ewc --grid lambda=1,2 --set lambda=3"), "both --grid lambda=… and --set lambda=… were given"),
        (smoke("--method vcl --grid lambda=1"), "none of vcl takes a lambda"),
        (smoke("--method ewc --set lambda=-1"), "lambda is -1.0; give a number from 0"),
        (smoke("--set init_var=1e30"), "init_var is 1e+30; give a number from 1e-12 to 1e+06."),
        (smoke("--set prior_var=1e-300"), "prior_var is 1e-300; give a number from 1e-12 to 1e+06."),
        (smoke("--set init_sd=1e30"), "init_sd is 1e+30; give a number from 1e-06 to 1000."),
        (smoke("--method si --set damping=1e-300"), "damping is 1e-300; give a number from 1e-12 to 1e+06."),
        (smoke("--method ewc --set lambda=1e30"), "lambda is 1e+30; give a number from 0 (which forgets) to 1e+12."),
        (smoke("--set heads=two"), "unknown heads 'two'; accepted: multi, shared, single."),
        ("run permuted-digits --preset smoke --set heads=multi", "unknown setting 'heads': did you mean"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(here: Path, line: str, message: str) -> None:
    said = fault(f"{line} --out out")
    assert message in said
    assert "\n" not in said
    assert list(here.iterdir()) == []


def test_a_coreset_that_is_too_large_is_refused_before_any_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Iterator[FinishedTask]:
        pytest.fail("training started")

    monkeypatch.setattr(learning, "run_method", never)
    # Plain vcl, which needs no coreset, would have been trained first.
    assert "give a size from 1 to" in fault(smoke("--method vcl,vcl-kcenter --set coreset=100000 --out out"))


def test_cuda_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "torch sees no CUDA device here" in fault(smoke("--device cuda"))


def test_out_under_a_file(here: Path) -> None:
    (here / "file").write_text("precious")
    assert "cannot make file/out (Not a directory); give --out" in fault(smoke("--out file/out"))
    assert (here / "file").read_text() == "precious"


def test_out_where_one_may_not_write(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert "cannot make out (Permission denied); give --out" in fault(smoke("--out out"))


def test_missing_data_says_what_to_do_and_leaves_nothing(here: Path) -> None:
    said = fault("run split-mnist --preset smoke --out out")
    assert said.startswith("mnist is in none of ")
    assert "VCL_OFFLINE forbids the network" in said
    assert "; to have it, " in said
    assert list(here.iterdir()) == []


def test_the_fallback_is_run_where_data_is_missing(here: Path) -> None:
    result = call("run split-mnist --preset smoke --method mle --fallback split-digits --out out")
    assert result.exit_code == 0, result.exception
    (told,) = [line for line in result.output.splitlines() if "is unavailable" in line]
    assert told.startswith("mnist is unavailable, so split-digits is run instead: mnist is in none of ")
    about = known(here / "out", "split-digits-mle")
    assert (about["experiment"], about["dataset"]) == ("split-digits", "digits")


def test_non_finite_training_names_task_epoch_and_cause_and_leaves_nothing(here: Path) -> None:
    said = fault(smoke("--set lr=1e30 --out out"))
    assert said.startswith("task 1 (0/1): ")
    assert "became non-finite in epoch 2 of 2" in said
    assert "the learning rate 1e+30 is probably too large for this data; lower it" in said
    # Nothing had been finished, so nothing is in the way of the same command with a lower rate.
    assert list(here.iterdir()) == []
    assert call(smoke("--method mle --out out")).exit_code == 0


def test_what_was_finished_before_a_failure_is_kept(here: Path) -> None:
    # One step of maximum likelihood ends at huge but finite weights; the variational fit's variances overflow.
    result = call(smoke("--method mle,vcl --set epochs=1 --set lr=1e15 --out out"))
    assert isinstance(result.exception, NonFiniteError)
    folder = part_folder(here / "out", "split-digits-mle")
    assert len(read_csv(folder / "rows.csv")) == 2 * 3 * 4
    assert known(here / "out", "split-digits-mle")["finished"] is True
    assert names(here / "out" / "parts") == [folder.name], "and nothing of what failed"
    result = call("show out")
    assert result.exit_code == 0, result.exception
    assert methods(shown_rows(here / "out")) == ["mle"]


def test_predictions_that_are_not_finite_are_never_an_accuracy(here: Path) -> None:
    # With one epoch the objective was finite when it was last looked at.
    said = fault(smoke("--method mle --set epochs=1 --set lr=1e30 --out out"))
    assert said.startswith("task 1 (0/1): the predictions on task 1 (0/1) are not finite")
    assert list(here.iterdir()) == []


# Through main(), where errors become words and exit codes.


def through_main(line: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["vcl", *shlex.split(line)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_a_second_signal_ends_in_one_line_too(
    stop: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it came while the first one was dealt with, so that no folder is known any more."""

    def stopped() -> None:
        raise stop

    monkeypatch.setattr(cli, "app", stopped)
    before = signal.getsignal(signal.SIGINT)
    assert through_main("list", monkeypatch) == code
    assert capsys.readouterr().err == "vcl: stopped.\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_names_the_folder_that_was_chosen(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any, **named: Any) -> Iterator[FinishedTask]:
        yield next(run_method(*given, **named))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_method", interrupted)
        assert through_main(smoke("--set hidden=4"), patch) == 130
    (out,) = Path("runs").iterdir()
    again = smoke(f"--set hidden=4 --out {out}")
    said = f"vcl: stopped; what is done is kept in {out}, and `vcl {again}` goes on from there.\n"
    assert capsys.readouterr().err == said
    assert "vcl: continues after task 1\n" in call(again).output


def test_ctrl_c_keeps_what_was_finished(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[FinishedTask] = []

    def interrupted(*given: Any, **named: Any) -> Iterator[FinishedTask]:
        kept.append(next(run_method(*given, **named)))
        yield kept[0]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_method", interrupted)
        assert through_main(smoke("--out out"), patch) == 130
    again = f"vcl {smoke('--out out')}"
    assert capsys.readouterr().err == f"vcl: stopped; what is done is kept in out, and `{again}` goes on from there.\n"
    assert read_csv(part_folder(here / "out", "split-digits-vcl") / "rows.csv") == kept[0].rows
    # As was said, the same command continues after it.
    result = call(smoke("--out out"))
    assert result.exit_code == 0, result.exception
    assert "vcl: continues after task 1\n" in result.output
    assert shown_rows(here / "out")[:8] == kept[0].rows


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "memory ran out in the command; take fewer examples, "),
        (
            RuntimeError("[alloc_cpu] can't allocate memory: you tried to allocate 4096 bytes\nmore"),
            "memory ran out in the command, which asked for 4.0 KiB more; take fewer examples, ",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to\nmore"),
            "the GPU's memory ran out in the command; take fewer examples, ",
        ),
        (
            OSError(28, "No space left on device", "/x"),
            "the system refused: [Errno 28] No space left on device: '/x'; ",
        ),
    ],
)
def test_what_nobody_foresaw_of_memory_and_files_is_one_sentence(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(compute, "compute_all", fail)
    assert through_main(smoke("--out out"), monkeypatch) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"vcl: {said}")
    assert told.count("\n") == 1
    assert list(here.iterdir()) == []


def test_a_fault_of_the_program_itself_is_not_hidden(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(compute, "compute_all", fail)
    monkeypatch.setattr(sys, "argv", ["vcl", *shlex.split(smoke("--out out"))])
    with pytest.raises(RuntimeError, match="shapes differ"):
        cli.main()


def test_main_ends_well_where_all_is_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert through_main("list", monkeypatch) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (smoke("--method vlc"), "unknown method 'vlc': did you mean 'vcl'?"),
        ("run split-mnist --preset smoke --out out", "mnist is in none of"),
        (smoke("--set lr=1e30 --out out"), "became non-finite in epoch 2 of 2"),
    ],
)
def test_a_process_that_fails_says_one_line_and_exits_with_1(here: Path, line: str, message: str) -> None:
    ended = process(line, here)
    assert ended.returncode == 1
    assert ended.stderr.startswith("vcl: ")
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stdout + ended.stderr
    assert list(here.iterdir()) == []


def test_a_process_writes_down_its_command(here: Path) -> None:
    ended = process(smoke("--method mle --out 'my results'"), here)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (
        known(here / "my results", "split-digits-mle")["command"]
        == "vcl run split-digits --preset smoke --device cpu --method mle"
    )


def test_the_command_line_is_light_to_import() -> None:
    code = "import sys, vcl.lab.cli; sys.exit(bool({'numpy', 'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# --dry-run.


def test_dry_run_shows_plan_time_and_memory_and_writes_nothing(here: Path) -> None:
    result = call(smoke("--method vcl,vcl-random --dry-run --out out"))
    assert result.exit_code == 0, result.exception
    assert "split-digits, preset smoke, 2 seeds stacked, on cpu" in result.output
    assert "epochs=2" in result.output
    for name, steps in (("vcl", 4), ("vcl-random", 10)):  # worked out in test_lab_estimate.py
        (line,) = [line for line in result.output.splitlines() if line.startswith(f"│ {name} ")]
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        assert cells[1] == str(steps)
        assert cells[2].endswith(" s")
        assert cells[3].endswith(" GB")
    assert list(here.iterdir()) == []


def dry_run(rest: str, here: Path) -> dict[str, list[str]]:
    """The cells of each method's line in the table."""
    result = call(f"{smoke(rest)} --dry-run")
    assert result.exit_code == 0, result.exception
    assert list(here.iterdir()) == []
    lines = [line.strip("│").split("│") for line in result.output.splitlines() if line.startswith("│")]
    return {"output": [result.output], **{name.strip(): [cell.strip() for cell in rest] for name, *rest in lines}}


def test_dry_run_of_a_grid(here: Path) -> None:
    told = dry_run("--method ewc,vcl,si --grid lambda=1,0.5", here)
    assert "ewc: lambda 1, 0.5, stacked too\nsi: lambda 1, 0.5, stacked too\n" in told["output"][0]
    assert [told[name][0] for name in ("ewc", "vcl", "si")] == ["4", "4", "4"]  # one stack: no more steps than vcl


def test_dry_run_of_methods_that_do_not_climb(here: Path) -> None:
    # Both tasks have 288 examples.
    told = dry_run("--method adf,smc --set hidden=4 --set particles=50", here)
    assert (told["adf"][0], told["smc"][0]) == ("576", "576")
    assert dry_run("--method adf --set filter_batch=10", here)["adf"][0] == "58"


def test_dry_run_refuses_what_a_run_would(here: Path) -> None:
    assert "up to 500 parameters a task" in fault(smoke("--method smc --set hidden=100 --dry-run"))
    assert "coreset of 100000 points" in fault(smoke("--method vcl-random --set coreset=100000 --dry-run"))
    assert "mnist is in none of" in fault("run split-mnist --dry-run")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("run split-digits --out here --seeds 2", "vcl run split-digits --seeds 2"),
        ("run split-digits --out=here --data there --set lr=0.1", "vcl run split-digits --set lr=0.1"),
        ("run split-digits", "vcl run split-digits"),
    ],
)
def test_the_command_that_is_kept_names_no_folder_of_this_machine(words: str, kept: str) -> None:
    from vcl.lab.provenance import command

    assert command(words.split()) == kept


def test_a_setting_that_one_method_does_not_use_is_noted_and_no_error(here: Path) -> None:
    line = "run split-digits --preset smoke --seeds 1 --device cpu --method mle,vcl-random --set coreset=2 --out out"
    told = "note: setting coreset changes nothing for mle; it is for vcl-random.\n"
    for rest in ("--dry-run", ""):
        result = call(f"{line} {rest}")
        assert result.exit_code == 0, result.exception
        assert result.output.count(told) == 1
    assert "note: " not in call(f"{line}2 --set epochs=1".replace("--set coreset=2", "")).output
