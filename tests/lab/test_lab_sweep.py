"""`vcl sweep`: the choice of lambda, and that it is made without the test set unless that is asked for by name."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import alone, call, fault, files_under, graded, images, known, part_folder, shown_rows
from rich.console import Console

from vcl.errors import VclError
from vcl.lab import cli, learning
from vcl.lab.classification import ACCURACY
from vcl.lab.datasets import load
from vcl.lab.experiments.digits import SPLIT_DIGITS
from vcl.lab.holding_out import hold_out
from vcl.lab.part import Loaded
from vcl.lab.plan import make_plan
from vcl.lab.registry import method
from vcl.lab.results import final, label, methods, read_csv
from vcl.lab.runner import FinishedTask, run_method
from vcl.lab.show import Choice, Group, choose, groups, sentence, show_groups, told
from vcl.lab.store import Store
from vcl.lab.streams import Arrays, arrays
from vcl.lab.sweep import WARNINGS, Select, sweep

FIGURES = ["accuracy-by-task.png", "accuracy-by-task.svg", "average-accuracy.png", "average-accuracy.svg"]
TESTED = [*FIGURES, "rows.csv"]
COMPARED = [*FIGURES, "lambda.png", "lambda.svg", "rows.csv"]
GROUP = "permuted-digits"
HELD = f"{GROUP}-validation"
# Enough training that the lambdas end apart.
CHANGES = ("epochs=10", "lr=0.02")
ASKED = " ".join(f"--set {change}" for change in CHANGES)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def smoke(rest: str) -> str:
    return f"sweep permuted-digits --preset smoke --device cpu {rest}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What is held out.


def numbered(train: int, test: int) -> Arrays:
    """Examples that show their number, training from 0 and test from 10,000; labels follow from the numbers."""
    x, other = torch.arange(train), torch.arange(10_000, 10_000 + test)
    return Arrays(x.view(-1, 1, 1), x % 7, other.view(-1, 1, 1), other % 7, tuple("abcdefg"))


@pytest.mark.parametrize(("share", "held"), [(0.1, 20), (0.25, 50), (0.013, 3), (0.0001, 1), (0.9, 180)])
def test_hold_out_is_a_partition_of_the_training_data(share: float, held: int) -> None:
    data = numbered(200, 50)
    parts = hold_out(data, share)
    train, test = parts.train_x.flatten(), parts.test_x.flatten()
    assert (len(train), len(test)) == (200 - held, held)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(200)), "none lost, none twice, none of the test data"
    assert train.tolist() == sorted(train.tolist()), "the rest is in its old order"
    assert parts.train_y.tolist() == (train % 7).tolist()
    assert parts.test_y.tolist() == (test % 7).tolist()
    assert parts.classes == data.classes


def test_hold_out_is_random_but_the_same_every_time() -> None:
    data = numbered(200, 50)
    torch.manual_seed(1)
    first = hold_out(data, 0.1)
    torch.manual_seed(2)
    again = hold_out(numbered(200, 9), 0.1)
    for ours, theirs in zip(first[:4], again[:4], strict=True):
        assert torch.equal(ours, theirs)
    places = first.test_x.flatten()
    assert int(places.max()) > 100 > int(places.min()), "of all parts of the data"


def test_something_must_be_left_to_train_on() -> None:
    with pytest.raises(VclError, match=r"holding out 0\.999 of 60 training examples leaves none to train on"):
        hold_out(images(train=60), 0.999)


# The choice.


def test_the_best_mean_over_seeds_is_chosen() -> None:
    rows = [
        *graded("ewc lambda=1", {0: 0.99, 1: 0.10}),  # the best single seed
        *graded("ewc lambda=10", {0: 0.70, 1: 0.80}),
        *graded("ewc lambda=100", {0: 0.60, 1: 0.70}),
        *graded("si lambda=1", {0: 0.20, 1: 0.30}),
        *graded("si lambda=10", {0: 0.10, 1: 0.30}),
        *graded("vcl", {0: 1.0, 1: 1.0}),
    ]
    chosen = choose(rows, "accuracy")
    assert list(chosen) == ["ewc", "si"]
    assert (chosen["ewc"].lam, chosen["ewc"].edge) == (10.0, False)
    assert chosen["ewc"].score == pytest.approx((0.75, 0.05, 2))
    assert (chosen["si"].lam, chosen["si"].edge) == (1.0, True)
    assert chosen["si"].score.mean == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("lams", "best", "edge"),
    [
        ((1.0, 10.0, 100.0), 1.0, True),
        ((1.0, 10.0, 100.0), 10.0, False),
        ((1.0, 10.0, 100.0), 100.0, True),
        ((100.0, 1.0, 10.0), 1.0, True),  # the least, though in the middle of the list
        ((10.0, 100.0, 1.0), 10.0, False),
        ((5.0,), 5.0, False),  # no grid, no edge
        ((0.0, 5.0), 0.0, True),
    ],
)
def test_the_edge_of_the_grid_is_told(lams: tuple[float, ...], best: float, edge: bool) -> None:
    rows = [row for lam in lams for row in graded(label("lp", lam), {0: 0.9 if lam == best else 0.5})]
    chosen = choose(rows, "accuracy")["lp"]
    assert (chosen.lam, chosen.edge) == (best, edge)


def test_lambdas_that_are_as_good_tie() -> None:
    rows = [row for lam in (0.0, 1.0, 10.0) for row in graded(label("lp", lam), {0: 0.9, 1: 0.9})]
    chosen = choose([*rows, *graded("lp lambda=100", {0: 0.5, 1: 0.5})], "accuracy")["lp"]
    assert (chosen.lam, chosen.edge, chosen.tied) == (0.0, False, (0.0, 1.0, 10.0))
    assert sentence("lp", chosen, ACCURACY, validation=True) == (
        "lp: lambda=0, 1, 10 tie as the best, 90.00 % on held-out training data."
    )
    alone = choose([*rows, *graded("lp lambda=100", {0: 0.95, 1: 0.95})], "accuracy")["lp"]
    assert (alone.edge, alone.tied) == (True, ())


def test_a_winner_beside_a_lambda_that_was_run_before_is_no_grid() -> None:
    rows = [*graded("ewc lambda=1", {0: 0.9}), *graded("ewc lambda=10", {0: 0.8})]
    group = Group("split-digits", SPLIT_DIGITS, "title", rows)
    assert told(group) == []
    (line,) = told(replace(group, grids={"ewc": {1.0, 10.0}}))
    assert line.startswith("ewc: lambda=1 is best, 90.00 % on test data")


# A whole sweep.


@pytest.fixture(scope="module")
def digits() -> Arrays:
    return arrays(load("digits"))


def poisoned(data: Arrays) -> Arrays:
    """Test data that says nothing: noise, and every label another."""
    noise = torch.randint(0, 17, data.test_x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return data._replace(test_x=noise, test_y=(data.test_y + 3) % 10)


def swept(out: Path, data: Arrays, select: Select) -> tuple[dict[str, Choice], str]:
    """What was chosen, and what was printed."""
    said = StringIO()
    plan = make_plan("permuted-digits", "ewc,si", "smoke", 2, "cpu", CHANGES, "lambda=0,1,1000")
    store, console = Store(out, torch.device("cpu"), ""), Console(file=said, width=160)
    chosen = sweep(plan, Loaded(data, "made", data.digest()), select, 0.2, store, console)
    show_groups(groups(store, console), out, console)
    return chosen, said.getvalue()


def test_the_test_set_is_not_looked_at_when_choosing_on_validation_data(tmp_path: Path, digits: Arrays) -> None:
    clean, said = swept(tmp_path / "clean", digits, "validation")
    other, _ = swept(tmp_path / "other", poisoned(digits), "validation")
    assert clean == other
    here, there = tmp_path / "clean", tmp_path / "other"
    for name in COMPARED:
        name = f"{HELD}/{name}"
        assert (here / name).read_bytes() == (there / name).read_bytes()
    # The poison works: what is tested in the end is ruined.
    for name, choice in clean.items():
        tested = label(name, choice.lam)
        sound, ruined = (final(shown_rows(out, GROUP), tested)["average accuracy"].mean for out in (here, there))
        assert sound > 0.3 > ruined
    for text in (said, (here / "table.md").read_text()):
        assert text.count(" % on held-out training data") >= 2
        assert "on test data" not in text


def test_choosing_on_the_test_set_looks_at_it_and_says_so(tmp_path: Path, digits: Arrays) -> None:
    clean, said = swept(tmp_path / "clean", digits, "test")
    other, _ = swept(tmp_path / "other", poisoned(digits), "test")
    for name, choice in clean.items():
        assert choice.score.mean > 0.3 > other[name].score.mean
    out = tmp_path / "clean"
    rows = shown_rows(out, GROUP)
    assert methods(rows) == [label(name, lam) for name in ("ewc", "si") for lam in (0.0, 1.0, 1000.0)]
    assert clean == choose(rows, "accuracy")
    for text in (said, (out / "table.md").read_text()):
        assert text.count(" % on test data, so the number is optimistic") >= 2
        assert "held-out" not in text
    assert names(out) == ["parts", GROUP, "table.md"]
    assert names(out / GROUP) == COMPARED
    assert known(out, f"{GROUP}-ewc")["validation"] is None


def test_what_is_chosen_learns_the_whole_training_data_anew(tmp_path: Path, digits: Arrays) -> None:
    chosen, _ = swept(tmp_path / "out", digits, "validation")
    rows = shown_rows(tmp_path / "out", GROUP)
    assert methods(rows) == [label(name, choice.lam) for name, choice in chosen.items()]
    for name, choice in chosen.items():
        plan = make_plan("permuted-digits", name, "smoke", 2, "cpu", CHANGES, f"lambda={choice.lam:g}")
        entry = method(name)
        wanted = [row for done in run_method(plan, entry, plan.runs(entry), digits) for row in done.rows]
        assert [row for row in rows if row.method == label(name, choice.lam)] == wanted


def test_a_sweep_leaves_the_whole_story(here: Path) -> None:
    result = call(smoke(f"--method ewc,si --grid lambda=0.5,20 --validation 0.25 {ASKED} --out out"))
    assert result.exit_code == 0, result.exception
    out = here / "out"
    assert names(out) == ["parts", GROUP, HELD, "table.md"]
    assert names(out / GROUP) == TESTED
    assert names(out / HELD) == COMPARED
    held, rows = shown_rows(out, HELD), shown_rows(out, GROUP)
    chosen = choose(held, "accuracy")
    assert len(held) == 2 * 2 * 2 * 3 * 4  # methods x lambdas x seeds x T (T + 1) / 2 x metrics
    assert len(rows) == 2 * 2 * 3 * 4
    assert methods(rows) == [label(name, choice.lam) for name, choice in chosen.items()]

    parts = [strictly(path) for path in sorted(out.glob("parts/*/part.json"))]
    assert sorted((part["method"], part["validation"] or 0.0) for part in parts) == [
        ("ewc", 0.0), ("ewc", 0.25), ("si", 0.0), ("si", 0.25)
    ]  # fmt: skip
    for part in parts:
        lams = (0.5, 20.0) if part["validation"] else (chosen[part["method"]].lam,)
        assert part["runs"] == [[lam, seed] for lam in lams for seed in (0, 1)]
        assert part["finished"] is True
        assert part["started"] <= part["written"]
    assert len({part["description"]["data"] for part in parts}) == 2, "what was held out is other data"

    table = (out / "table.md").read_text()
    first, second = table.split("\n# ")
    assert first.startswith(f"# {GROUP}, on 0.25 of the training data held out, after 2 tasks\n")
    assert second.startswith(f"{GROUP}, preset smoke, after 2 tasks\n")
    for name, choice in chosen.items():
        assert first.count(f"\n| {name} lambda={choice.lam:g} | ") == 1
        assert second.count(f"\n| {name} lambda={choice.lam:g} | ") == 1
        sentence = (
            f"{name}: lambda={choice.lam:g} is best, {100 * choice.score.mean:.2f} % on held-out training data; it is "
            "at the edge of the grid, so a wider one may hold a better."
        )
        assert sentence in first
        assert result.output.count(sentence) == 2, "when it is chosen, and with the table"
    assert "on test data" not in table
    assert result.output.splitlines()[-1] == WARNINGS["validation"]
    # Again, nothing is computed, and a wider grid computes only what is new.
    before = files_under(out)
    again = call(smoke(f"--method ewc,si --grid lambda=0.5,20 --validation 0.25 {ASKED} --out out"))
    assert again.exit_code == 0, again.exception
    assert "task 1 of 2" not in again.output
    assert files_under(out) == before
    wider = call(smoke(f"--method ewc --grid lambda=0.5,20,3 --validation 0.25 {ASKED} --out out"))
    assert wider.exit_code == 0, wider.exception
    assert {name: content for name, content in before.items() if name.startswith("parts")}.items() <= files_under(
        out
    ).items()
    assert methods(shown_rows(out, HELD))[:3] == ["ewc lambda=0.5", "ewc lambda=3", "ewc lambda=20"]


def strictly(path: Path) -> Any:
    """The JSON in a file, without the NaN and Infinity that Python allows itself."""

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_choosing_on_the_test_set_from_the_command_line(here: Path) -> None:
    result = call(smoke("--method map --grid lambda=1,10 --select test --out out"))
    assert result.exit_code == 0, result.exception
    assert names(here / "out" / GROUP) == COMPARED
    assert "CHOSEN ON THE TEST SET" in result.output
    assert "\nmap: lambda=" in (here / "out" / "table.md").read_text()
    assert " % on test data, so the number is optimistic" in (here / "out" / "table.md").read_text()


def test_one_seed_has_no_error(here: Path) -> None:
    result = call(smoke("--method ewc --grid lambda=1,10 --seeds 1 --out out"))
    assert result.exit_code == 0, result.exception
    score = choose(shown_rows(here / "out", HELD), "accuracy")["ewc"].score
    assert (score.error != score.error, score.seeds) == (True, 1)
    assert 0 <= score.mean <= 1
    text = (here / "out" / "table.md").read_text()
    assert "±" not in text.replace("Mean ± standard error", "")
    assert "nan" not in text


# What can go wrong.


def failing(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Let the run of a method fail: the one after ``calls`` whole ones, after its first task."""
    left = [calls]

    def run(*given: Any, **named: Any) -> Iterator[FinishedTask]:
        real = run_method(*given, **named)
        if left[0]:
            left[0] -= 1
            yield from real
            return
        yield next(real)
        raise VclError("the roof fell in.")

    monkeypatch.setattr(learning, "run_method", run)


def test_a_sweep_that_fails_while_choosing_keeps_the_validation_rows_and_continues(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = smoke("--method ewc --grid lambda=1,10 --out out")
    with monkeypatch.context() as patch:
        failing(patch, 0)
        assert fault(line) == "the roof fell in."
    out = here / "out"
    assert names(out) == ["parts"]
    held, about = read_csv(part_folder(out, f"{GROUP}-ewc") / "rows.csv"), known(out, f"{GROUP}-ewc")
    assert {row[:4] for row in held} == {(f"ewc lambda={lam}", seed, 1, 1) for lam in (1, 10) for seed in (0, 1)}
    assert (about["validation"], about["finished"], about["tasks"]) == (0.1, False, [["permutation 1", True]])
    result = call("show out")
    assert f"{HELD}, on 0.1" not in result.output
    assert "on 0.1 of the training data held out, no part finished yet.\n" in result.output
    result = call(line)
    assert result.exit_code == 0, result.exception
    assert "ewc: continues after task 1\n" in result.output
    assert call(line.replace("--out out", "--out whole")).exit_code == 0
    assert shown_rows(out, HELD) == shown_rows(here / "whole", HELD)
    assert shown_rows(out, GROUP) == shown_rows(here / "whole", GROUP)


def test_a_sweep_that_fails_after_choosing_keeps_what_it_chose_by(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = smoke("--method ewc --grid lambda=1,10 --out out")
    with monkeypatch.context() as patch:
        failing(patch, 1)
        assert fault(line) == "the roof fell in."
    out = here / "out"
    assert names(out) == ["parts"]
    parts = {strictly(path)["validation"]: path.with_name("rows.csv") for path in out.glob("parts/*/part.json")}
    assert len(read_csv(parts[0.1])) == 2 * 2 * 3 * 4
    assert {row.after for row in read_csv(parts[None])} == {1}
    result = call("show out")
    assert result.exit_code == 0, result.exception
    assert names(out / HELD) == COMPARED
    assert f"{GROUP}, preset smoke, no part finished yet.\n" in result.output
    result = call(line)
    assert result.exit_code == 0, result.exception
    assert result.output.count(": task ") == 1, "the second task of what was chosen"
    assert names(out / GROUP) == TESTED


def through_main(line: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["vcl", *shlex.split(line)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


def test_ctrl_c_keeps_the_validation_rows(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any, **named: Any) -> Iterator[FinishedTask]:
        yield next(run_method(*given, **named))
        raise KeyboardInterrupt

    monkeypatch.setattr(learning, "run_method", interrupted)
    assert through_main(smoke("--method si --grid lambda=1,10 --out out"), monkeypatch) == 130
    again = f"vcl {smoke('--method si --grid lambda=1,10 --out out')}"
    assert capsys.readouterr().err == f"vcl: stopped; what is done is kept in out, and `{again}` goes on from there.\n"
    assert len(read_csv(part_folder(here / "out", f"{GROUP}-si") / "rows.csv")) == 2 * 2 * 4


@pytest.mark.parametrize("select", ["validation", "test"])
def test_a_sweep_that_fails_before_any_row_leaves_nothing(here: Path, select: str) -> None:
    line = smoke(f"--method ewc --grid lambda=1,10 --select {select} --out out")
    assert "became non-finite" in fault(f"{line} --set lr=1e30")
    assert list(here.iterdir()) == []
    (here / "out").mkdir()
    assert "became non-finite" in fault(f"{line} --set lr=1e30")
    assert names(here / "out") == [], "a folder that was there stays, as empty as it was"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (smoke("--grid lambda=1,2 --select foo"), "unknown way to select 'foo'; accepted: test, validation."),
        (smoke("--grid lambda=1,2 --select tset"), "unknown way to select 'tset': did you mean 'test'?"),
        (smoke("--grid lambda=1,2 --validation 0"), "--validation is 0.0; give the share of the training data to hold"),
        (smoke("--grid lambda=1,2 --validation 1"), "--validation is 1.0; give the share"),
        (smoke("--grid lambda=1,2 --validation nan"), "--validation is nan; give the share"),
        (smoke("--grid lambda=1,2 --validation 0.9999"), "leaves none to train on; hold out less"),
        (
            smoke("--method ewc,vcl --grid lambda=1,2"),
            "vcl takes no lambda, so there is nothing to sweep; leave it out",
        ),
        (
            smoke("--method vcl"),
            "none of vcl takes a lambda, so there is no grid to try; those that do: map, lp, lp-kron, lp-kron-random, "
            "ewc-kron, ",
        ),
        (smoke("--method ewc"), "the paper has no grid of lambda for ewc on permuted-digits; give one, as in --grid"),
        (smoke("--grid lambda=1,x"), "--grid lambda takes numbers with commas between, not 'x'"),
        (smoke("--grid lambda=1,2 --set lambda=3"), "both --grid lambda=… and --set lambda=… were given"),
        (smoke("--grid lambda=1,2 --set heads=multi"), "unknown setting 'heads': did you mean"),
        # One example of 1437 cannot be of every task.
        (
            "sweep split-digits --preset smoke --grid lambda=1,2 --validation 0.0001",
            "holding out 0.0001 of the training data leaves task 0/1 no examples to choose by; hold out more.",
        ),
        (
            smoke("--grid lambda=1,2 --validation 0.0001"),
            "holding out 0.0001 of the training data leaves 1437 examples to train on and 1 to choose by, and every "
            "task has 10 classes to tell apart, but its test examples are all of one; hold out another share.",
        ),
        (
            "sweep split-digits --preset smoke --grid lambda=1,2 --validation 0.9993",
            "holding out 0.9993 of the training data leaves task 0/1 no examples to train on; hold out less.",
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    assert through_main(f"{line} --out out", monkeypatch) == 1
    said = capsys.readouterr()
    assert said.err.startswith("vcl: ")
    assert message in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.out + said.err
    assert list(here.iterdir()) == []


def test_a_share_that_is_no_number_is_a_usage_error(here: Path) -> None:
    assert call(smoke("--grid lambda=1,2 --validation some --out out")).exit_code == 2
    assert list(here.iterdir()) == []
