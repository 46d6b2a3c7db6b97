"""`examples/decisions/`: each script runs with `--quick`, and its table, rows and figure have what they should."""

from __future__ import annotations

import csv
import json
import math
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from vcl.lab.datasets import MissingData, load

SCRIPTS = Path(__file__).parents[2] / "examples" / "decisions"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def script(name: str) -> ModuleType:
    """The module of a script."""
    return import_module(name)


def needs(*names: str) -> None:
    """Skip where a dataset is missing."""
    for name in names:
        try:
            load(name, fetch=False)
        except MissingData:
            pytest.skip(f"needs {name}")


def ran(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[list[dict[str, str]], str]:
    """The rows and the table of a script's quick run."""
    module = script(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--quick", "--seeds", "1"])
    module.main(["--quick", "--seeds", "1", "--out", str(folder), *more])
    stem = name.replace("_", "-")
    with (folder / f"{stem}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    about = json.loads((folder / f"{stem}.json").read_text())
    assert about["seeds"] == [0]
    assert about["command"] == f"python examples/decisions/{name}.py --quick --seeds 1"
    assert (folder / f"{stem}.png").stat().st_size > 0
    text = (folder / f"{stem}.md").read_text()
    assert about["command"] in text
    return rows, text


def finite(rows: list[dict[str, str]], *columns: str) -> bool:
    """Whether all values of these columns are finite."""
    return all(math.isfinite(float(row[column])) for row in rows for column in columns)


def test_active_learning_counts_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, text = ran("active_learning", tmp_path, monkeypatch)
    for way in ("random", "BALD"):
        assert [row["labels"] for row in rows if row["ask"] == way] == ["20", "40", "60"]
        assert f"| {way} | 60 |" in text
    assert finite(rows, "accuracy", "log_loss")
    first = [row for row in rows if row["labels"] == "20"]
    assert first[0]["accuracy"] == first[1]["accuracy"]  # both ways begin with the same labels


def test_bald_asks_for_the_largest_epistemic_uncertainty() -> None:
    class Made:
        def uncertainty(self, x: np.ndarray) -> object:
            return type("U", (), {"epistemic": x[:, 0], "total": -x[:, 0]})

    x = np.array([[1.0], [5.0], [3.0], [4.0]])
    assert script("active_learning").ask("BALD", Made(), x, 2, np.random.default_rng(0)).tolist() == [1, 3]


def test_regret_of_bandits_never_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, text = ran("bandit", tmp_path, monkeypatch)
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    assert policies[0] == "Thompson sampling"
    for policy in policies:
        regret = [int(row["regret"]) for row in rows if row["policy"] == policy]
        assert len(regret) == 2
        assert 0 <= regret[0] <= regret[1] <= 100
        assert f"| {policy} | {regret[1]} |" in text


def test_an_arm_has_its_own_columns() -> None:
    x = np.arange(1.0, 7.0).reshape(2, 3)
    found = script("bandit").inputs(x, np.array([1, 9])).reshape(2, 10, 3)
    assert (found[0, 1] == x[0]).all()
    assert (found[1, 9] == x[1]).all()
    assert found.sum() == x.sum()


def test_drift_is_judged_before_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, text = ran("drift", tmp_path, monkeypatch)
    learners = {row["learner"] for row in rows}
    assert {"default", "default, forget=0.1", "fine-tuning", "EWC, lambda 100", "SGD, 1 pass"} <= learners
    assert all([row["chunk"] for row in rows if row["learner"] == each] == ["1", "2"] * 2 for each in learners)
    assert finite(rows, "log_loss", "accuracy")
    assert all(f"| {each} |" in text for each in learners)


def test_streams_are_ordered_or_moving() -> None:
    drift = script("drift")
    x = np.random.default_rng(0).standard_normal((40, 3))
    stream = drift.ordered("made", np.c_[np.zeros(40), x], (x[:, 0] > 0).astype(int), 0, 4)
    column = np.concatenate([chunk[0][:, 1] for chunk in stream.chunks])
    assert (np.diff(column) >= 0).all()  # the first column is constant, so the second orders them
    shares = [chunk[1].mean() for chunk in drift.rising(0, 5).chunks]
    assert shares[0] > 0.6 > 0.4 > shares[-1]


def test_unknown_inputs_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mnist", "notmnist")
    rows, text = ran("unknown_inputs", tmp_path, monkeypatch)
    assert {row["kind"] for row in rows} == {"letters", "noise", "shuffled pixels"}
    assert len({(row["learner"], row["score"]) for row in rows}) == 5
    assert all(0 <= float(row["auroc"]) <= 100 for row in rows)
    assert "-log evidence" in text


def test_mnist_tasks_have_all_learners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mnist")
    rows, text = ran("mnist_tasks", tmp_path, monkeypatch)
    pairs = {row["learner"] for row in rows if row["stream"] == "pairs"}
    assert pairs == {"default", "fine-tuning", "EWC, lambda 1", "EWC, lambda 100"}
    assert {row["learner"] for row in rows if row["stream"] == "classes"} == {"default", "fine-tuning", "generative"}
    assert finite(rows, "accuracy", "log_loss", "ece", "seconds")
    assert "| classes | generative |" in text


def test_seeds_that_are_there_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = ran("bandit", tmp_path, monkeypatch)

    def never(*_: object) -> None:
        raise AssertionError("a seed that is there ran again")

    monkeypatch.setattr(script("bandit"), "one", never)
    assert ran("bandit", tmp_path, monkeypatch, "--add")[0] == rows


def test_parts_are_added_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mnist", "notmnist")
    module, asked = script("unknown_inputs"), ["--quick", "--seeds", "1"]
    for more in (["--only", "fine-tuning"], ["--only", "default"]):
        monkeypatch.setattr(sys, "argv", ["unknown_inputs.py", *asked, *more])
        module.main([*asked, *more, "--add", "--out", str(tmp_path)])
    with (tmp_path / "unknown-inputs.csv").open(newline="") as file:
        assert list(dict.fromkeys(row["learner"] for row in csv.DictReader(file))) == ["fine-tuning", "default"]
    command = "python examples/decisions/unknown_inputs.py --quick --seeds 1 --only"
    about = json.loads((tmp_path / "unknown-inputs.json").read_text())
    assert about["command"] == f"{command} fine-tuning; {command} default"


def test_scores_on_cases_known_by_hand() -> None:
    common = script("common")
    p, y = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 0])
    assert common.accuracy(p, y) == 50
    assert common.log_loss(p, y) == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)
    assert common.ece(p, y) == pytest.approx(100 * (0.2 + 0.6) / 2)
    assert common.auroc(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == 7 / 8
    assert common.cell([1.0, 3.0]) == "2.0 ± 1.0"


def test_fine_tuning_forgets_and_ewc_stays_nearer() -> None:
    import torch

    import vcl

    common = script("common")
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 4))
    losses = {}
    for project, lam in (("fine-tuning", 0.0), ("ewc", 1e4)):
        torch.manual_seed(0)
        learner = common.Baseline(vcl.mlp(4, (10,)), 10, 2, project, lam)
        learner.effort = vcl.learner.defaults.Effort(epochs=20)
        y = (x[:, 0] + 0.5 * random.standard_normal(60) > 0).astype(int)
        learner.update(x, y)
        learner.update(x, 1 - y)
        losses[project] = common.log_loss(learner.predict_proba(x), y)
    assert losses["ewc"] < losses["fine-tuning"]
