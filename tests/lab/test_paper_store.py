"""Parts are computed once, gone on with after a stop, and anew only where something they depend on has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import images
from rich.console import Console

from vcl.errors import VclError
from vcl.lab import background_writer
from vcl.lab.identity import described, identity
from vcl.lab.paper import store as store_module
from vcl.lab.paper.store import Loaded, Store, description
from vcl.lab.plan import Plan, make_plan
from vcl.lab.provenance import made_by
from vcl.lab.results import read_csv
from vcl.lab.runner import FinishedTask, run_method

ARRAYS = images(train=120, test=40)
DATA = Loaded(ARRAYS, "made up", ARRAYS.digest())


def plan(method: str = "vcl-random", *changes: str, grid: str | None = None, name: str = "permuted-digits") -> Plan:
    small = ("train_limit=60", "test_limit=20", "hidden=4", "coreset=5", "tasks=3", *changes)
    return make_plan(name, method, "smoke", 2, "cpu", small, grid)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "parts", torch.device("cpu"), "vcl paper test", Console(file=StringIO()))


def counting(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[int]:
    """The numbers of the tasks that are really learned, from now on; perhaps with a stop."""
    learned: list[int] = []

    def watched(*args: Any) -> Iterator[FinishedTask]:
        for done in run_method(*args):
            learned.append(done.number)
            if done.number == stop_after:
                raise KeyboardInterrupt
            yield done

    monkeypatch.setattr(store_module, "run_method", watched)
    return learned


def test_a_second_call_computes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = counting(monkeypatch)
    first = store.stream(plan(), DATA)
    assert learned == [1, 2, 3]
    content = first.path.read_bytes()
    again = store.stream(plan(), DATA)
    assert learned == [1, 2, 3]
    assert (first.new, again.new) == (True, False)
    assert again.path == first.path
    assert again.path.read_bytes() == content
    assert again.seconds == pytest.approx(first.seconds, abs=1e-3)
    assert sorted(path.name for path in first.path.parent.iterdir()) == ["part.json", "rows.csv"]


@pytest.mark.parametrize("method", ["vcl-random", "ewc", "si", "lp", "adf", "batch-vi"])
@pytest.mark.parametrize("name", ["permuted-digits", "split-digits"])
def test_after_a_stop_it_goes_on_and_ends_at_the_same_numbers(
    method: str, name: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = Store(tmp_path / "straight", torch.device("cpu"), "", Console(file=StringIO()))
    wanted = read_csv(straight.stream(plan(method, name=name), DATA).path)
    with monkeypatch.context() as patch:
        counting(patch, stop_after=2)
        with pytest.raises(KeyboardInterrupt):
            store.stream(plan(method, name=name), DATA)
    with monkeypatch.context() as patch:
        learned = counting(patch)
        kept = store.stream(plan(method, name=name), DATA)
    # The stop came before task 2 was written, so at most the task in progress is learned again.
    assert learned == [2, 3]
    assert read_csv(kept.path) == wanted


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
            store.stream(plan("mle"), DATA)
    (folder,) = store.root.iterdir()
    assert max(row.after for row in read_csv(folder / "rows.csv")) == 2
    rows = read_csv(store.stream(plan("mle"), DATA).path)
    assert len({row[:5] for row in rows}) == len(rows)
    assert sorted({row.after for row in rows}) == [1, 2, 3]


def test_a_part_keeps_what_was_said_of_its_numbers_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The classifier that generators are judged by: a part that goes on elsewhere may meet another one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = ("latent=2", "features=4", "ll_draws=2", "images=4", "classifier_hidden=8", "classifier_epochs=1")
    wanted = make_plan("generative-digits", "vcl", "smoke", 1, "cpu", ("tasks=2", "hidden=4", *small))
    with monkeypatch.context() as patch:
        counting(patch, stop_after=2)
        with pytest.raises(KeyboardInterrupt):
            store.stream(wanted, DATA)
    kept = store.stream(wanted, DATA)
    (note,) = json.loads(kept.path.with_name("part.json").read_text())["notes"]
    assert note.startswith("classifier: ")


def name_of(plan: Plan, data: Loaded = DATA) -> str:
    return identity(described(description(plan, data)))


@pytest.mark.parametrize(
    ("method", "change", "touches"),
    [
        ("vcl-random", "coreset=6", True),
        ("vcl", "coreset=6", False),
        ("vcl", "draws=3", True),
        ("ewc", "draws=3", False),
        ("ewc", "predict_draws=7", False),
        ("vcl", "predict_draws=7", True),
        ("ewc", "lambda=2", True),
        ("mle", "lambda=2", False),
        ("si", "damping=0.5", True),
        ("ewc", "damping=0.5", False),
        ("mle", "hidden=5", True),
        ("mle", "train_limit=50", True),
        ("mle", "tasks=2", True),
        ("mle", "order=2,1,0", True),
        ("mle", "matmul=tf32", False),  # a CPU never rounds factors
        ("vcl", "coreset_epochs=7", False),
        ("random-only", "epochs=7", False),
        ("si", "average=0.5", False),
        ("ewc", "prior_var=2", False),
        ("lp", "prior_var=2", True),
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


def test_seeds_grids_experiments_and_data_tell_parts_apart() -> None:
    base = plan("ewc")
    others = [
        replace(base, settings=replace(base.settings, seeds=3)),
        plan("ewc", grid="lambda=1,10"),
        plan("ewc", grid="lambda=1,20"),
        plan("ewc", name="split-digits"),
    ]
    names = [name_of(each) for each in (base, *others)]
    assert len(set(names)) == len(names)
    altered = ARRAYS._replace(test_x=ARRAYS.test_x + 1)
    assert name_of(base, Loaded(altered, "made up", altered.digest())) != names[0]


def test_a_table_is_computed_once(store: Store) -> None:
    calls: list[int] = []

    def compute(settings: Any, device: torch.device) -> str:
        calls.append(settings["n"])
        return f"a,b\n{settings['n']},2\n"

    one, again, other = (store.table("thing", {"n": n}, compute) for n in (1, 1, 2))
    assert calls == [1, 2]
    assert one.path.read_text() == "a,b\n1,2\n"
    assert again.path == one.path != other.path


def spoil(store: Store, name: str, content: str) -> Callable[[], object]:
    (folder,) = store.root.iterdir()
    (folder / name).write_text(content)
    return lambda: store.stream(plan("mle"), DATA)


def test_a_damaged_part_is_one_sentence(store: Store) -> None:
    store.stream(plan("mle"), DATA)
    with pytest.raises(VclError, match=r"part\.json cannot be read .*; delete its folder to compute it anew"):
        spoil(store, "part.json", "{")()


def stored_with(store: Store, change: Callable[[dict[str, Any]], object]) -> None:
    """The only part's description, changed as if other code had written it."""
    (folder,) = store.root.iterdir()
    known = json.loads((folder / "part.json").read_text())
    change(known["description"])
    (folder / "part.json").write_text(json.dumps(known))


def test_a_part_is_stored_with_every_value(store: Store) -> None:
    kept = store.stream(plan("si"), DATA)
    about = json.loads(kept.path.with_name("part.json").read_text())["description"]
    assert about["method"]["project"] == {
        "": "SynapticIntelligence",
        "ascent": {"": "Ascent", "epochs": 2, "batch": 64, "lr": 0.005, "schedule": "constant", "average": 0.0},
        "lam": 1.0,
        "damping": 0.001,
        "init_sd": 0.1,
        "init": "normal",
        "draws": 10,
    }
    assert about["stream"] == {
        "tasks": 3, "heads": "single", "order": [], "train_limit": 60, "test_limit": 20
    }  # fmt: skip


def test_a_changed_default_computes_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `damping` had had another default when the part was computed."""
    store.stream(plan("si"), DATA)
    stored_with(store, lambda about: about["method"]["project"].update(damping=0.002))
    learned = counting(monkeypatch)
    assert store.stream(plan("si"), DATA).new
    assert learned == [1, 2, 3]


def test_a_field_added_since_leaves_a_part_as_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `init` and `order` had not been there when the part was computed."""
    first = store.stream(plan("si"), DATA)

    def older(about: dict[str, Any]) -> None:
        del about["method"]["project"]["init"], about["stream"]["order"]

    stored_with(store, older)
    learned = counting(monkeypatch)
    again = store.stream(plan("si"), DATA)
    assert (learned, again.new, again.path) == ([], False, first.path)
    # Under another name too: names follow from today's description.
    folder = first.path.parent
    folder.rename(folder.with_name(folder.name[:-12] + "0" * 12))
    assert store.finished(plan("si"), DATA)
    store.stream(plan("si", "order=2,1,0"), DATA)
    assert learned == [1, 2, 3], "another value than the default is another part"


def test_another_method_whose_name_begins_alike_is_not_looked_at(store: Store) -> None:
    store.stream(plan("vcl-random"), DATA)
    (folder,) = store.root.iterdir()
    (folder / "part.json").write_text("{")
    assert not store.finished(plan("vcl"), DATA)


def test_a_part_names_what_made_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "made_by", lambda: {"commit": "first"})
        counting(patch, stop_after=2)
        with pytest.raises(KeyboardInterrupt):
            store.stream(plan("mle"), DATA)
    kept = store.stream(plan("mle"), DATA)
    builds = json.loads(kept.path.with_name("part.json").read_text())["builds"]
    assert builds == [{"commit": "first"}, made_by()]


def test_a_resumed_part_counts_the_seconds_of_both_calls(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        counting(patch, stop_after=3)
        with pytest.raises(KeyboardInterrupt):
            store.stream(plan("mle"), DATA)
    (folder,) = store.root.iterdir()
    known = json.loads((folder / "part.json").read_text())
    (folder / "part.json").write_text(json.dumps(known | {"seconds": 1000.0}))
    assert 1000 < store.stream(plan("mle"), DATA).seconds < 1100


def test_a_part_names_its_engine_and_is_not_recognised_by_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store.stream(plan("ewc"), DATA)
    record = json.loads(kept.path.with_name("part.json").read_text())
    assert record["engine"] == "layered/torch"
    assert "engine" not in record["description"]
    monkeypatch.setattr(store_module, "engine_of", lambda *_: "another")
    assert not store.stream(plan("ewc"), DATA).new
    record.pop("engine")  # one of an earlier version
    kept.path.with_name("part.json").write_text(json.dumps(record))
    assert not store.stream(plan("ewc"), DATA).new
