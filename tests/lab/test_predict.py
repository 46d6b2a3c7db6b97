"""`vcl predict`: the numbers of a finished run again, and predictions for inputs of a user's own."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab_made import alone, call, done, fault, files_under, part_folder, without_checksums
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from vcl.lab import loading, saved
from vcl.lab.classification import METRICS
from vcl.lab.datasets import load
from vcl.lab.experiments.sine import RMSE, SINE
from vcl.lab.results import read_csv
from vcl.lab.streams import arrays
from vcl.models import Categorical, HeteroscedasticNormal, Normal, Poisson
from vcl.ops.rng import Rng

SPLIT = ("vcl", "vcl-random", "ewc", "si", "mle")
"""Methods that draw, that have a posterior for each head, and that predict with a mean."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("story"), monkeypatch)
        smoke = "--preset smoke --device cpu"
        done(f"run split-digits --method {','.join(SPLIT)} --set predictive=per-head {smoke} --out split")
        done(f"run permuted-digits --method vcl --set predict_estimator=local {smoke} --out permuted")
        done(f"run sine --method vcl,ewc {smoke} --out sine")
        done(f"run generative-digits --method naive {smoke} --out generators")
    return here


@pytest.fixture
def runs(story: Path, here: Path) -> Path:
    shutil.copytree(story, here, dirs_exist_ok=True)
    return here


def predicted(line: str, file: str = "p.npz") -> dict[str, NDArray[Any]]:
    done(f"predict {line} --out {file}")
    with np.load(file, allow_pickle=False) as found:
        return dict(found)


def last_rows(out: Path, stem: str, on: int, metric: str) -> list[float]:
    """The values after the last task, in the order of the seeds."""
    rows = read_csv(part_folder(out, stem) / "rows.csv")
    mine = [row for row in rows if row.after == max(row.after for row in rows) and (row.on, row.metric) == (on, metric)]
    return [row.value for row in sorted(mine, key=lambda row: row.seed)]


# The same numbers again.


@pytest.mark.parametrize("method", SPLIT)
def test_probabilities_are_those_that_the_stored_numbers_are_of(runs: Path, method: str) -> None:
    """Exactly, for every metric, seed and task: what is kept of a run is all that its numbers followed from."""
    digits = arrays(load("digits"))
    for number, (task, classes) in enumerate((("0/1", (0, 1)), ("2/3", (2, 3))), start=1):
        found = predicted(f"split --method {method} --task {task}", f"{number}.npz")
        assert sorted(found.keys() - {"lambdas"}) == ["labels", "probabilities", "seeds"]
        probabilities, labels = torch.from_numpy(found["probabilities"]), torch.from_numpy(found["labels"])
        assert found["seeds"].tolist() == [0, 1]
        size = int(sum((digits.test_y == each).sum() for each in classes))
        assert (tuple(probabilities.shape), tuple(labels.shape)) == ((2, size, 2), (size,))
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, size))
        for metric, measure in METRICS.items():
            values = measure(probabilities, labels.expand(2, -1)).tolist()
            assert values == last_rows(runs / "split", f"split-digits-{method}", number, metric), metric


def test_runs_that_see_other_inputs_and_a_posterior_at_one_head(runs: Path) -> None:
    for number in (1, 2):
        found = predicted(f"permuted --task 'permutation {number}'", f"{number}.npz")
        probabilities, labels = torch.from_numpy(found["probabilities"]), torch.from_numpy(found["labels"])
        assert probabilities.shape[-1] == 10
        for metric, measure in METRICS.items():
            values = measure(probabilities, labels.expand(2, -1)).tolist()
            assert values == last_rows(runs / "permuted", "permuted-digits-vcl", number, metric)


@pytest.mark.parametrize("method", ["vcl", "ewc"])
def test_moments_of_a_regression(runs: Path, method: str) -> None:
    """Each run has data of its own, so that there are no labels to go with all of them."""
    stream = SINE.stream(None, SINE.presets["smoke"].stream, Rng((0, 1)))
    for number in (1, 2):
        found = predicted(f"sine --method {method} --task 'interval {number}'", f"{number}.npz")
        assert sorted(found.keys() - {"lambdas"}) == ["mean", "sd", "seeds"]
        assert found["mean"].shape == found["sd"].shape == (2, 20, 1)
        assert (found["sd"] >= 0.099).all(), "the noise of the likelihood is in it"
        test = stream.make(number - 1).test
        assert test is not None
        error = test.y[..., None] - torch.from_numpy(found["mean"])
        assert error.square().flatten(1).mean(1).sqrt().tolist() == last_rows(
            runs / "sine", f"sine-{method}", number, RMSE
        )


def test_a_grid_and_runs_that_were_set_aside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vcl.errors import NonFiniteError
    from vcl.lab import runner
    from vcl.recursion import learn, set_runs_aside

    def spoiled(state: Any, tasks: Any, model: Any, method: Any, rng: Any, report: Any) -> Any:
        if state.t == 1:
            error = NonFiniteError("seed so-and-so is infinite.", [1], "it is infinite.")
            state = set_runs_aside(state, error, 2, method, rng)
        return learn(state, tasks, model, method, rng, report)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "learn", spoiled)
        done("run split-digits --method ewc --grid lambda=1,10 --preset smoke --device cpu --out out")
    found = predicted("out --task 0/1")
    assert found["seeds"].tolist() == [0, 0, 1], "seed 1 of lambda 1 is gone"
    rows = read_csv(part_folder(here / "out", "split-digits-ewc") / "rows.csv")
    labels = torch.from_numpy(found["labels"]).expand(3, -1)
    values = METRICS["accuracy"](torch.from_numpy(found["probabilities"]), labels).tolist()
    order = [("ewc lambda=1", 0), ("ewc lambda=10", 0), ("ewc lambda=10", 1)]
    ends = {row[:2]: row.value for row in rows if row[2:5] == (2, 1, "accuracy")}
    assert values == [ends[key] for key in order]


def test_a_part_that_was_chosen_on_held_out_data(here: Path) -> None:
    done("sweep split-digits --method ewc --grid lambda=1,10 --preset smoke --device cpu --out out")
    sizes = []
    for path in sorted((here / "out" / "parts").iterdir()):
        found = predicted(f"{path} --task 2/3", f"{path.name}.npz")
        labels = torch.from_numpy(found["labels"]).expand(len(found["seeds"]), -1)
        values = METRICS["accuracy"](torch.from_numpy(found["probabilities"]), labels).tolist()
        rows = [row for row in read_csv(path / "rows.csv") if row[2:5] == (2, 2, "accuracy")]
        assert values == [row.value for row in rows]
        sizes.append((labels.shape[1], len(rows)))
    digits = arrays(load("digits"))
    tested = int(((digits.test_y == 2) | (digits.test_y == 3)).sum())
    assert (tested, 2) in sizes
    assert {count for _, count in sizes} == {2, 4}, "two seeds, and two lambdas with two seeds"
    assert len({size for size, _ in sizes}) == 2, "of the test data, and of what was held out"


# Files.


def test_csv_has_the_same_numbers(runs: Path) -> None:
    found = predicted("split --task 2/3")
    said = done("predict split --task 2/3 --out p.csv")
    size = found["probabilities"].shape[1]
    assert (
        said
        == f"probabilities (2, {size}, 2) of task 2/3 of split-digits by vcl (seeds, examples, outputs) in p.csv.\n"
    )
    with Path("p.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["seed", "example", "label", "probabilities_0", "probabilities_1"]
    assert [(int(line["seed"]), int(line["example"])) for line in lines] == [
        (seed, example) for seed in (0, 1) for example in range(size)
    ]
    assert [int(line["label"]) for line in lines] == found["labels"].tolist() * 2
    values = [[float(line[f"probabilities_{c}"]) for c in (0, 1)] for line in lines]
    assert np.array_equal(np.array(values, np.float32).reshape(2, size, 2), found["probabilities"])


def test_csv_of_a_regression(runs: Path) -> None:
    found = predicted("sine --task 'interval 1'")
    done("predict sine --task 'interval 1' --out p.csv")
    with Path("p.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["seed", "example", "mean_0", "sd_0"]
    assert np.array_equal(np.array([line["sd_0"] for line in lines], np.float32), found["sd"].flatten())


def test_a_file_is_never_written_over(runs: Path) -> None:
    done("predict split --task 0/1 --out p.npz")
    before = Path("p.npz").read_bytes()
    assert fault("predict split --task 2/3 --out p.npz") == (
        "--out is p.npz, which exists; give a new name, or delete it first."
    )
    assert Path("p.npz").read_bytes() == before
    assert done("predict split --task 0/1") == (
        f"probabilities {tuple(np.load('p.npz')['probabilities'].shape)} of task 0/1 of split-digits by vcl (seeds, "
        "examples, outputs) in predictions.npz.\n"
    )
    assert Path("predictions.npz").exists()


# Inputs of the user's own.


@pytest.mark.parametrize("kind", ["npy", "npz", "named npz"])
@pytest.mark.parametrize("method", ["vcl-random", "ewc"])
def test_inputs_from_a_file_are_predicted_like_the_same_test_data(runs: Path, method: str, kind: str) -> None:
    """The whole test data of a task, as the bytes that they are."""
    digits = arrays(load("digits"))
    mine = digits.test_x[(digits.test_y == 2) | (digits.test_y == 3)].numpy()
    file = f"x.{kind[-3:]}"
    if kind == "npy":
        np.save(file, mine)
    elif kind == "npz":
        np.savez(file, mine)
    else:
        np.savez(file, first=np.zeros(3), x=mine)
    wanted = predicted(f"split --method {method} --task 2/3", "w.npz")
    found = predicted(f"split --method {method} --task 2/3 --inputs {file}")
    assert sorted(found.keys() - {"lambdas"}) == ["probabilities", "seeds"], "nobody knows their labels"
    assert np.array_equal(found["probabilities"], wanted["probabilities"])
    other = predicted(f"split --method {method} --task 0/1 --inputs {file}", "o.npz")
    assert not np.array_equal(other["probabilities"], wanted["probabilities"]), "by another head"


def test_numbers_of_any_kind_are_inputs_and_no_data_is_needed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("data was loaded")

    monkeypatch.setattr(loading, "read_dataset", never)
    x = np.random.default_rng(0).uniform(0, 1, (7, 8, 8))
    made = {}
    for kind in ("float64", "float32", "float16", ">f4", ">f8", "longdouble"):
        name = kind.replace(">", "big-")
        np.save(f"{name}.npy", x.astype("float16").astype(kind))
        made[kind] = predicted(f"split --task 0/1 --inputs {name}.npy", f"{name}.npz")["probabilities"]
        assert made[kind].shape == (2, 7, 2)
        assert np.array_equal(made[kind], made["float64"])
    for kind in ("int64", "uint16", ">i4", "int8"):
        name = kind.replace(">", "big-")
        np.save(f"{name}.npy", np.asfortranarray(np.arange(128).reshape(2, 8, 8).astype(kind)))
        made[kind] = predicted(f"split --task 0/1 --inputs {name}.npy", f"{name}.npz")["probabilities"]
        assert np.array_equal(made[kind], made["int64"])
    np.save("pixels.npy", np.arange(128).reshape(2, 8, 8).astype(np.uint8))
    assert np.array_equal(
        predicted("split --task 0/1 --inputs pixels.npy", "pixels.npz")["probabilities"], made["int64"]
    )
    np.save("scaled.npy", np.arange(128).reshape(2, 8, 8) / 255)
    assert np.allclose(predicted("split --task 0/1 --inputs scaled.npy", "scaled.npz")["probabilities"], made["int64"])
    for values, span in ((np.arange(128.0), "0.0 to 127.0"), (np.arange(128) + 200, "200 to 327")):
        np.save("wrong.npy", values.reshape(2, 8, 8))
        said = fault("predict split --task 0/1 --inputs wrong.npy --out wrong.npz")
        assert f"numbers from {span}; the network learned pixels" in said
    np.save("one.npy", np.full((1, 1), 0.5, ">f8"))
    assert predicted("sine --task 'interval 2' --inputs one.npy", "one.npz")["mean"].shape == (2, 1, 1)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((3, 63)), "x.npy holds float64 (3, 63); give numbers of shape (N, 8, 8)."),
        (np.zeros((3, 64)), "x.npy holds float64 (3, 64); give numbers of shape (N, 8, 8)."),
        (np.zeros(64), "x.npy holds float64 (64,); give numbers of shape (N, 8, 8)."),
        (np.zeros(()), "x.npy holds float64 (); give numbers of shape (N, 8, 8)."),
        (np.zeros((0, 8, 8)), "x.npy holds float64 (0, 8, 8); give numbers of shape (N, 8, 8)."),
        (np.full((2, 8, 8), np.nan), "x.npy holds numbers that are not finite; give finite ones."),
        (np.full((2, 8, 8), np.inf), "x.npy holds numbers that are not finite; give finite ones."),
        (np.full((2, 8, 8), 1e300), "x.npy holds numbers that are not finite; give finite ones."),
        (np.full((2, 8, 8), "a"), "x.npy holds <U1 (2, 8, 8); give numbers of shape (N, 8, 8)."),
        (np.zeros((2, 8, 8), complex), "x.npy holds complex128 (2, 8, 8); give numbers of shape (N, 8, 8)."),
        (np.zeros((2, 8, 8), bool), "x.npy holds bool (2, 8, 8); give numbers of shape (N, 8, 8)."),
        (np.array([[[{"a": 1}] * 8] * 8]), "x.npy cannot be read ("),
    ],
)
def test_inputs_that_cannot_be(runs: Path, array: NDArray[Any], said: str) -> None:
    before = files_under(runs)
    np.save("x.npy", array)
    told = fault("predict split --task 0/1 --inputs x.npy")
    assert told.startswith(f"--inputs {said}")
    assert "\n" not in told
    assert {name for name in files_under(runs) if name not in before} == {"x.npy"}


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY", b"PK\x03\x04 no archive", None, "folder", "empty"])
def test_inputs_that_are_no_arrays(runs: Path, content: bytes | str | None) -> None:
    if content == "folder":
        Path("x.npy").mkdir()
    elif content == "empty":
        np.savez("x.npz")
        Path("x.npz").rename("x.npy")
    elif isinstance(content, bytes):
        Path("x.npy").write_bytes(content)
    told = fault("predict split --task 0/1 --inputs x.npy")
    assert told.startswith("--inputs x.npy cannot be read (")
    assert told.endswith("; give an npy file, or an npz with an array x.")
    assert "\n" not in told
    assert not Path("predictions.npz").exists()


def test_a_pickle_is_never_opened(runs: Path) -> None:
    np.save("x.npy", np.array([Opened()], dtype=object), allow_pickle=True)
    assert fault("predict split --task 0/1 --inputs x.npy").startswith("--inputs x.npy cannot be read (")
    np.savez("y.npz", x=np.array([Opened()], dtype=object))
    assert fault("predict split --task 0/1 --inputs y.npz").startswith("--inputs y.npz cannot be read (")
    assert not Path("opened").exists()


class Opened:
    """Leaves a trace when somebody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("opened"),)


# What is wrong.


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("split --task 0/2", "unknown task '0/2': did you mean '0/1'? Accepted: 0/1, 2/3."),
        ("split --task 4/5", "unknown task '4/5'; accepted: "),
        ("split --task 0/1 --method lp", "unknown method 'lp'; accepted: "),
        ("split --task 0/1 --method vlc", "unknown method 'vlc': did you mean 'vcl'?"),
        ("split --task 0/1 --out p.txt", "--out is p.txt; give a name that ends in .npz or .csv."),
        ("split --task 0/1 --out split", "--out is split; give a name that ends in .npz or .csv."),
        ("split --task 0/1 --out no/p.npz", "--out is no/p.npz, but no is not a folder; give a file in a folder that"),
        ("nowhere --task 0/1", "nowhere holds no finished part; give a folder that `vcl run` made, and finish it"),
        (
            "generators --task 0",
            "generative-digits keeps decoders alone, and predictions need the encoders too; `vcl sample` draws from",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(runs: Path, line: str, said: str) -> None:
    before = files_under(runs)
    told = fault(f"predict {line}")
    assert told.startswith(said)
    assert "\n" not in told
    assert files_under(runs) == before


def test_no_task_is_a_usage_error(runs: Path) -> None:
    assert call("predict split").exit_code == 2


def test_other_data_than_it_learned_from_are_refused(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load("digits")
    altered = digits._replace(test_x=digits.test_x + 1)
    monkeypatch.setattr(loading, "read_dataset", lambda *_, **__: altered)
    part = part_folder(Path("split"), "split-digits-vcl")
    assert fault("predict split --task 0/1") == (
        f"digits here is not the data that {part.name} was computed with; give that with --data, or your own inputs "
        "with --inputs."
    )


def test_of_several_parts_of_a_method_one_must_be_named(runs: Path) -> None:
    smoke = "--preset smoke --device cpu --set predictive=per-head --out split"
    done(f"run split-digits --method vcl,vcl-random --seeds 3 {smoke}")
    assert predicted("split --method vcl --task 0/1", "both.npz")["seeds"].tolist() == [0, 1, 2], "of both stacks"
    folders = sorted((runs / "split" / "parts").glob("split-digits-vcl-[0-9a-f]*"))
    seeds = [predicted(f"{folder} --task 0/1", f"{folder.name}.npz")["seeds"].tolist() for folder in folders]
    assert sorted(seeds) == [[0, 1], [2]]
    done("run split-digits --method vcl --seeds 1 --set epochs=3 --preset smoke --device cpu --out split")
    said = fault("predict split --task 0/1")
    assert said.startswith(
        "split holds several parts of vcl; give the label or the folder of one: 'vcl' of split-digits in "
    ), "vcl does not use predictive, which was given"
    assert "'vcl epochs=3' of split-digits in " in said
    assert predicted("split --method vcl --task 0/1", "plain.npz")["seeds"].tolist() == [0, 1, 2]
    assert predicted("split --method 'vcl epochs=3' --task 0/1", "other.npz")["seeds"].tolist() == [0]


def test_a_run_that_two_processes_computed_is_predicted_once() -> None:
    def of(seeds: tuple[int, ...], lambdas: tuple[float, ...] = ()) -> saved.Predictions:
        values = np.array([[[10.0 * seed]] for seed in seeds])
        return saved.Predictions(seeds, {"probabilities": values}, np.array([1]), lambdas)

    both = saved.joined([of((0, 1, 2)), of((1, 0)), of((3,))])
    assert both.seeds == (0, 1, 2, 3)
    assert both.arrays["probabilities"].ravel().tolist() == [0, 10, 20, 30]
    grid = saved.joined([of((0, 0), (1.0, 2.0)), of((0, 0), (2.0, 3.0))])
    assert (grid.seeds, grid.lambdas) == ((0, 0, 0), (1.0, 2.0, 3.0))


@pytest.mark.parametrize("likelihood", [Normal(0.1), Poisson(), HeteroscedasticNormal()])
def test_numbers_have_moments_and_no_probabilities(likelihood: Any) -> None:
    output = torch.tensor([[[0.3, 0.2]]])
    found = saved.arrays_of(likelihood.expectation(output), likelihood)
    mean, var = likelihood.moments_of(output)
    assert list(found) == ["mean", "sd"]
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["sd"], var.sqrt(), rtol=1e-4)
    assert list(saved.arrays_of(output, Categorical())) == ["probabilities"]


def test_a_task_or_the_experiment_says_which_part_is_meant(runs: Path) -> None:
    smoke = "--preset smoke --device cpu --seeds 1 --out both"
    done(f"run split-digits --method mle {smoke}")
    done(f"run permuted-digits --method mle {smoke}")
    found = {task: saved.find(Path("both"), "mle", task)[0].name for task in ("0/1", "permutation 1")}
    assert found == {"0/1": "split-digits", "permutation 1": "permuted-digits"}
    assert saved.find(Path("both"), "mle", "", "permuted-digits")[0].name == "permuted-digits"
    said = fault("predict both --task nowhere")
    assert "both holds several parts of mle; give --experiment, the label or the folder of one: 'mle' of spl" in said
    assert "'mle' of permuted-digits in both/parts/permuted-digits-mle-" in said
    assert "unknown experiment 'sine'" in fault("predict both --task 0/1 --experiment sine")
    assert predicted("both --task 'permutation 1' --experiment permuted-digits")["seeds"].tolist() == [0]


# Files that were altered.


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("network", "hidden"), [17]),
        (("network", "hidden"), [10**9]),
        (("network", "hidden"), []),
        (("network", "hidden"), "x"),
        (("network",), []),
        (("stream",), {"tasks": "many"}),
        (("stream", "tasks"), 0),
        (("prediction", "settings", "predict_draws"), 0),
        (("prediction", "settings", "predict_draws"), "x"),
        (("prediction",), {}),
        (("prediction", "settings"), {"unheard": 1}),
    ],
)
def test_a_record_of_another_run(runs: Path, keys: tuple[str, ...], value: Any) -> None:
    path = without_checksums(part_folder(Path("split"), "split-digits-vcl")) / "part.json"
    about = json.loads(path.read_text())
    place = about["description"]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(about))
    said = fault("predict split --task 0/1")
    assert said.startswith(str(path.parent))
    assert said.endswith("; delete its folder and run it again.")
    assert "\n" not in said
    assert not Path("predictions.npz").exists()


def test_every_tensor_of_the_networks(runs: Path) -> None:
    path = part_folder(Path("split"), "split-digits-vcl") / "predictive.safetensors"
    content = path.read_bytes()
    tensors = load_tensors(content)
    for name in [name for name in tensors if name != "about"]:
        for other in (tensors[name][:1], tensors[name][..., :-1], tensors[name].double(), tensors[name] * torch.nan):
            path.write_bytes(save_tensors({**tensors, name: other.contiguous()}))
            said = fault("predict split --task 0/1")
            assert said.startswith(f"{path} cannot be read (")
            assert said.endswith("; delete its folder and run it again.")
    for other in (content[:-5], b"", b"text"):
        path.write_bytes(other)
        assert fault("predict split --task 0/1").startswith(f"{path} cannot be read (")
    path.unlink()
    assert fault("predict split --task 0/1").startswith(f"{path} cannot be read (")
    shutil.copy(part_folder(Path("split"), "split-digits-mle") / "predictive.safetensors", path)
    assert "it belongs to another part" in fault("predict split --task 0/1")
    without_checksums(Path("split"))
    assert call("predict split --task 0/1").exit_code == 0, "a point is a belief too"
