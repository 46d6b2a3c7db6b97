"""Parts are computed once, continued after a stop, and anew only where something they depend on has changed."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import alone, call, files_under, images, part_folder, shown_rows, without_checksums
from rich.console import Console

from vcl.beliefs.layout import Layout
from vcl.beliefs.point import Point
from vcl.errors import VclError
from vcl.fitting.loop import Progress
from vcl.lab import background_writer, compute, folder, learning
from vcl.lab import store as store_module
from vcl.lab.claim import claimed
from vcl.lab.compute import Result, missing, prepare
from vcl.lab.evaluation import Run
from vcl.lab.identity import described, description, identity
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan, make_plan
from vcl.lab.provenance import made_by
from vcl.lab.registry import method as entry_of
from vcl.lab.results import methods, read_confidences, read_csv, read_measures, read_objectives
from vcl.lab.runner import FinishedTask, quiet, run_method
from vcl.lab.settings import settings_in
from vcl.lab.store import RunKey, Store
from vcl.recursion import SetAside, State

ARRAYS = images(train=120, test=40)
DATA = Loaded(ARRAYS, "made up", ARRAYS.digest())
SMALL = ("train_limit=60", "test_limit=20", "hidden=4", "tasks=3")
GENERATIVE = (
    "hidden=4", "latent=2", "features=4", "ll_draws=2", "images=4", "classifier_hidden=8", "classifier_epochs=1",
    "tasks=3",
)  # fmt: skip


def plan(
    method: str = "vcl-random", *changes: str, grid: str | None = None, name: str = "permuted-digits", seeds: int = 2
) -> Plan:
    """A plan of one method; more may be named, whose settings can then be changed."""
    small = GENERATIVE if name.startswith("generative") else SMALL
    models = "generators" if name.startswith("generative") else "networks"
    if any("coreset" in settings_in(entry_of(each, models).settings) for each in method.split(",")):
        small = (*small, "coreset=5")
    return make_plan(name, method, "smoke", seeds, "cpu", (*small, *changes), grid)


def asked(plan: Plan, data: Loaded = DATA) -> Part:
    """The part of the plan's first method."""
    return Part(plan, plan.methods[0], data)


def computed(plan: Plan, store: Store, data: Loaded = DATA) -> Result:
    return compute.compute(asked(plan, data), store, Console(file=StringIO()))


def only(store: Store) -> Path:
    """The folder of the only stack."""
    (stack,) = store.stacks()
    return stack.folder


def record(store: Store) -> Any:
    return json.loads((only(store) / "part.json").read_text())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, torch.device("cpu"), "vcl paper test")


def counting(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[int]:
    """The numbers of the tasks that are really learned, from now on; perhaps with a stop."""
    learned: list[int] = []

    def watched(*args: Any) -> Iterator[FinishedTask]:
        for done in run_method(*args):
            learned.append(done.number)
            if done.number == stop_after:
                raise KeyboardInterrupt
            yield done

    monkeypatch.setattr(learning, "run_method", watched)
    return learned


def stacked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunKey, ...]]:
    """The runs of each stack that is learned from now on."""
    learned: list[tuple[RunKey, ...]] = []

    def watched(plan: Any, entry: Any, runs: Any, *rest: Any) -> Iterator[FinishedTask]:
        learned.append(tuple(map(store_module.key, runs)))
        return run_method(plan, entry, runs, *rest)

    monkeypatch.setattr(learning, "run_method", watched)
    return learned


def stopped(monkeypatch: pytest.MonkeyPatch, plan: Plan, store: Store, after: int) -> None:
    """A part that is stopped when so many tasks are learned, before the last of them is written."""
    with monkeypatch.context() as patch:
        counting(patch, stop_after=after)
        with pytest.raises(KeyboardInterrupt):
            computed(plan, store)


# Once.


def test_a_second_call_computes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = counting(monkeypatch)
    first = computed(plan(), store)
    assert learned == [1, 2, 3]
    content = files_under(store.root)
    again = computed(plan(), store)
    assert learned == [1, 2, 3]
    assert (first.new, again.new) == (True, False)
    assert again[:3] == first[:3]
    assert files_under(store.root) == content
    names = sorted(path.name for path in only(store).iterdir())
    assert names == ["calibration.csv", "fits.csv", "objective.csv", "part.json", "predictive.safetensors", "rows.csv"]


def test_one_objective_for_each_run_and_epoch(store: Store) -> None:
    computed(plan("mle", "epochs=4"), store)
    found = read_objectives(only(store) / "objective.csv")
    assert Counter(each[:5] for each in found) == {
        ("mle", seed, task, "maximum likelihood", epoch): 1
        for seed in (0, 1)
        for task in (1, 2, 3)
        for epoch in (1, 2, 3, 4)
    }
    assert len({each.value for each in found}) == len(found)
    assert all(-10_000 < each.value < 0 for each in found)


def test_confidences_are_of_the_last_task_and_of_when_each_was_learned(store: Store) -> None:
    made = computed(plan("mle", "epochs=4"), store)
    found = read_confidences(only(store) / "calibration.csv")
    assert len({each[:5] for each in found}) == len(found)
    assert {each[2:4] for each in found} == {(1, 1), (2, 2), (3, 1), (3, 2), (3, 3)}
    for row in made.rows:
        mine = [each for each in found if each[:4] == row[:4]]
        if row.metric == "accuracy" and mine:
            assert sum(each.right for each in mine) / sum(each.examples for each in mine) == pytest.approx(row.value)
        assert all((each.bin - 1) / 10 < each.confidence <= each.bin / 10 for each in mine)


FITS = {"variational fit": 4, "variational fit 2": 3}
"""That of q-tilde, and that to the coreset, with their epochs."""


def test_a_method_with_several_fits_names_each(store: Store) -> None:
    computed(plan("vcl-random", "epochs=4", "coreset_epochs=3"), store)
    found = read_objectives(only(store) / "objective.csv")
    assert len({each[:5] for each in found}) == len(found)
    wanted = {(task, fit, seed): epochs for task in (1, 2, 3) for seed in (0, 1) for fit, epochs in FITS.items()}
    started = {(1, "maximum likelihood", seed): 4 for seed in (0, 1)}
    assert Counter((each.task, each.fit, each.seed) for each in found) == wanted | started
    for key, epochs in (wanted | started).items():
        assert [each.epoch for each in found if (each.task, each.fit, each.seed) == key] == [*range(1, epochs + 1)]


def test_how_far_each_fit_got_is_kept_and_said_once(store: Store) -> None:
    computed(plan("vcl-random", "epochs=4", "coreset_epochs=3"), store)
    found = read_measures(only(store) / "fits.csv")
    assert len({each[:5] for each in found}) == len(found)
    assert {(each.task, each.fit, each.seed) for each in found} == {
        (task, fit, seed) for task in (1, 2, 3) for seed in (0, 1) for fit in FITS
    }
    measures = {each.measure for each in found if each.task == 1}
    names = {each.split(" ", 1)[1] for each in measures if each != "limited"}
    weights = {name for name in names if name.endswith("weight")}
    each = {f"{kind} {name}" for kind in ("kl", "sd") for name in names}
    assert measures == {"limited"} | each | {f"pruned {name}" for name in weights}
    assert all(each.value >= 0 for each in found)
    assert all(each.value <= 1 for each in found if not each.measure.startswith("kl "))
    line = record(store)["still_moving"]
    assert re.fullmatch(
        r"\d+ of 12 variational fits had not converged: up to \d+ % of the variances were still moving as fast as the "
        r"learning rate allows, so they reflect init_var\. Use more epochs or, where Adam fits, a higher lr\.",
        line,
    )
    assert sum(each.measure == "limited" for each in found) == 12


def test_a_natural_fit_says_nothing(store: Store) -> None:
    computed(plan("vcl-natural", "epochs=20"), store)
    assert {each.value for each in read_measures(only(store) / "fits.csv") if each.measure == "limited"} == {0.0}
    assert "still_moving" not in record(store)


def test_objectives_of_runs_that_are_set_aside() -> None:
    """Of five runs one is gone since task 1. In task 2 two more leave it in training and one in prediction."""
    runs = [Run("vcl", seed, None) for seed in range(5)]
    gone = [SetAside(run, run, None, task, "why") for run, task in ((3, 1), (0, 2), (4, 2), (1, 2))]
    point = Point(Layout((), ()), torch.zeros(1, 0))
    state = State(2, {}, point, {}, None, set_aside=tuple(gone))
    assert state.alive == (2,)
    progress = [
        Progress("fit", 1, 2, torch.tensor([0.0, 1.0, 2.0, 4.0])),
        Progress("fit", 2, 2, torch.tensor([0.5, 1.0, 2.0, 4.0])),
        *(Progress("fit", epoch, 2, torch.tensor([10.0 + epoch, 20.0 + epoch])) for epoch in (1, 2)),
        Progress("fit", 1, 1, torch.tensor([30.0, 40.0])),
    ]
    found = learning._objectives(progress, 2, runs, state)
    assert sorted(each[1:] for each in found) == [
        (0, 2, "fit", 1, 0.0), (0, 2, "fit", 2, 0.5),
        (1, 2, "fit", 1, 11.0), (1, 2, "fit", 2, 12.0), (1, 2, "fit 2", 1, 30.0),
        (2, 2, "fit", 1, 21.0), (2, 2, "fit", 2, 22.0), (2, 2, "fit 2", 1, 40.0),
        (4, 2, "fit", 1, 4.0), (4, 2, "fit", 2, 4.0),
    ]  # fmt: skip


# Stops. Whatever is written last, the same command ends at the same bits.

METHODS = [
    ("vcl", "permuted-digits"), ("vcl-random", "split-digits"), ("ewc", "split-digits"), ("si", "permuted-digits"),
    ("vcl-random", "generative-digits"),
]  # fmt: skip
NOT_WRITTEN_TWICE = ("seconds", "asked", "started", "written", "builds", "check")


def state_of(store: Store) -> dict[str, Any]:
    """All that a part's files hold, but for the time that it took."""
    found: dict[str, Any] = {}
    for name, content in files_under(store.root).items():
        if name.endswith("part.json"):
            known = json.loads(content)
            found[name] = {key: value for key, value in known.items() if key not in NOT_WRITTEN_TWICE}
        else:
            found[name] = content
    return found


@pytest.mark.parametrize("method", ["vcl-random", "ewc", "si", "lp", "adf", "batch-vi"])
@pytest.mark.parametrize("name", ["permuted-digits", "split-digits"])
def test_after_a_stop_it_goes_on_and_ends_at_the_same_numbers(
    method: str, name: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = Store(tmp_path / "straight", torch.device("cpu"), "vcl paper test")
    wanted = computed(plan(method, name=name), straight).rows
    stopped(monkeypatch, plan(method, name=name), store, after=2)
    learned = counting(monkeypatch)
    found = computed(plan(method, name=name), store)
    # The stop came before task 2 was written, so at most the task in progress is learned again.
    assert learned == [2, 3]
    assert found.rows == wanted
    assert state_of(store) == state_of(straight)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("method", "name"), METHODS)
def test_a_stop_at_any_write_ends_at_the_same_files(
    method: str, name: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two files of any task, also between rows and state; what was not written is learned again."""
    real, written = folder._write, list[str]()

    def watched(path: Path, content: bytes) -> None:
        stop = len(written) == crash
        written.append(path.name)
        if stop and when == "before":
            raise KeyboardInterrupt
        real(path, content)
        if stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(folder, "_write", watched)
    crash = -1
    straight = Store(tmp_path / "straight", torch.device("cpu"), "vcl paper test")
    wanted, files = computed(plan(method, name=name), straight), list(written)
    assert [Counter(files)[name] for name in ("state.safetensors", "predictive.safetensors", "rows.csv")] == [2, 1, 3]
    for place in range(len(files)):
        mine = Store(tmp_path / str(place), torch.device("cpu"), "vcl paper test")
        written.clear()
        crash = place
        with pytest.raises(KeyboardInterrupt):
            computed(plan(method, name=name), mine)
        assert len(written) == place + 1
        crash = -1
        learned = counting(monkeypatch)
        found = computed(plan(method, name=name), mine)
        kept = files[: place + (when == "after")].count("state.safetensors")
        finished = when == "after" and place == len(files) - 1
        assert learned == ([] if finished else [1, 2, 3][kept:]), files[place]
        assert not list(only(mine).glob("journal-*"))
        assert not (only(mine) / "state.safetensors").exists()
        assert found.rows == wanted.rows, files[place]
        assert {name: drawn[-1].tolist() for name, drawn in found.pictures.items()} == {
            name: drawn[-1].tolist() for name, drawn in wanted.pictures.items()
        }
        assert state_of(mine) == state_of(straight), files[place]


KILLER = """
import os, signal, sys
from pathlib import Path
from vcl.lab import cli, folder
name, count = sys.argv[1], int(sys.argv[2])
sys.argv = ["vcl", *sys.argv[3:]]
real, seen = os.fsync, []
def fsync(handle):
    if Path(os.readlink(f"/proc/self/fd/{handle}")).name.startswith(f".{name}."):
        seen.append(1)
        if len(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
os.fsync = fsync
cli.main()
"""
"""The command line in a process that is killed within the writing of a file, the so-and-so-manieth time."""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files are told by what Linux calls them")
@pytest.mark.parametrize(
    ("file", "count", "after"),
    [("state.safetensors", 1, 0), ("rows.csv", 2, 1), ("predictive.safetensors", 1, 1), ("part.json", 4, 1)],
)
def test_a_process_that_is_killed_is_continued_by_the_same_command(
    file: str, count: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = alone(tmp_path, monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    line = "run split-digits --preset smoke --device cpu --method vcl-random --set hidden=4 --out "
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, file, str(count), *shlex.split(line + "out")],
        cwd=here, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (part,) = (here / "out" / "parts").iterdir()
    assert [path.name for path in part.iterdir() if path.name.startswith(".")] != [], "half a file is there"
    for out in ("out", "whole"):
        result = call(line + out)
        assert result.exit_code == 0, result.exception
        assert (f"vcl-random: continues after task {after}\n" in result.output) == (out == "out" and after > 0)
    found, whole = (files_under(part_folder(here / out, "split-digits-vcl-random")) for out in ("out", "whole"))
    assert (
        sorted(found)
        == sorted(whole)
        == ["calibration.csv", "fits.csv", "objective.csv", "part.json", "predictive.safetensors", "rows.csv"]
    )
    for name in ("calibration.csv", "fits.csv", "objective.csv", "rows.csv", "predictive.safetensors"):
        assert found[name] == whole[name], name
    assert shown_rows(here / "out") == shown_rows(here / "whole")


def test_rows_of_a_task_that_the_state_does_not_have_are_not_doubled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two files: the rows of task 2 are there, its state is not."""
    real = background_writer.write_atomic_bytes

    def crash(path: Path, content: bytes, written: list[int] = []) -> None:  # noqa: B006
        written.append(1)
        if len(written) == 2:
            raise KeyboardInterrupt
        real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(background_writer, "write_atomic_bytes", crash)
        with pytest.raises(KeyboardInterrupt):
            computed(plan("mle"), store)
    assert max(row.after for row in read_csv(only(store) / "rows.csv")) == 2
    rows = computed(plan("mle"), store).rows
    assert len({row[:5] for row in rows}) == len(rows)
    assert sorted({row.after for row in rows}) == [1, 2, 3]
    assert read_csv(only(store) / "rows.csv") == rows


def test_a_part_keeps_what_was_said_of_its_numbers_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier that generators are judged by."""
    wanted = plan("vcl", name="generative-digits")
    stopped(monkeypatch, wanted, store, after=2)
    found = computed(wanted, store)
    (note,) = record(store)["notes"]
    assert note.startswith("classifier: ")
    assert found.notes == (note,)


def test_a_resumed_part_counts_the_seconds_of_both_calls(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(monkeypatch, plan("mle"), store, after=3)
    path = without_checksums(only(store)) / "part.json"
    path.write_text(json.dumps(record(store) | {"seconds": 1000.0}))
    assert 1000 < computed(plan("mle"), store).seconds < 1100


# More runs.


def test_more_seeds_compute_the_new_ones_and_leave_the_old_as_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = stacked(monkeypatch)
    first = computed(plan("vcl"), store)
    before = files_under(store.root)
    more = computed(plan("vcl", seeds=4), store)
    assert learned == [(RunKey(None, 0), RunKey(None, 1)), (RunKey(None, 2), RunKey(None, 3))]
    assert before.items() <= files_under(store.root).items()
    assert [row for row in more.rows if row.seed < 2] == first.rows
    assert {row.seed for row in more.rows} == {0, 1, 2, 3}
    assert more.new
    fewer = computed(plan("vcl", seeds=1), store)
    assert len(learned) == 2, "fewer are read"
    assert fewer.rows == [row for row in first.rows if row.seed == 0]


def test_a_larger_grid_computes_the_new_lambdas(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = stacked(monkeypatch)
    one = computed(plan("ewc", "lambda=10"), store)
    assert methods(one.rows) == ["ewc"]
    before = files_under(store.root)
    grid = computed(plan("ewc", grid="lambda=1,10"), store)
    assert learned[1:] == [(RunKey(1.0, 0), RunKey(1.0, 1))], "a run with one lambda is used by a grid"
    assert methods(grid.rows) == ["ewc lambda=1", "ewc lambda=10"]
    assert [row._replace(method="ewc") for row in grid.rows if row.method == "ewc lambda=10"] == one.rows
    larger = computed(plan("ewc", grid="lambda=100,1,10,0.5"), store)
    assert learned[2:] == [tuple(RunKey(lam, seed) for lam in (100.0, 0.5) for seed in (0, 1))]
    assert methods(larger.rows) == [f"ewc lambda={lam}" for lam in ("100", "1", "10", "0.5")]
    assert before.items() <= files_under(store.root).items()
    again = computed(plan("ewc", "lambda=0.5"), store)
    assert len(learned) == 3, "and one of a grid by a run with that lambda"
    assert again.rows == [row._replace(method="ewc") for row in larger.rows if row.method == "ewc lambda=0.5"]


def test_a_run_is_the_same_in_whatever_stack(store: Store, tmp_path: Path) -> None:
    """Seeds and lambdas that are added later against the same in one stack."""
    together = Store(tmp_path / "together", torch.device("cpu"), "")
    wanted = computed(plan("ewc", grid="lambda=1,10,100", seeds=3), together).rows
    computed(plan("ewc", grid="lambda=10", seeds=1), store)
    computed(plan("ewc", grid="lambda=10,100", seeds=2), store)
    found = computed(plan("ewc", grid="lambda=1,10,100", seeds=3), store).rows
    assert [row[:5] for row in sorted(found)] == [row[:5] for row in sorted(wanted)]
    # Stacked products may sum in another order, which may move a metric that counts by a whole example.
    ours, theirs = ([row.value for row in sorted(rows) if row.metric == "log predictive"] for rows in (found, wanted))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_an_unfinished_stack_is_continued_if_all_its_runs_are_asked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(monkeypatch, plan("si", seeds=2), store, after=3)
    half = files_under(store.root)
    with monkeypatch.context() as patch:
        learned = stacked(patch)
        computed(plan("si", seeds=1), store)
    assert learned == [(RunKey(1.0, 0),)], "seed 1 was not asked for"
    assert half.items() <= files_under(store.root).items()
    with monkeypatch.context() as patch:
        learned, numbers = stacked(patch), counting(patch)
        del learned
        computed(plan("si", seeds=3), store)
    assert numbers == [1, 2, 3], "seed 0 is there by now, so the old stack would compute it again"
    found = computed(plan("si", seeds=3), store)
    assert Counter(row.seed for row in found.rows) == dict.fromkeys(range(3), 6 * 4)


def test_only_a_command_that_needs_the_stack_of_another_process_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(monkeypatch, plan("si", seeds=2), store, after=3)
    with claimed(only(store)):
        for seeds in (2, 3):
            with pytest.raises(VclError, match="another vcl is at work in"):
                computed(plan("si", seeds=seeds), store)
        found = computed(plan("si", seeds=1), store)
    assert {row.seed for row in found.rows} == {0}
    assert sorted(len(stack.runs) for stack in store.stacks()) == [1, 2]


def test_an_unfinished_stack_is_continued_beside_new_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(monkeypatch, plan("si", seeds=2), store, after=3)
    with monkeypatch.context() as patch:
        learned = counting(patch)
        computed(plan("si", seeds=3), store)
    assert learned == [3, 1, 2, 3], "the last task of two, and all of the third"
    assert [stack.runs for stack in store.stacks()] == [
        (RunKey(1.0, 0), RunKey(1.0, 1)),
        (RunKey(1.0, 2),),
    ]


def test_stacks_are_in_the_order_in_which_they_were_begun(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(monkeypatch, plan("si"), store, after=3)
    began = record(store)["started"]
    later = Store(store.root.parent, store.device, "later")
    computed(plan("ewc"), later)
    computed(plan("si"), later)
    assert [stack.known["method"] for stack in store.stacks()] == ["si", "ewc"]
    first = store.stacks()[0].known
    assert first["asked"] <= first["started"] == began < first["written"]


# What a part is known by.


def name_of(plan: Plan, data: Loaded = DATA) -> str:
    return identity(described(description(plan, plan.methods[0], data.digest, {})))


@pytest.mark.parametrize(
    ("method", "change", "touches"),
    [
        ("vcl-random", "coreset=6", True),
        ("vcl,vcl-random", "coreset=6", False),
        ("vcl", "draws=3", True),
        ("ewc,vcl", "draws=3", False),
        ("ewc", "predict_draws=7", False),
        ("vcl", "predict_draws=7", True),
        ("mle,ewc", "lambda=2", False),
        ("si", "damping=0.5", True),
        ("ewc,si", "damping=0.5", False),
        ("mle", "hidden=5", True),
        ("mle", "train_limit=50", True),
        ("mle", "tasks=2", True),
        ("mle", "order=2,1,0", True),
        ("mle", "matmul=tf32", False),  # a CPU never rounds factors
        ("vcl,vcl-random", "coreset_epochs=7", False),
        ("random-only,vcl", "epochs=7", False),
        ("si,vcl", "average=0.5", False),
        ("ewc", "prior_var=2", False),
        ("lp", "prior_var=2", True),
        ("vcl,ewc", "ewc.lr=0.5", False),
        ("ewc,vcl", "ewc.lr=0.5", True),
    ],
)
def test_a_changed_setting_touches_only_what_depends_on_it(method: str, change: str, touches: bool) -> None:
    assert (name_of(plan(method)) != name_of(plan(method, change))) == touches


@pytest.mark.parametrize("method", ["vcl", "naive", "ewc"])
@pytest.mark.parametrize(
    "change", ["ll_draws=7", "ll_drawn=7", "images=7", "classifier_hidden=7", "classifier_epochs=7"]
)
def test_how_generators_are_judged_touches_every_method(method: str, change: str) -> None:
    """A point's images too are drawn and judged; only where predictions are of the mean alone is nothing drawn."""
    plans = [make_plan("generative-digits", method, "smoke", 1, "cpu", changes) for changes in ((), (change,))]
    assert name_of(plans[0]) != name_of(plans[1])


def test_experiments_methods_and_data_tell_parts_apart_and_runs_do_not() -> None:
    base = plan("ewc")
    altered = ARRAYS._replace(test_x=ARRAYS.test_x + 1)
    names = [
        name_of(base),
        name_of(plan("ewc", name="split-digits")),
        name_of(plan("lp")),
        name_of(base, Loaded(altered, "made up", altered.digest())),
    ]
    assert len(set(names)) == len(names)
    runs = (plan("ewc", seeds=3), plan("ewc", "lambda=3"), plan("ewc", grid="lambda=1,10"))
    assert [name_of(each) for each in runs] == [names[0]] * 3, "they are more runs of the same part"


def test_the_data_of_a_classifier_and_the_classifier_tell_generators_apart(store: Store, tmp_path: Path) -> None:
    part = asked(plan("vcl", name="generative-digits"))
    value = described(prepare(part, store, quiet)[1])
    (kept,) = store.root.glob("classifier-*")
    about = json.loads((kept / "part.json").read_text())
    assert (about["finished"], about["description"]["data"]) == (True, DATA.digest)
    checksum = value["prediction"]["classifier"]
    assert len(checksum) == 64
    other = asked(plan("vcl", "classifier_epochs=2", name="generative-digits"))
    assert described(prepare(other, store, quiet)[1])["prediction"]["classifier"] != checksum
    assert len(list(store.root.glob("classifier-*"))) == 2


def test_a_file_is_made_once(store: Store) -> None:
    calls: list[int] = []

    def make(n: int) -> Path:
        def content() -> bytes:
            calls.append(n)
            return f"a,b\n{n},2\n".encode()

        return store.once("thing", {"n": n}, content, "table.csv")

    one, again, other = make(1), make(1), make(2)
    assert calls == [1, 2]
    assert one.read_text() == "a,b\n1,2\n"
    assert again == one != other
    assert one.parent.parent == store.root


def test_a_file_that_could_not_be_made_is_made_the_next_time(store: Store) -> None:
    def fail() -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.once("thing", {"n": 1}, fail, "file")
    assert store.once("thing", {"n": 1}, lambda: b"made", "file").read_bytes() == b"made"


def test_a_damaged_part_is_one_sentence(store: Store) -> None:
    computed(plan("mle"), store)
    (only(store) / "part.json").write_text("{")
    with pytest.raises(VclError, match=r"part\.json cannot be read .*; delete its folder to compute it anew"):
        computed(plan("mle"), store)


def stored_with(store: Store, change: Callable[[dict[str, Any]], object]) -> None:
    """The only part's description, changed as if other code had written it."""
    path = without_checksums(only(store)) / "part.json"
    about = record(store)
    change(about["description"])
    path.write_text(json.dumps(about))


def test_a_part_is_stored_with_every_value(store: Store) -> None:
    computed(plan("si"), store)
    about = record(store)["description"]
    assert about["method"]["built"]["project"] == {
        "ascent": {"epochs": 2, "batch": 64, "lr": 0.005, "schedule": "constant", "average": 0.0},
        "lam": 1.0,
        "damping": 0.001,
        "init_sd": 0.1,
        "init": "normal",
        "draws": 10,
    }
    assert about["method"]["settings"] == {
        "epochs": 2, "batch": 64, "lr": 0.005, "schedule": "constant", "init_sd": 0.1, "damping": 0.001
    }  # fmt: skip
    assert about["stream"] == {"tasks": 3, "order": [], "train_limit": 60, "test_limit": 20}
    assert about["experiment"] == {"name": "permuted-digits", "version": 1}
    assert about["network"] == {"hidden": [4]}
    assert about["data"] == DATA.digest


def test_a_changed_default_computes_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `damping` had had another default when the part was computed."""
    computed(plan("si"), store)
    stored_with(store, lambda about: about["method"]["built"]["project"].update(damping=0.002))
    learned = counting(monkeypatch)
    assert computed(plan("si"), store).new
    assert learned == [1, 2, 3]


def test_a_raised_version_computes_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = counting(monkeypatch)
    base = plan("si")
    computed(base, store)
    newer = replace(base, methods=(base.methods[0]._replace(version=2),))
    assert computed(newer, store).new
    newest = replace(base, experiment=base.experiment._replace(version=2))
    assert computed(newest, store).new
    assert learned == [1, 2, 3] * 3
    assert len(store.stacks()) == 3


def test_a_field_added_since_leaves_a_part_as_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `init` and `order` had not been there when the part was computed."""
    first = computed(plan("si"), store)

    def older(about: dict[str, Any]) -> None:
        del about["method"]["built"]["project"]["init"], about["stream"]["order"]

    stored_with(store, older)
    learned = counting(monkeypatch)
    again = computed(plan("si"), store)
    assert (learned, again.new, again.rows) == ([], False, first.rows)
    # Under another name too: names follow from today's description.
    where = only(store)
    where.rename(where.with_name(where.name[:-12] + "0" * 12))
    assert not computed(plan("si"), store).new
    computed(plan("si", "order=2,1,0"), store)
    assert learned == [1, 2, 3], "another value than the default is another part"


def test_another_method_whose_name_begins_alike_is_not_looked_at(store: Store) -> None:
    computed(plan("vcl-random"), store)
    (only(store) / "part.json").write_text("{")
    part = asked(plan("vcl"))
    assert len(missing(part, store.stacks(part.stem, prepare(part, store, quiet)[1]))) == 2


def test_a_part_names_what_made_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"vcl": "0.0.1", "torch": "2.0", "commit": "first"}
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "made_by", lambda: dict(first))
        stopped(patch, plan("mle"), store, after=2)
    computed(plan("mle"), store)
    assert record(store)["builds"] == [first, made_by()]


def test_a_part_names_its_engine_and_is_not_recognised_by_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    computed(plan("ewc"), store)
    about = record(store)
    assert about["engine"] == "layered/torch"
    assert "engine" not in about["description"]
    monkeypatch.setattr(learning, "engine_of", lambda *_: "another")
    assert not computed(plan("ewc"), store).new


# From the command line.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def run(rest: str) -> str:
    result = call(f"run split-digits --preset smoke --device cpu --set hidden=4 {rest} --out out")
    assert result.exit_code == 0, result.exception
    return result.output


def test_the_same_command_again_computes_nothing_and_shows_the_same(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("--method vcl,ewc --grid lambda=1,10")
    before = files_under(here / "out")
    learned = counting(monkeypatch)
    said = run("--method vcl,ewc --grid lambda=1,10")
    assert learned == []
    assert "task 1 of" not in said
    assert files_under(here / "out") == before
    run("--method ewc --grid lambda=10")
    assert learned == []
    assert files_under(here / "out") == before, "what is asked of a folder shows all of it"


def test_other_seeds_lambdas_and_methods_are_added(here: Path) -> None:
    run("--method ewc --set lambda=10 --seeds 1")
    assert methods(shown_rows(here / "out")) == ["ewc"]
    parts = [files_under(here / "out" / "parts")]
    for rest, names, seeds in (
        ("--method ewc --set lambda=10 --seeds 2", ["ewc"], {0, 1}),
        ("--method ewc --grid lambda=1,10 --seeds 2", ["ewc lambda=1", "ewc lambda=10"], {0, 1}),
        ("--method vcl --seeds 2", ["ewc lambda=1", "ewc lambda=10", "vcl"], {0, 1}),
    ):
        run(rest)
        rows = shown_rows(here / "out")
        assert methods(rows) == names
        assert {row.seed for row in rows} == seeds
        assert len({row[:5] for row in rows}) == len(rows) == len(names) * len(seeds) * 3 * 4
        parts.append(files_under(here / "out" / "parts"))
        assert parts[-2].items() <= parts[-1].items()


def test_other_settings_are_another_part_that_never_mixes(here: Path) -> None:
    smoke = "--preset smoke --device cpu --out out"
    assert call(f"run split-digits --method ewc,vcl {smoke}").exit_code == 0
    plain = shown_rows(here / "out")
    run("--method ewc,vcl --set epochs=3 --set lambda=2 --set ewc.lr=0.01 --set seeds=1")
    rows = shown_rows(here / "out")
    assert methods(rows) == ["ewc", "vcl", "ewc hidden=4 epochs=3 lr=0.01", "vcl hidden=4 epochs=3"]
    assert {row.seed for row in rows if "epochs" in row.method} == {0}
    assert [row for row in rows if row.method in ("ewc", "vcl")] == plain
    run("--method ewc --set epochs=3 --set lambda=5 --set ewc.lr=0.01 --set seeds=1")
    names = methods(shown_rows(here / "out"))
    assert [name for name in names if "lr=0.01" in name and name.startswith("ewc")] == [
        "ewc hidden=4 epochs=3 lr=0.01 lambda=2", "ewc hidden=4 epochs=3 lr=0.01 lambda=5"
    ]  # fmt: skip
    table = (here / "out" / "table.md").read_text()
    assert all(table.count(f"\n| {name} | ") == 1 for name in names)
    # Another stream of tasks is another table.
    run("--method vcl --set tasks=1")
    assert methods(shown_rows(here / "out", "split-digits-2")) == ["vcl"]
    assert methods(shown_rows(here / "out")) == names
    assert (here / "out" / "table.md").read_text().count("\n# split-digits") == 1


def test_a_part_that_another_process_computes_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("--method mle")
    before = files_under(here / "out")

    def beside(*given: Any) -> Iterator[FinishedTask]:
        """While this one learns, another process asks for the same."""
        child = subprocess.run(
            [sys.executable, "-m", "vcl", *shlex.split(asked)], cwd=here, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        said.append((child.returncode, child.stderr))
        return run_method(*given)

    said: list[tuple[int, str]] = []
    asked = "run split-digits --preset smoke --device cpu --set hidden=4 --method vcl --out out"
    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_method", beside)
        run("--method vcl")
    part = part_folder(Path("out"), "split-digits-vcl")
    taken = f"another vcl is at work in {part}; wait for it, or give --out another folder. Nothing was changed.\n"
    assert said == [(1, f"vcl: {taken}")]
    assert {name: content for name, content in before.items() if name.startswith("parts")}.items() <= files_under(
        here / "out"
    ).items()
    assert methods(shown_rows(here / "out")) == ["mle", "vcl"]
    with claimed(part):
        run("--method mle,vcl")  # what is finished is only read
