"""Files of ours that somebody altered: still JSON, CSV and tensors, but not what was written. Never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import alone, among_digits, call, fault, images, part_folder, without_checksums
from rich.console import Console
from safetensors.torch import load, save
from torch import Tensor

from vcl.errors import VclError
from vcl.lab import compute, learning, saved
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan, make_plan
from vcl.lab.registry import experiment
from vcl.lab.runner import FinishedTask, run_method
from vcl.lab.show import groups
from vcl.lab.store import PICTURES, PREDICTIVE, ROWS, STATE, Store

WRONG: tuple[Any, ...] = (None, True, -1, 0, 10**20, 2.5, float("nan"), "", "x", [], ["x"], [[]], {}, {"x": 1})
"""Values of every kind; one or the other is right for some keys."""

FEW = (None, True, -1, "x", [], {})


def altered(value: Any, wrongs: tuple[Any, ...] = WRONG) -> Iterator[tuple[str, Any]]:
    """An object of JSON with each value in it, however deep, left out or replaced by something else."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for wrong in (*wrongs, "left out"):
            if isinstance(wrong, str) and wrong == "left out":
                other = deepcopy(value)
                del other[key]
                yield f"{key} left out", other
            elif type(wrong) is not type(value[key]) or wrong != value[key]:
                other = deepcopy(value)
                other[key] = wrong
                yield f"{key}={wrong!r}", other
        for what, inner in altered(value[key], wrongs):
            other = deepcopy(value)
            other[key] = inner
            yield f"{key}: {what}", other


def tensors_altered(tensors: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Tensors with each of them left out, of another shape or dtype, or not finite; and one too many."""
    for name, value in tensors.items():
        yield f"{name} left out", {key: part for key, part in tensors.items() if key != name}
        changes: dict[str, Tensor] = {
            "shorter": value[..., :-1],
            "one run more": torch.cat([value, value[:1]]),
            "flat": value.flatten() if value.dim() > 1 else value[None],
            "empty": value[:0],
            "another dtype": value.double() if value.dtype != torch.float64 else value.float(),
            "whole numbers": value.nan_to_num(neginf=-5).to(torch.int32),
        }
        if value.is_floating_point():
            for number in (float("nan"), float("inf")):
                changes[str(number)] = value.clone()
                changes[str(number)].view(-1)[-1] = number
        for what, part in changes.items():
            yield f"{name} {what}", {**tensors, name: part.contiguous()}
    yield "one too many", {**tensors, "more": torch.zeros(2)}
    yield "none", {}


def answer(read: Callable[[], object], path: Path) -> str | None:
    """What it says of a file; None if it finds nothing wrong."""
    try:
        read()
    except VclError as error:
        said = str(error)
        assert str(path.parent) in said
        assert "\n" not in said
        assert said.endswith(("run it again.", "to compute it anew.", "that `vcl run` made.", ".")), said
        return said
    return None


# Generators of a finished run.


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("story"), monkeypatch)
        line = "run generative-digits --preset smoke --device cpu --method vcl,naive --out out"
        assert call(line).exit_code == 0
    return without_checksums(here / "out")


@pytest.fixture
def out(story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = alone(tmp_path, monkeypatch)
    shutil.copytree(story, here / "out")
    return here / "out"


def drawn(out: Path, method: str = "vcl") -> Tensor:
    return saved.images(saved.read(record(out, method).parent, None), "0", 2, 0)


def record(out: Path, method: str = "vcl") -> Path:
    return part_folder(out, f"generative-digits-{method}") / "part.json"


def test_every_value_of_a_parts_record(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read for samples, and for tables: one sentence, or the same as before."""
    chosen, made = experiment("generative-digits"), dict[Any, Any]()

    def model(network: Any, shape: tuple[int, ...]) -> Any:
        """The model, made once for each network: most alterations are of something else."""
        place = network, shape, torch.get_default_device().type
        if place not in made:
            made[place] = chosen.model(network, shape)
        return made[place]

    monkeypatch.setattr("vcl.lab.store.experiments", lambda: {chosen.name: chosen._replace(model=model)})
    path = record(out)
    about, right = json.loads(path.read_text()), drawn(out)
    about["defaults"] = about["defaults"][:2]  # one is as good as another
    refused, found = dict[str, str](), list[Tensor]()
    store = Store(out, torch.device("cpu"), "")
    for what, other in altered(about):
        path.write_text(json.dumps(other))
        found.clear()
        said = answer(lambda: found.append(drawn(out)), path)
        if said is None:
            assert found[-1].shape == right.shape, what
        else:
            refused[what] = said
        answer(lambda: groups(store, Console(file=StringIO())), path)  # it may be another group, but never a traceback
    network = [f"description: network: {key}" for key in ("hidden", "latent", "features", "private")]
    for key in ("experiment", "method", "shape", "runs", "tasks", "finished", "seconds", "description", *network):
        for wrong in ("left out", "=None", "=-1", "=[]", "='x'"):
            what = f"{key} {wrong}" if wrong == "left out" else f"{key}{wrong}"
            if what not in ("tasks=[]", "description: network: private left out"):
                assert what in refused, what
    assert "runs: 1: 1=-1" not in refused, "any number is a seed"
    assert "runs: 1 left out" not in refused, "the first run is kept"
    assert all(str(out) in said for said in refused.values())
    unused = ("written", "origin")
    assert [what for what in refused if what.startswith(unused)] == [], "nothing hangs on these"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden": 9}, "it is of another network than part.json says"),
        ({"latent": 10**9}, "it is of another network than part.json says"),
        ({"private": "upper"}, "it is of another network than part.json says"),
        ({"hidden": 0}, "hidden is 0; give at least"),
        ({"prior_var": 1e300}, "prior_var is 1e+300; give a number from"),
        ({"hidden": "many"}, "hidden is 'many'"),
        ({"breadth": 3}, "['breadth'] are no settings of this version"),
    ],
)
def test_a_record_of_another_run(out: Path, change: dict[str, Any], said: str) -> None:
    path = record(out)
    about = json.loads(path.read_text())
    about["description"]["network"] |= change
    path.write_text(json.dumps(about))
    told = fault("sample out --task 0 --method vcl --out grid.png")
    assert said in told
    assert told.startswith("out/")
    assert told.endswith("; delete its folder and run it again.")
    assert not Path("grid.png").exists()


@pytest.mark.parametrize("shape", [[64], [8, 9], [4, 4], [0, 8], [8, 8, 1], [], "88", 8])
def test_a_shape_that_is_not_that_of_the_images(out: Path, shape: Any) -> None:
    path = record(out)
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "shape": shape}))
    told = fault("sample out --task 0 --method vcl")
    assert told.startswith("out/")
    assert told.endswith("; delete its folder and run it again.")


@pytest.mark.parametrize("method", ["vcl", "naive"])
def test_every_tensor_of_the_generators(out: Path, method: str) -> None:
    path = record(out, method).with_name(PREDICTIVE)
    tensors = load(path.read_bytes())
    for what, other in tensors_altered({name: value for name, value in tensors.items() if name != "about"}):
        path.write_bytes(save({**other, "about": tensors["about"]}))
        said = answer(lambda: drawn(out, method), path)
        assert said is not None, what
        assert str(path) in said


def as_tensor(about: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)


@pytest.mark.parametrize("method", ["vcl", "naive"])
def test_every_word_about_the_generators(out: Path, method: str) -> None:
    path = record(out, method).with_name(PREDICTIVE)
    tensors = load(path.read_bytes())
    about, right = json.loads(bytes(tensors.pop("about").numpy())), drawn(out, method)
    harmless = 0
    for what, other in altered(about, FEW):
        path.write_bytes(save({**tensors, "about": as_tensor(other)}))
        if answer(lambda: drawn(out, method), path) is None:
            harmless += 1
            assert torch.equal(drawn(out, method), right), what
    assert harmless < 5, "other numbers of tasks, say"
    for junk in (torch.zeros(0, dtype=torch.uint8), torch.arange(9, dtype=torch.uint8), torch.zeros(3), as_tensor([])):
        path.write_bytes(save({**tensors, "about": junk}))
        assert answer(lambda: drawn(out, method), path) is not None


def test_weights_that_are_no_numbers_draw_nothing(out: Path) -> None:
    path = record(Path("out")).with_name(PREDICTIVE)
    tensors = load(path.read_bytes())
    tensors["belief.0.mean"][0, 3] = float("nan")
    path.write_bytes(save(tensors))
    said = fault("sample out --task 0 --method vcl --out grid.png")
    assert said == (
        f"{path} cannot be read (belief.0.mean holds numbers that are not finite); delete its folder and run it again."
    )
    assert not Path("grid.png").exists()


def test_the_generators_of_another_method_are_as_good(out: Path) -> None:
    """A point is a belief too; what matters is that the network is the same."""
    shutil.copy(record(out, "naive").with_name(PREDICTIVE), record(out, "vcl").with_name(PREDICTIVE))
    assert drawn(out, "vcl").shape == (2, 8, 8)


# Parts that are computed, continued or read.

ARRAYS = images(train=120, test=40)
DATA = Loaded(ARRAYS, "made up", ARRAYS.digest())
GENERATIVE = (
    "epochs=1",
    "ll_draws=2",
    "images=3",
    "classifier_hidden=4",
    "classifier_epochs=1",
    "hidden=3",
    "coreset=2",
)
CLASSIFYING = ("train_limit=60", "test_limit=20", "hidden=4", "coreset=5")


def plan(name: str) -> Plan:
    small = GENERATIVE if name.startswith("generative") else CLASSIFYING
    return make_plan(name, "vcl-random", "smoke", 2, "cpu", ("tasks=3", *small))


def taken(folder: Path, name: str) -> list[Any]:
    """What is taken from a part, which is computed, continued or read."""
    asked = plan(name)
    part, store = Part(asked, asked.methods[0], DATA), Store(folder, torch.device("cpu"), "vcl paper test")
    return list(compute.compute(part, store, Console(file=StringIO())))


@pytest.fixture(scope="module", params=["permuted-digits", "generative-digits"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """A finished part of each kind, and one that was stopped after its second task."""
    name, base = request.param, tmp_path_factory.mktemp("parts")

    def stopped(*args: Any) -> Iterator[FinishedTask]:
        for done in run_method(*args):
            yield done
            if done.number == 2:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as monkeypatch:
        alone(base, monkeypatch)
        taken(base / "whole", name)
        monkeypatch.setattr(learning, "run_method", stopped)
        with pytest.raises(KeyboardInterrupt):
            taken(base / "half", name)
    without_checksums(base)
    return name, base / "whole", base / "half"


class BegunError(Exception):
    """It goes on from what is in the files."""


def never(*_: object) -> Iterator[FinishedTask]:
    raise BegunError
    yield


def each_refused(source: Path, folder: Path, file: str, contents: Iterator[tuple[str, bytes]], name: str) -> set[str]:
    """Every content of a file that is refused, by name; the others must be taken for what they are."""
    refused = set()
    shutil.copytree(source, folder)
    path = part_folder(folder, f"{name}-vcl-random") / file
    before = path.read_bytes()
    for what, content in contents:
        path.write_bytes(content)
        try:
            said = answer(lambda: taken(folder, name), path)
        except BegunError:
            said = None
        if said is not None:
            assert str(path) in said
            assert said.endswith("; delete its folder to compute it anew."), said
            refused.add(what)
    path.write_bytes(before)
    return refused


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "run_method", never)


def test_the_record_of_a_part(parts: tuple[str, Path, Path], tmp_path: Path, untouched: None) -> None:
    name, whole, _ = parts
    path = part_folder(whole, f"{name}-vcl-random") / "part.json"
    known = json.loads(path.read_text())
    flat = {key: value for key, value in known.items() if key in ("finished", "seconds", "notes")}
    contents = [(what, {**known, **other}) for what, other in altered(flat) if "left out" not in what]
    contents += [(f"{key} left out", {k: v for k, v in known.items() if k != key}) for key in flat]
    contents = [(what, other) for what, other in contents if other.get("finished") is not False]
    encoded = ((what, json.dumps(other).encode()) for what, other in contents)
    refused = each_refused(whole, tmp_path / "parts", "part.json", encoded, name)
    for key in ("finished", "seconds"):
        assert {f"{key} left out", f"{key}=None", f"{key}='x'", f"{key}=[]", f"{key}=2.5"} - refused <= {"seconds=2.5"}
    assert {"seconds=-1", "seconds=nan", "seconds=True", "notes='x'", "notes=None", "notes=[[]]"} <= refused
    junk = (("no JSON", b"{"), ("a list", b"[]"), ("a number", b"3"), ("bytes", b"\xff\xfe"), ("deep", b"[" * 100_000))
    assert len(each_refused(whole, tmp_path / "again", "part.json", iter(junk), name)) == len(junk)


def test_the_rows_of_a_part(parts: tuple[str, Path, Path], tmp_path: Path, untouched: None) -> None:
    name, whole, _ = parts
    path = part_folder(whole, f"{name}-vcl-random") / ROWS
    head, *lines = path.read_text().splitlines()
    method, seed, after, on, metric, value = lines[-1].split(",")
    changes = {
        "no file's content": [],
        "no rows": [head],
        "no head": lines,
        "a row missing": [head, *lines[:-1]],
        "a row twice": [head, *lines, lines[0]],
        "another method": [head, *lines[:-1], ",".join(("mle", seed, after, on, metric, value))],
        "another seed": [head, *lines[:-1], ",".join((method, "7", after, on, metric, value))],
        "a task that is not there": [head, *lines, ",".join((method, seed, "3", "9", metric, value))],
        "a task before the first": [head, *lines, ",".join((method, seed, "0", "-1", metric, value))],
        "another metric once": [head, *lines, ",".join((method, seed, after, on, "beauty", value))],
        "no number": [head, *lines[:-1], ",".join((method, seed, after, on, metric, "high"))],
        "an infinite number": [head, *lines[:-1], ",".join((method, seed, after, on, metric, "1e999"))],
        "not a number": [head, *lines[:-1], ",".join((method, seed, after, on, metric, "nan"))],
        "a column too few": [head, *lines[:-1], ",".join((method, seed, after, on, metric))],
        "a huge number": [head, *lines[:-1], ",".join((method, "9" * 5000, after, on, metric, value))],
        "a huge word": [head, *lines[:-1], "x" * 200_000],
    }
    contents = ((what, ("\n".join(text) + "\n").encode()) for what, text in changes.items())
    assert each_refused(whole, tmp_path / "parts", ROWS, contents, name) == set(changes)
    assert each_refused(whole, tmp_path / "again", ROWS, iter([("bytes", b"\xff\xfe\x00")]), name) == {"bytes"}


def test_the_state_of_a_part(parts: tuple[str, Path, Path], tmp_path: Path, untouched: None) -> None:
    name, _, half = parts
    path = part_folder(half, f"{name}-vcl-random") / STATE
    tensors = load(path.read_bytes())
    about = json.loads(bytes(tensors.pop("about").numpy()))
    changed = {what: save({**other, "about": as_tensor(about)}) for what, other in tensors_altered(tensors)}
    words = {what: save({**tensors, "about": as_tensor(other)}) for what, other in few(altered(about, FEW))}
    refused = each_refused(half, tmp_path / "parts", STATE, iter(changed.items()), name)
    assert refused == set(changed)
    taken = set(words) - each_refused(half, tmp_path / "words", STATE, iter(words.items()), name)
    # What a task of the coreset is called, or which of two beliefs predicts, may be anything; and the fingerprint of
    # the network, which older states have not, may be missing.
    free = ("sources: ", "predictive: ", "fingerprint left out")
    assert {what for what in taken if not what.startswith(free)} == set()


def few(found: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Those that are not the shapes and names of single parameters, of which there are many alike."""
    return ((what, other) for what, other in found if "layout: " not in what)


def test_the_pictures_of_a_part(parts: tuple[str, Path, Path], tmp_path: Path, untouched: None) -> None:
    name, whole, _ = parts
    if not name.startswith("generative"):
        assert not list(whole.glob(f"parts/*/{PICTURES}"))
        return
    path = part_folder(whole, f"{name}-vcl-random") / PICTURES
    changed = {what: save(other) for what, other in tensors_altered(load(path.read_bytes()))}
    changed |= {"no tensors": b"{}", "cut": path.read_bytes()[:-3]}
    refused = each_refused(whole, tmp_path / "parts", PICTURES, iter(changed.items()), name)
    assert refused == set(changed)


@pytest.mark.parametrize("file", ["objective.csv", "fits.csv", "calibration.csv"])
def test_what_fits_reported(parts: tuple[str, Path, Path], tmp_path: Path, untouched: None, file: str) -> None:
    name, _, half = parts
    shutil.copytree(half, tmp_path / "parts")
    path = part_folder(tmp_path / "parts", f"{name}-vcl-random") / file
    path.write_text("a,b\n1,2\n")
    with pytest.raises(VclError) as told:
        taken(tmp_path / "parts", name)
    fault_of = "its columns are ['a', 'b']"
    assert str(told.value) == f"{path} cannot be read ({fault_of}); delete its folder to compute it anew."


# From the command line.


@pytest.mark.parametrize("content", ["", "x", '"' * 200_000])
def test_the_table_of_an_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    here = alone(tmp_path, monkeypatch)
    line = "paper toy2d --preset smoke --device cpu --out out"
    (here / "out").mkdir()
    if not TOY2D:
        assert call(line).exit_code == 0
        files = [path for path in (here / "out").rglob("*") if path.is_file()]
        TOY2D.update({path.relative_to(here / "out"): path.read_bytes() for path in files})
    for name, kept in TOY2D.items():
        (here / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "out" / name).write_bytes(kept)
    (path,) = (here / "out").glob("parts/*/table.csv")
    whole = path.read_text()
    for text in (content, whole.splitlines()[0] + "\n" + content, whole[: len(whole) // 2]):
        path.write_text(text)
        result = call(line)
        assert result.exit_code == 0 or isinstance(result.exception, VclError), result.exception
        if result.exit_code:
            assert str(result.exception).endswith("; delete its folder to compute it anew.")
    path.write_text(whole)
    for name in ("table.csv", "claims.csv"):
        before = (here / "out" / name).read_bytes()
        (here / "out" / name).write_text(f"item,seeds\n{content}\n")
        if content:
            assert fault(line).endswith("; delete it and run all items again.")
        (here / "out" / name).write_bytes(before)


TOY2D: dict[Path, bytes] = {}
"""The files of one run of an item."""


def test_a_damaged_part_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = among_digits(tmp_path, monkeypatch)
    line = "paper fig5 --preset smoke --device cpu --out out --set epochs=1 --set coreset_epochs=1"
    assert call(line).exit_code == 0
    path = min((without_checksums(here / "out")).glob("parts/*/rows.csv"))
    path.write_text(path.read_text().rpartition("\n")[0].rpartition("\n")[0] + "\n")
    said = fault(line)
    assert said.startswith(f"{path.relative_to(here)} cannot be read (")
    assert said.endswith(" are missing); delete its folder to compute it anew.")
    shutil.rmtree(path.parent)
    assert call(line).exit_code == 0
