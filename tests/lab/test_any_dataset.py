"""Experiments on a dataset of one's choice, on data of their own, and with convolutions: from the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from lab_made import alone, call, fault, images

from vcl.errors import VclError
from vcl.lab.experiments.split import Split, groups
from vcl.lab.plan import make_plan
from vcl.lab.results import Row, read_csv
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def run(line: str, name: str, out: str = "out") -> list[Row]:
    result = call(f"run {line} --preset smoke --device cpu --out {out}")
    assert result.exit_code == 0, result.exception
    return read_csv(Path.cwd() / out / name / "rows.csv")


# Any dataset.


def test_split_on_a_dataset(here: Path) -> None:
    rows = run("split --dataset digits --method vcl,ewc", "split-on-digits")
    assert {(row.method, row.seed) for row in rows} == {(name, seed) for name in ("vcl", "ewc") for seed in (0, 1)}
    assert {row.on for row in rows} == {1, 2}
    table = (here / "out" / "table.md").read_text()
    assert "split-on-digits, preset smoke, after 2 tasks" in table
    assert (here / "out" / "split-on-digits" / "average-accuracy.svg").stat().st_size > 0
    assert "84.0" not in table, "the paper has no number for it"


def test_permuted_on_a_dataset(here: Path) -> None:
    rows = run("permuted --dataset digits --set tasks=3 --method vcl-random", "permuted-on-digits")
    assert {row.on for row in rows} == {1, 2, 3}
    assert {row.method for row in rows} == {"vcl-random"}


def test_an_experiment_on_another_dataset_than_its_own(here: Path) -> None:
    rows = run("split-mnist --dataset digits --method mle", "split-mnist-on-digits")
    assert {row.on for row in rows} == {1, 2}
    assert "97.0" not in (here / "out" / "table.md").read_text(), "the paper's numbers are of its own dataset"


def test_one_experiment_on_two_datasets_are_two_groups(here: Path) -> None:
    run("split-mnist --dataset digits --method mle", "split-mnist-on-digits")
    run("split-digits --method mle", "split-digits")
    run("split --dataset digits --method mle", "split-on-digits")
    assert len(list((here / "out" / "parts").iterdir())) == 3
    for name in ("split-mnist-on-digits", "split-digits", "split-on-digits"):
        assert (here / "out" / name / "rows.csv").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run split", "split takes any dataset; give one with --dataset: digits, mnist, fashion-mnist, "),
        ("run permuted --preset smoke", "permuted takes any dataset; give one with --dataset: digits, "),
        ("sweep split --method ewc --grid lambda=1,2", "split takes any dataset; give one with --dataset: digits, "),
        ("run split --dataset digit", "unknown dataset 'digit': did you mean 'digits'?"),
        ("run split-mnist --dataset cifar", "unknown dataset 'cifar'"),
        ("run sine --dataset digits", "sine makes its own data; leave out --dataset."),
        ("run split --dataset mnist", "mnist is in none of "),
        ("run split --dataset digits --set tasks=6", "tasks is 6; 10 classes make at most 5 tasks of 2: give fewer"),
        (
            "run split --dataset digits --set classes=11",
            "classes is 11; the dataset has 10: give at most 10.",
        ),
        ("run split --dataset digits --set tasks=none --set order=0,1", "order is (0, 1); name each of 0,1,2,3,4 once"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(here: Path, line: str, message: str) -> None:
    said = fault(f"{line} --device cpu --out out")
    assert message in said
    assert "\n" not in said
    assert not list(here.rglob("rows.csv"))


def test_as_many_tasks_as_the_classes_make() -> None:
    def tasks(*changes: str) -> list[str]:
        plan = make_plan("split", "vcl", "paper", 1, "cpu", changes, dataset="digits")
        return [task.name for task in plan.stream(images(), Rng((0,)))]

    assert tasks() == ["a/b", "c/d", "e/f", "g/h", "i/j"]
    assert tasks("classes=3") == ["a/b/c", "d/e/f", "g/h/i"]
    assert tasks("classes=5", "pairing=halves") == ["a/c/e/g/i", "b/d/f/h/j"]
    assert tasks("tasks=2", "pairing=halves") == ["a/f", "b/g"]
    assert tasks("classes=5", "order=1,0") == ["f/g/h/i/j", "a/b/c/d/e"]


def test_groups_of_classes() -> None:
    assert groups(10, Split()) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert groups(10, Split(pairing="halves")) == [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)]
    assert groups(7, Split(classes=3)) == [(0, 1, 2), (3, 4, 5)]
    assert groups(7, Split(classes=3, pairing="halves")) == [(0, 2, 4), (1, 3, 5)]
    assert groups(4, Split(1, 4)) == [(0, 1, 2, 3)]
    with pytest.raises(VclError, match="tasks is 3; 7 classes make at most 2 tasks of 3"):
        groups(7, Split(3, 3))
    with pytest.raises(VclError, match="classes is 3; the dataset has 2: give at most 2"):
        groups(2, Split(classes=3))


# Convolutions.


@pytest.mark.parametrize("method", ["vcl", "vcl-random", "ewc", "mle"])
def test_the_convolutional_network(here: Path, method: str) -> None:
    rows = run(f"split-mnist-conv --dataset digits --method {method}", "split-mnist-conv-on-digits")
    assert {row.seed for row in rows} == {0, 1}
    assert {row.on for row in rows} == {1, 2}
    assert all(np.isfinite(row.value) for row in rows)


def test_the_plan_of_the_convolutional_network() -> None:
    result = call("run split-mnist-conv --dataset digits --preset smoke --device cpu --method vcl,mle --dry-run")
    assert result.exit_code == 0, result.exception
    assert "general/torch" in result.output
    assert "network: channels=2,2, features=8, prior_var=1" in result.output


def test_images_of_an_odd_size_pass_through_the_convolutions() -> None:
    for side in (5, 7, 8, 28):
        plan = make_plan("split-mnist-conv", "vcl", "paper", 1, "cpu")
        stream = plan.stream(images(20, 20, side), Rng((0,)))
        model, task = plan.model(stream.shape), stream.make(0)
        found = predict(model.prior(task.heads).expand(1), model, task.train.x, "a/b", Rng((0,)), 1)
        assert found.shape == (1, task.train.size, 2)


# Regression.


def test_the_sine(here: Path) -> None:
    rows = run("sine --method vcl,mle,vcl-random,ewc", "sine")
    assert {row.method for row in rows} == {"vcl", "mle", "vcl-random", "ewc"}
    assert {row.metric for row in rows} == {"log predictive", "RMSE", "90 % coverage"}
    assert {row.on for row in rows} == {1, 2}
    assert all(0 <= row.value <= 1 for row in rows if "coverage" in row.metric)
    assert all(row.value > 0 for row in rows if row.metric == "RMSE")
    table = (here / "out" / "table.md").read_text()
    assert "| method | log predictive | forgetting | RMSE | 90 % coverage |" in table
    assert "Log predictive is in nats an example." in table
    assert (here / "out" / "sine" / "rmse.png").stat().st_size > 0
    parts = list((here / "out" / "parts").iterdir())
    assert run("sine --method vcl,mle,vcl-random,ewc", "sine") == rows
    assert list((here / "out" / "parts").iterdir()) == parts
    (here / "out" / "table.md").unlink()
    assert call("show out").exit_code == 0
    assert (here / "out" / "table.md").read_text() == table


def test_a_longer_fit_of_the_sine_is_better(here: Path) -> None:
    short = run("sine --method vcl --set tasks=1 --set epochs=1", "sine", "short")
    long = run("sine --method vcl --set tasks=1 --set epochs=300 --set examples=50", "sine", "long")

    def rmse(rows: list[Row]) -> float:
        return float(np.mean([row.value for row in rows if row.metric == "RMSE"]))

    assert rmse(long) < 0.7 * rmse(short)


def test_the_sine_is_planned_listed_swept_and_predicted(here: Path) -> None:
    dry = call("run sine --preset smoke --device cpu --method vcl,mle --dry-run")
    assert dry.exit_code == 0, dry.exception
    assert "stream: tasks=2, examples=20, data_noise=0.1, order=none" in dry.output
    listed = call("run sine --preset smoke --settings")
    assert "standard deviation of the likelihood" in listed.output
    said = fault("sweep sine --preset smoke --device cpu --method ewc --grid lambda=1,10 --out sweep")
    assert said == "sine makes its own data, of which nothing is held out; give --select test."
    line = "sweep sine --preset smoke --device cpu --method ewc --grid lambda=1,10 --select test --out sweep"
    swept = call(line)
    assert swept.exit_code == 0, swept.exception
    run("sine --method vcl", "sine")
    made = call("predict out --task 'interval 1' --out p.csv")
    assert made.exit_code == 0, made.exception
    with (here / "p.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 20, "two seeds, as many examples as test a task"
    assert any("mean" in name for name in lines[0])
    assert any("sd" in name for name in lines[0])


def test_every_run_of_the_sine_has_data_of_its_own_and_intervals_meet() -> None:
    plan = make_plan("sine", "vcl", "paper", 3, "cpu")
    tasks = list(plan.stream(None, Rng((0, 1, 2))))
    assert [task.name for task in tasks] == [f"interval {n}" for n in (1, 2, 3, 4)]
    for number, task in enumerate(tasks):
        assert task.test is not None
        for part in (task.train, task.test):
            assert part.x.shape == (3, 200, 1)
            assert float(part.x.min()) >= -4 + 2 * number
            assert float(part.x.max()) <= -2 + 2 * number
            noise = part.y - (2 * part.x[..., 0]).sin()
            assert 0.08 < float(noise.std()) < 0.12
        assert not np.array_equal(task.train.x[0], task.train.x[1])
        assert not np.array_equal(task.train.x, task.test.x)
