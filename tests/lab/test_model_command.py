"""`vcl model`: own tables and arrays from the shell, from the first update to predictions."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab_made import alone, call, done, fault, files_under
from safetensors import safe_open
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import vcl
from vcl.lab.claim import Claim
from vcl.lab.model import kept, predictions
from vcl.learner.tables import Table

NEW = "model new {} --hidden 16 --method mean-field --epochs 40"


def write(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with Path(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def read(name: str) -> dict[str, list[str]]:
    with Path(name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {column: [row[column] for row in rows] for column in rows[0]}


def tables(source: Callable[[], Any], stem: str, named: bool) -> None:
    """A table of scikit-learn in two files, every other row in each."""
    bunch = source()
    y = [str(bunch.target_names[each]) for each in bunch.target] if named else bunch.target.tolist()
    rows = [[*x, label] for x, label in zip(bunch.data.tolist(), y, strict=True)]
    for part in range(2):
        write(f"{stem}{part}.csv", [*bunch.feature_names, "label"], rows[part::2])


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that have learned the first file of a table."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("story"), monkeypatch)
        tables(load_wine, "wine", True)
        tables(load_diabetes, "diabetes", False)
        done(NEW.format("wine"))
        done("model update wine wine0.csv --target label")
        done(NEW.format("diabetes") + " --kind regressor")
        done("model update diabetes diabetes0.csv --target label --drop s4")
    return here


@pytest.fixture
def here(story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = alone(tmp_path, monkeypatch)
    shutil.copytree(story, folder, dirs_exist_ok=True)
    return folder


# The whole way.


def test_a_classifier_learns_predicts_and_goes_on_as_in_python(here: Path) -> None:
    said = done("model predict wine wine1.csv")
    assert "89 predictions in predictions.csv." in said
    found = read("predictions.csv")
    assert list(found) == [
        "label", "p_class_0", "p_class_1", "p_class_2", "uncertainty", "aleatoric", "epistemic",
    ]  # fmt: skip
    right = np.mean([mine == true for mine, true in zip(found["label"], read("wine1.csv")["label"], strict=True)])
    assert right > 0.9
    assert f"accuracy {right:.1%}" in said
    p = np.array([found[f"p_class_{place}"] for place in range(3)], dtype=float)
    assert np.allclose(p.sum(0), 1)
    total, aleatoric, epistemic = (np.array(found[name], float) for name in list(found)[-3:])
    assert np.allclose(total, aleatoric + epistemic, atol=1e-6)

    columns = read("wine1.csv")
    labels = columns.pop("label")
    (loaded,) = re.findall(r"in Python: (.*)", done("model info wine"))
    learner = eval(loaded)
    assert isinstance(learner, vcl.ContinualClassifier)
    assert np.allclose(learner.predict_proba(columns).T, p, atol=1e-6)
    done("model update wine wine1.csv")
    learner.update(columns, labels)
    again = eval(loaded)
    assert len(again.history) == 2
    assert (again.predict_proba(columns) == learner.predict_proba(columns)).all()


def test_a_regressor_has_intervals_for_rows_without_a_target(here: Path) -> None:
    rows = read("diabetes1.csv")
    truth = np.array(rows.pop("label"), float)
    write("july.csv", list(rows), list(zip(*rows.values(), strict=True)))
    assert "target" not in done("model predict diabetes july.csv --out p.npz --level 0.5")
    assert "in their interval" in done("model predict diabetes diabetes1.csv --out q.npz")
    with np.load("p.npz") as narrow, np.load("q.npz") as wide:
        assert list(narrow) == ["mean", "sd", "lower", "upper", "aleatoric", "epistemic"]
        assert (narrow["mean"] == wide["mean"]).all()
        assert np.corrcoef(narrow["mean"], truth)[0, 1] > 0.5
        assert (wide["lower"] < narrow["lower"]).all()
        assert (wide["upper"] > narrow["upper"]).all()
        assert np.allclose(wide["sd"] ** 2, wide["aleatoric"] + wide["epistemic"])


def test_arrays_of_images_and_several_targets(here: Path) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (60, 4, 4), dtype=np.uint8)
    np.savez("images.npz", x=images, y=(images[:, 0, 0] > 127))
    np.savez("more.npz", x=images[:7])
    done(NEW.format("seen"))
    done("model update seen images.npz")
    done("model predict seen more.npz --out p.csv")
    assert set(read("p.csv")["label"]) <= {"True", "False"}
    assert len(read("p.csv")["p_True"]) == 7
    x = generator.normal(size=(80, 3))
    y = np.stack([x[:, 0], -x[:, 1]], 1)
    y[3, 1] = np.nan
    np.savez("both.npz", x=x, y=y)
    done(NEW.format("both") + " --kind regressor --noise 0.1")
    assert "1 of 80 rows have no target and are left out" in done("model update both both.npz")
    assert "79 rows with a target: root mean squared error" in done("model predict both both.npz --out b.csv")
    assert list(read("b.csv"))[:4] == ["mean_0", "mean_1", "sd_0", "sd_1"]
    assert "x is an array of shape [N, 3], but the learner was begun with named columns" in fault(
        "model update diabetes both.npz"
    )
    assert "for tables" in fault("model update both both.npz --target y")


def test_tasks_have_heads_and_the_surest_one_answers(here: Path) -> None:
    tables(load_breast_cancer, "cancer", True)
    kinds = read("wine1.csv")
    done(NEW.format("tasks"))
    two = [row for row in zip(*kinds.values(), strict=True) if row[-1] != "class_2"]
    three = [[*row[:-1], "new" if row[-1] == "class_2" else "old"] for row in zip(*kinds.values(), strict=True)]
    write("two.csv", list(kinds), two)
    write("three.csv", list(kinds), three)
    done("model update tasks two.csv --target label --task first")
    done("model update tasks three.csv --task second")
    assert "was learned before; give new data another name, or --revisit" in fault(
        "model update tasks wine0.csv --task second"
    )
    assert "heads for the tasks first, second; update it with the name of a task" in fault(
        "model update tasks wine0.csv"
    )
    done("model predict tasks two.csv --out p.csv")
    found = read("p.csv")
    assert set(found["task"]) <= {"first", "second"}
    assert {"p_class_0", "p_new"} < set(found)
    total, parts = np.array(found["uncertainty"], float), np.array([found["aleatoric"], found["epistemic"]], float)
    assert np.allclose(total, parts.sum(0), atol=1e-6)
    done("model predict tasks two.csv --task first --out q.csv")
    assert read("q.csv")["label"] != found["label"] or set(found["task"]) == {"first"}
    assert "p_new" not in read("q.csv")
    assert "there is a head for each of the tasks" in fault("model export tasks m.pt2")
    done("model export tasks m.pt2 --task second")


def test_generators_for_a_class_after_another(here: Path) -> None:
    done("model new gen --method generative --epochs 5")
    done("model update gen wine0.csv --target label")
    done("model predict gen wine1.csv")
    assert len(read("predictions.csv")["label"]) == 89
    assert "is no single module" in fault("model export gen m.pt2")
    assert "makes its own networks" in fault("model new other --method generative --hidden 3")
    assert not Path("other").exists()


def test_predictions_in_parts_are_those_of_the_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("model predict wine wine1.csv --out whole.csv")
    monkeypatch.setattr(predictions, "CHUNK", 20)
    done("model predict wine wine1.csv --out parts.csv")
    whole, parts = read("whole.csv"), read("parts.csv")
    assert whole["label"] == parts["label"]
    assert np.allclose(np.array(whole["p_class_0"], float), np.array(parts["p_class_0"], float), atol=1e-6)


def test_info_as_json_is_json(here: Path) -> None:
    found = json.loads(done("model info diabetes --json"), parse_constant=lambda word: pytest.fail(word))
    assert found["kind"] == "regressor"
    assert found["target"] == "label"
    assert found["drop"] == ["s4"]
    assert [column["name"] for column in found["columns"]] == [
        name for name in load_diabetes().feature_names if name != "s4"
    ]
    assert found["tasks"] == {"update 1": {"head": "all", "examples": 221, "updates": 1}}
    assert found["history"][0]["epochs"] > 0
    done(NEW.format("empty"))
    assert json.loads(done("model info empty --json"))["learned"] is False
    assert "nothing learned yet" in done("model info empty")


READ_ONLY = pytest.mark.filterwarnings("ignore:The given buffer is not writable")
"""What torch 2.11 says of its own reader."""


@READ_ONLY
def test_the_exported_module_is_the_mean_of_the_belief_and_has_no_pickle(here: Path) -> None:
    done("model export diabetes m.pt2")
    done("model export diabetes m.safetensors")
    with zipfile.ZipFile("m.pt2") as parts:
        assert not [each for each in parts.namelist() if each.endswith(".pkl")]
        assert all(
            not parts.read(each).startswith((b"\x80", b"PK")) for each in parts.namelist() if "weight_" not in each
        )
    extra = {"vcl.json": ""}
    module = torch.export.load("m.pt2", extra_files=extra).module()
    about = json.loads(extra["vcl.json"])
    columns = {name: np.array(values, dtype=object) for name, values in read("diabetes1.csv").items()}
    table = Table.from_described(about["columns"])
    x = table.numbers({name: columns[name] for name in table.names})
    net = vcl.mlp(9, (16,))
    plain = vcl.ContinualRegressor.load("diabetes", net).export()
    assert torch.equal(module(x), plain(x))
    assert module(x[:1]).shape == (1, 1)
    with safe_open("m.safetensors", "pt") as found:
        assert json.loads(found.metadata()["vcl"]) == about
        assert all(torch.equal(found.get_tensor(name), value) for name, value in plain.state_dict().items())
    assert "give a name that ends in .pt2 or .safetensors" in fault("model export diabetes m.pkl")


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.bool_])
def test_labels_are_scored_by_what_they_are_and_not_by_how_they_are_written(here: Path, kind: Any) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = x[:, 0] > 0
    np.savez("first.npz", x=x, y=y.astype(kind))
    done(NEW.format("marks"))
    done("model update marks first.npz")
    said = set()
    for at, form in enumerate((y.astype(float), y.astype(int), y, y[:, None].astype(kind))):
        np.savez("later.npz", x=x, y=form)
        said.add(done(f"model predict marks later.npz --out {at}.npz").splitlines()[-1])
    assert len(said) == 1
    assert float(re.findall(r"accuracy ([\d.]+)%", said.pop())[0]) > 80


def test_a_target_with_underscores_is_no_number(here: Path) -> None:
    write("t.csv", ["a", "y"], [[1, "1_000"], [2, "5"]])
    done(NEW.format("sums") + " --kind regressor")
    assert "is '1_000' in row 0" in fault("model update sums t.csv --target y")


@READ_ONLY
def test_an_exported_program_takes_large_numbers_that_are_close_together(here: Path) -> None:
    write("t.csv", ["t", "y"], [[1.7e9 + row / 2, row] for row in range(20)])
    done(NEW.format("times") + " --kind regressor")
    done("model update times t.csv --target y")
    done("model export times t.pt2")
    module = torch.export.load("t.pt2").module()
    x = 1.7e9 + torch.arange(20, dtype=torch.float64)[:, None] / 2
    assert len(module(x).unique()) > 15
    assert torch.equal(module(x), vcl.ContinualRegressor.load("times", vcl.mlp(1, (16,))).export()(x))


# Tables that change.


def test_categories_and_missing_values(here: Path) -> None:
    rows = [[size, colour, "yes" if colour == "red" else "no"] for size, colour in
            zip(range(60), ["red", "blue", ""] * 20, strict=True)]  # fmt: skip
    write("june.csv", ["size", "colour", "answer"], rows)
    done(NEW.format("june"))
    done("model update june june.csv --target answer")
    assert "colour: 2 categories (blue, red), with missing values" in done("model info june")
    write("july.csv", ["answer", "colour", "size"], [["yes", "red", 5], ["no", "green", ""], ["", "blue", 2]] * 4)
    said = done("model update june july.csv")
    assert "4 of 12 rows have no target and are left out" in said
    assert "column 'size' has 4 missing values and had none before" in said
    assert "warning: column 'colour' has values that the first update had not: 'green' (4)" in said
    said = done("model predict june july.csv")
    assert said.count("'green' (4)") == said.count("has 4 missing values") == 1
    assert "8 rows with a target" in said
    assert len(read("predictions.csv")["label"]) == 12


def test_other_columns_are_refused_with_the_difference(here: Path) -> None:
    rows = read("wine1.csv")
    rows["hew"] = rows.pop("hue")
    write("typo.csv", list(rows), list(zip(*rows.values(), strict=True)))
    before = files_under(Path("wine"))
    for command in ("update", "predict"):
        assert "the table comes without 'hue' and with the new 'hew'" in fault(f"model {command} wine typo.csv")
    assert files_under(Path("wine")) == before
    assert not Path("predictions.csv").exists()


def test_dropped_columns_may_be_gone_and_the_others_may_be_in_another_order(here: Path) -> None:
    rows = read("diabetes1.csv")
    done("model predict diabetes diabetes1.csv --out a.csv")
    del rows["s4"]
    rows = dict(reversed(rows.items()))
    write("turned.csv", list(rows), list(zip(*rows.values(), strict=True)))
    done("model predict diabetes turned.csv --out b.csv")
    assert Path("a.csv").read_text() == Path("b.csv").read_text()


@pytest.mark.parametrize(
    ("header", "row", "options", "said"),
    [
        ("a,b", "1,2", "", "say which column of t.csv is the target, as in --target 'b'"),
        ("a,b", "1,2", "--target c", "t.csv has no column 'c' (the target); it has 'a', 'b'"),
        ("a,b", "1,", "--target b", "the target 'b' of t.csv is missing in all 30 rows"),
        ("a,b", "1,2", "--target b --drop c", "--drop names 'c', and the table has no such column"),
        ("a,b", "1,2", "--target b --drop b", "--drop names the target 'b'"),
        ("a,b", "1,2", "--target b --drop a", "no columns"),
        ("a,b", ",2", "--target b", "column 'a' has no values; drop it"),
        ("a,b", "inf,2", "--target b", "column 'a' is infinite in row 0"),
        (
            "a,b",
            "1,two",
            "--target b",
            "the target 'b' of t.csv is 'two' in row 0 (rows count from 0); a regressor needs numbers",
        ),
        ("a,b", "1,2", "--target b --forget 1", "forget is 1.0"),
        ("a,b", "1,2", "--target b --device gpu", "device is 'gpu'"),
    ],
)
def test_a_first_update_that_cannot_be_learned_changes_nothing(
    here: Path, header: str, row: str, options: str, said: str
) -> None:
    Path("t.csv").write_text(header + "\n" + f"{row}\n" * 30)
    done(NEW.format("m") + " --kind regressor")
    before = files_under(Path("m"))
    assert said in fault(f"model update m t.csv {options}")
    assert files_under(Path("m")) == before


def test_a_message_counts_rows_as_the_file_does(here: Path) -> None:
    rows = read("wine1.csv")
    rows["label"][0], rows["hue"][3] = "", "pink"
    write("t.csv", list(rows), list(zip(*rows.values(), strict=True)))
    for command in ("update", "predict"):
        assert "column 'hue' is 'pink' in row 3, and" in fault(f"model {command} wine t.csv")


def test_labels_are_whole_numbers_if_all_are_and_strings_stay_strings(here: Path) -> None:
    for name, labels in (("numbers", "0 1 +1 2.0"), ("strings", "0 1 none ?"), ("codes", "00 01 1 1")):
        write(f"{name}.csv", ["a", "b"], [[at, label] for at, label in enumerate(labels.split() * 10)])
        done(NEW.format(name))
        done(f"model update {name} {name}.csv --target b")
    classes = {
        name: json.loads(done(f"model info {name} --json"))["heads"]["all"]["classes"]
        for name in ("numbers", "strings", "codes")
    }
    assert classes == {"numbers": [0, 1, 2], "strings": ["0", "1", "?", "none"], "codes": ["00", "01", "1"]}
    write("later.csv", ["a", "b"], [[1, "1"], [2, "2"]])
    done("model update strings later.csv")
    assert json.loads(done("model info strings --json"))["heads"]["all"]["classes"][-1] == "2"
    done(NEW.format("fixed") + " --classes no,yes")
    assert "'1', '2' is not among the classes 'no', 'yes'" in fault("model update fixed later.csv --target b")


def test_a_classifier_of_numbers_is_doubted(here: Path) -> None:
    write("t.csv", ["a", "b"], [[at, f"{at / 4}"] for at in range(40)])
    done(NEW.format("m"))
    assert "the target has numbers such as 0.25, which name no class; make the model with --kind regressor" in fault(
        "model update m t.csv --target b"
    )
    write("w.csv", ["a", "b"], [[at, f"{at}.0"] for at in range(40)])
    assert "warning: the target has 40 classes in 40 rows; if it is a number" in done("model update m w.csv --target b")
    assert "in 221 rows; if it is" not in done("model update diabetes diabetes1.csv")


# Settings.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--hidden 3,x", "--hidden is '3,x'; give widths"),
        ("--hidden 0", "--hidden is 0; give widths from 1"),
        ("--method vlc", "unknown method 'vlc'"),
        ("--noise 1", "--noise is not for a classifier"),
        ("--kind regressor --classes a,b", "--classes is not for a regressor"),
        ("--kind regressor --noise loud", "noise is 'loud'"),
        ("--kind regressor --likelihood cauchy", "unknown likelihood 'cauchy'"),
        ("--classes a", "give at least two"),
        ("--epochs 0", "epochs is 0"),
        ("--heads one", "unknown heads 'one'"),
    ],
)
def test_wrong_settings_are_refused_and_no_folder_is_made(here: Path, options: str, said: str) -> None:
    assert said in fault(f"model new m {options}")
    assert not Path("m").exists()


def test_settings_reach_the_learner(here: Path) -> None:
    done(
        "model new m --hidden 5,4 --method laplace --heads shared --memory 3 --prior-var 0.5 --epochs 2 --batch 7 "
        "--lr 0.01 --draws 2 --no-standardize --seed 9 --classes b,a"
    )
    write("t.csv", ["q", "y"], [[1, "a"], [2, "b"], [3, "a"]])
    done("model update m t.csv --target y")
    settings = json.loads(done("model info m --json"))["settings"]
    assert settings["effort"].items() >= {"epochs": 2, "batch": 7, "lr": 0.01, "draws": 2}.items()
    assert settings["shape"]["prior_var"] == 0.5
    assert {name: settings[name] for name in ("method", "heads", "memory", "standardize", "seed")} == {
        "method": "laplace", "heads": "shared", "memory": 3, "standardize": False, "seed": 9,
    }  # fmt: skip
    assert settings["extra"]["classes"] == ["b", "a"]
    learner = vcl.ContinualClassifier.load("m", vcl.mlp(1, (5, 4)))
    assert learner.classes() == ("b", "a")


# Folders.


def test_folders_that_are_no_model_are_refused(here: Path) -> None:
    Path("other").mkdir()
    Path("other/notes.txt").write_text("mine")
    assert "already holds files" in fault("model new other")
    assert "already holds a model" in fault("model new wine")
    assert "is a file" in fault("model new wine0.csv")
    for command in ("update other wine0.csv", "predict other wine0.csv", "info other", "export nowhere m.pt2"):
        assert "is no model: it has no model.json" in fault(f"model {command}")
    assert not Path("nowhere").exists()
    done(NEW.format("empty"))
    assert "has learned nothing yet" in fault("model predict empty wine0.csv")
    Path("wine/model.json").write_text("{")
    assert "model.json is damaged" in fault("model info wine")
    (state,) = Path("diabetes").glob("state-*")
    state.write_bytes(b"")
    assert "is damaged" in fault("model predict diabetes diabetes1.csv")


@pytest.mark.parametrize("line", ["info wine", "predict wine wine0.csv", "update wine wine1.csv"])
def test_a_model_that_lost_its_manifest_is_not_taken_for_a_new_one(here: Path, line: str) -> None:
    """What it has learned must not begin anew."""
    manifest = Path("wine/learner.json").read_bytes()
    Path("wine/learner.json").unlink()
    before = files_under(Path("wine"))
    said = "the model in wine is damaged (it lacks learner.json); restore it from a copy."
    assert fault(f"model {line}") == said
    assert files_under(Path("wine")) == before
    Path("wine/learner.json").write_bytes(manifest)
    assert "update 1" in done("model info wine")


def test_a_first_update_that_was_killed_while_its_files_were_moved_is_learned_again(here: Path) -> None:
    done(NEW.format("m"))
    recipe = Path("m/model.json").read_bytes()
    done("model update m wine0.csv --target label --quiet")
    Path("m/.first-update").mkdir()
    Path("m/learner.json").rename("m/.first-update/learner.json")
    Path("m/model.json").write_bytes(recipe)
    assert "nothing learned yet" in done("model info m")
    done("model update m wine0.csv --target label --quiet")
    assert sorted(path.name.partition("-")[0] for path in Path("m").iterdir()) == [
        "arrays", "learner.json", "model.json", "state"
    ]  # fmt: skip


def test_a_later_update_cannot_change_target_or_columns(here: Path) -> None:
    assert "--target is 'hue', and this model learns 'label'" in fault("model update wine wine1.csv --target hue")
    assert "--drop is hue, and the first update left out nothing" in fault("model update wine wine1.csv --drop hue")
    assert "this is the data of 'update 1', which would count twice; give new data, or --revisit." in fault(
        "model update wine wine0.csv"
    )
    done("model update wine wine0.csv --target label --revisit")


def test_predictions_are_never_written_over(here: Path) -> None:
    Path("mine.csv").write_text("precious")
    assert "mine.csv, which exists" in fault("model predict wine wine1.csv --out mine.csv")
    assert Path("mine.csv").read_text() == "precious"
    assert "give a name that ends in .csv, .npz, .parquet" in fault("model predict wine wine1.csv --out p.xlsx")


def test_a_parquet_file_of_pandas_from_the_first_update_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    alone(tmp_path, monkeypatch)
    random, rows = np.random.default_rng(0), np.arange(60)
    frame = pandas.DataFrame({
        "size": pandas.array(random.normal(size=60), dtype="Float64"),
        "level": pandas.array(rows % 4, dtype="Int64"),
        "city": pandas.Categorical(np.array(["Oslo", "Rome"])[rows % 2]),
        "member": pandas.array(rows % 3 == 0, dtype="boolean"),
    })  # fmt: skip
    frame.loc[rows % 7 == 0, ["level", "city", "member"]] = pandas.NA
    label = np.where(frame["size"] > 0, "large", "small")
    frame.assign(label=label)[:40].to_parquet("old.parquet")
    frame[40:].to_parquet("new.parquet")
    done(NEW.format("sizes"))
    done("model update sizes old.parquet --target label")
    info = done("model info sizes")
    assert all(each in info for each in ("level", "city", "member"))
    done("model predict sizes new.parquet --out said.parquet")
    said = parquet.read_table("said.parquet")
    assert said.num_rows == 20
    assert (said.column("label").to_numpy() == label[40:]).mean() > 0.7
    frame.assign(day=pandas.Timestamp("2024-01-01"), label=label).to_parquet("days.parquet")
    done(NEW.format("days"))
    assert "column 'day' has dtype datetime64" in fault("model update days days.parquet --target label")


def test_parquet_predictions_without_pyarrow(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "writing Parquet needs pyarrow" in fault("model predict wine wine1.csv --out p.parquet")


def test_a_folder_that_cannot_be_written_is_refused_before_the_fit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and usual(path, mode))
    monkeypatch.setattr(vcl.ContinualClassifier, "update", lambda *_, **__: pytest.fail("a fit"))
    assert "nothing may be written in wine" in fault("model update wine wine1.csv")


def test_two_updates_at_once_are_refused(here: Path) -> None:
    before = files_under(Path("wine"))
    claim = Claim(Path("wine"))
    try:
        assert "another update of wine is at work; wait until it has ended" in fault("model update wine wine1.csv")
        done("model predict wine wine1.csv")
    finally:
        claim.give_back()
    assert files_under(Path("wine")) == before
    done("model update wine wine1.csv")


def test_a_first_save_that_is_cut_off_leaves_a_model_that_can_be_updated(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stops, the folder has learned nothing, or all of the update."""
    usual = os.replace
    for after in range(20):
        done(NEW.format(f"m{after}"))
        moved: list[Any] = []

        def replace(source: Any, to: Any, most: int = after, moved: list[Any] = moved) -> None:
            if Path(source).parent.name == kept.FIRST:
                if len(moved) == most:
                    raise KeyboardInterrupt
                moved.append(to)
            usual(source, to)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", replace)
            ended = call(f"model update m{after} wine0.csv --target label").exit_code
        assert kept.has_learned(Path(f"m{after}")) == (ended == 0)
        if ended == 0:
            break
        assert "has learned nothing yet" in fault(f"model predict m{after} wine1.csv")
        done(f"model update m{after} wine0.csv --target label")
        assert not (Path(f"m{after}") / kept.FIRST).exists()
        done(f"model predict m{after} wine1.csv --out {after}.csv")
    assert 3 <= after < 19  # at least the moves of two files of tensors and the manifest


def test_a_stopped_update_leaves_the_model_as_it_was(here: Path) -> None:
    before = files_under(Path("wine"))
    line = [sys.executable, "-m", "vcl", "model", "update", "wine", "wine1.csv"]
    code = (
        "import os, signal, sys, vcl.learner.continual as c\n"
        "def stop(*a, **k): os.kill(os.getpid(), signal.SIGTERM)\n"
        "c.learn = stop; sys.argv[1:] = " + repr(line[3:]) + "\nfrom vcl.__main__ import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 128 + signal.SIGTERM
    assert ended.stderr == "vcl: stopped.\n"
    assert files_under(Path("wine")) == before


def test_errors_have_no_traceback(here: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "vcl", "model", "predict", "wine", "none.csv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == "vcl: none.csv is no file; give the path of a data file.\n"


def test_help_names_every_command() -> None:
    said = io.StringIO(done("model --help")).read()
    assert all(f"  {name} " in said for name in ("new", "update", "predict", "info", "export"))
    assert "vcl model new june" in done("--help")
