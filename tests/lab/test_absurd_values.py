"""Every number on the command line at values that nobody can mean: an answer in seconds, in one sentence or a run."""

from __future__ import annotations

import re
from pathlib import Path
from time import perf_counter

import pytest
from lab_made import alone, among_digits, call, fault, images

from vcl.errors import VclError
from vcl.lab import compute, learning, memory
from vcl.lab.experiments.experiment import PARTS
from vcl.lab.memory import amount, available, check_listed, check_memory
from vcl.lab.paper import reproduce
from vcl.lab.plan import make_plan
from vcl.lab.registry import experiment, methods
from vcl.lab.settings import settings_in

ABSURD = (10**9, 10**20, 0, -1, "nan", "inf", "1e300", "", "9" * 5000)
SECONDS = 60
"""Of patience with a busy machine; each takes well below one."""

UPPER_LIMITS = ("batch", "coreset_batch", "train_limit", "test_limit", "fisher_samples", "filter_batch", "lam", "lr")
"""Settings of which a billion means all that there is, or is merely large."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def numeric(name: str) -> list[tuple[str, str]]:
    """Every number that can be set, of the shared parts and of all methods, with the first method that has it."""
    found: dict[str, str] = {}
    chosen = experiment(name)
    shared = [(type(getattr(chosen.presets["smoke"], part)), "vcl") for part in PARTS]
    for kind, method in (*shared, *((entry.settings, entry.name) for entry in methods(chosen.models).values())):
        for setting in settings_in(kind).values():
            if re.search(r"\b(int|float)\b", str(setting.kind)):
                found.setdefault(setting.name, method)
    return list(found.items())


def every_setting() -> list[tuple[str, str, str]]:
    """The experiment, the method and the setting; of our other experiments, what they alone have."""
    whole = [(name, method, key) for name in ("split-digits", "generative-digits") for key, method in numeric(name)]
    seen = {key for name, _, key in whole if name == "split-digits"}
    own = [(name, "vcl", key) for name in ("split-mnist-conv", "sine") for key, _ in numeric(name) if key not in seen]
    return [("permuted-digits", "vcl", "tasks"), *whole, *own, ("sine", "vcl", "tasks"), ("sine", "vcl", "hidden")]


def test_every_number_is_looked_at() -> None:
    keys = {(name, key) for name, _, key in every_setting()}
    assert {("sine", "examples"), ("sine", "data_noise"), ("sine", "noise")} < keys
    assert {("split-mnist-conv", "channels"), ("split-mnist-conv", "features"), ("split-digits", "particles")} < keys
    assert len(keys) >= 60


class BegunError(Exception):
    """Training would begin now."""


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: object, **__: object) -> None:
        raise BegunError

    monkeypatch.setattr(learning, "run_method", begin)
    monkeypatch.setattr(compute, "prepare", begin)  # which may train a classifier
    monkeypatch.setattr(reproduce.Reproduction, "_table_item", begin)


def accepted(line: str, folder: Path) -> bool:
    """Whether training would begin; else it must have said one sentence in time. Nothing may be left."""
    began = perf_counter()
    result = call(line)
    assert perf_counter() - began < SECONDS
    assert not list((folder / "out").rglob("rows.csv"))
    if result.exit_code == 2 or isinstance(result.exception, BegunError):  # 2: what is no number at all
        return result.exit_code != 2
    assert isinstance(result.exception, VclError), (line[:200], result.exception)
    said = str(result.exception)
    assert "\n" not in said
    assert said.endswith("."), said
    return False


@pytest.mark.parametrize(("name", "method", "key"), every_setting())
def test_a_setting(here: Path, no_training: None, name: str, method: str, key: str) -> None:
    given = "lambda" if key == "lam" else key
    small = "--set hidden=4" if method == "smc" and key != "hidden" else ""
    small += " --dataset digits" if name == "split-mnist-conv" else ""
    line = f"run {name} --preset smoke --device cpu --method {method} {small}"
    taken = [value for value in ABSURD if accepted(f"{line} --set '{given}={value}' --out out", here)]
    if key not in UPPER_LIMITS:
        assert [value for value in taken if value != 0] == []


@pytest.mark.parametrize(
    ("name", "method", "keys"),
    [
        ("split-digits", "vcl-random", ["batch", "coreset_batch", "train_limit", "test_limit"]),
        ("split-digits", "ewc", ["fisher_samples"]),
        ("generative-digits", "ewc", ["batch", "train_limit", "test_limit", "fisher_samples"]),
    ],
)
def test_a_limit_far_above_what_there_is_is_none(here: Path, name: str, method: str, keys: list[str]) -> None:
    for value in (10**9, "none"):
        sets = " ".join(f"--set {key}={value}" for key in keys)
        result = call(f"run {name} --preset smoke --seeds 1 --device cpu --method {method} {sets} --out {value}")
        assert result.exit_code == 0, result.exception
    assert (here / str(10**9) / name / "rows.csv").read_bytes() == (here / "none" / name / "rows.csv").read_bytes()


@pytest.mark.parametrize("value", ABSURD)
@pytest.mark.parametrize(
    "line",
    [
        "run split-digits --preset smoke --device cpu --method mle --out out --seeds",
        "run split-digits --preset smoke --device cpu --method mle --out out --jobs",
        "run split-digits --preset smoke --device cpu --method ewc --out out --grid",
        "sweep split-digits --preset smoke --device cpu --grid lambda=1 --out out --seeds",
        "sweep split-digits --preset smoke --device cpu --grid lambda=1 --out out --validation",
        "paper toy2d --preset smoke --device cpu --out paper --seeds",
        "paper toy2d --preset smoke --device cpu --out paper --jobs",
        "sample nowhere --task 0 --count",
    ],
)
def test_an_option(here: Path, no_training: None, line: str, value: object) -> None:
    accepted(f"{line} '{value}'", here)


def test_samples(here: Path) -> None:
    assert call("run generative-digits --preset smoke --device cpu --method naive --out out").exit_code == 0
    for count in (10**4 + 1, 10**9, 10**20):
        said = fault(f"sample out --task 0 --count {count}")
        assert said == f"--count is {count}; give at most 10,000, which is what one picture can show."
    for seed in (10**9, 10**20, -1):
        assert call(f"sample out --task 0 --count 1 --seed {seed} --out {seed}.png").exit_code == 0


def test_a_long_grid_is_counted_before_it_is_tried(here: Path) -> None:
    grid = ",".join(str(lam) for lam in range(20_000))
    said = fault(f"run split-digits --method ewc --seeds 100 --device cpu --grid lambda={grid} --out out")
    assert "the grid of 20000 lambdas" in said
    assert not (here / "out").exists()


@pytest.mark.parametrize("rest", ["--seeds 1000000000", "--set seeds=1000000000", "--jobs 2 --set draws=1000000000"])
def test_parts_of_the_paper_are_counted_before_they_are_named(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    among_digits(tmp_path_factory.mktemp("paper"), monkeypatch)
    said = fault(f"paper fig4 {rest} --preset smoke --device cpu --out out")
    assert re.search(r" needs about [\d,]+ GB of memory, .* (seeds|draws)=1000000000: give less of that\.$", said)


def test_a_classifier_is_counted_before_it_is_trained(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    among_digits(tmp_path_factory.mktemp("paper"), monkeypatch)
    line = "paper generative-mnist --set classifier_hidden=1000000000 --preset smoke --device cpu --out out"
    for jobs in (1, 2):
        said = fault(f"{line} --jobs {jobs}")
        assert said.endswith("classifier_hidden=1000000000: give less of that.")


# What is counted.


def refused(
    name: str, methods: str, changes: str, monkeypatch: pytest.MonkeyPatch, there: float, examples: int = 60
) -> str:
    monkeypatch.setattr(memory, "available", lambda _: there)
    plan = make_plan(name, methods, "smoke", None, "cpu", changes.split())
    with pytest.raises(VclError) as error:
        check_memory(plan, images(examples))
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "method", "change", "wanted"),
    [
        ("split-digits", "vcl", "seeds=1000000000", "seeds=1000000000"),
        ("split-digits", "vcl", "hidden=1000000000,1000000000", "hidden=1000000000,1000000000"),
        ("split-digits", "vcl", "draws=1000000000", "draws=1000000000"),
        ("split-digits", "vcl", "estimator=weights draws=1000000000", "draws=1000000000"),
        ("permuted-digits", "vcl", "tasks=10000 hidden=2 seeds=40 train_limit=2", "tasks=10000"),
        ("split-digits", "vcl", "draws=2000000 seeds=1 hidden=1", "draws=2000000"),
        ("split-digits", "smc", "particles=1000000000 hidden=4", "particles=1000000000"),
        ("generative-digits", "vcl", "latent=1000000000", "latent=1000000000"),
        ("generative-digits", "vcl", "features=1000000000", "features=1000000000"),
        ("generative-digits", "vcl", "hidden=1000000000 latent=1000000000 features=7", "hidden=1000000000"),
        ("generative-digits", "naive", "draws=1000000000", "draws=1000000000"),
        ("generative-digits", "ewc", "fisher_draws=1000000000", "fisher_draws=1000000000"),
        ("generative-digits", "vcl", "images=1000000000", "images=1000000000"),
        ("generative-digits", "vcl", "classifier_hidden=1000000000", "classifier_hidden=1000000000"),
        ("split-digits", "ewc", "ewc.batch=none hidden=1000000000", "hidden=1000000000"),
        ("split-mnist-conv", "vcl", "channels=100000,100000", "channels=100000,100000"),
        ("split-mnist-conv", "vcl", "features=1000000000", "features=1000000000"),
    ],
)
def test_the_setting_that_takes_the_memory_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, method: str, change: str, wanted: str
) -> None:
    said = refused(name, method, change, monkeypatch, 0.2)
    need = rf"{method} needs about ([\d,.e+]+) GB of memory, and cpu has 0.2 GB"
    found = re.fullmatch(rf"{need}; most of it is for (\S+): give less of that\.", said)
    assert found is not None, said
    assert found[2] == wanted
    assert float(found[1].replace(",", "")) > 0.2


def test_a_batch_of_all_examples_is_named_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused("split-digits", "vcl", "draws=8 seeds=1 hidden=7", monkeypatch, 1e-5, examples=6000)
    assert "batch=none (all 1200 examples at once)" in said


def test_methods_at_once_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("split-digits", "vcl,mle,ewc", "smoke", None, "cpu", [])
    tasks = memory.look(plan, images())
    need = max(memory.gigabytes(plan, entry, tasks, 1) for entry in plan.methods)
    monkeypatch.setattr(memory, "available", lambda _: 1.01 * need)
    check_memory(plan, images())
    with pytest.raises(VclError, match=r"^2 methods at once need about .*; give fewer --jobs\.$"):
        check_memory(plan, images(), 2)
    with pytest.raises(VclError, match=r"^3 methods at once need"):
        check_memory(plan, images(), 10**9)


def test_runs_that_share_their_data_hold_it_once() -> None:
    data = images()
    shared, own = (
        memory.look(plan, data)
        for plan in (make_plan(f"{kind}-digits", "vcl", "smoke", None, "cpu", []) for kind in ("split", "permuted"))
    )
    assert shared.each == (0, 0)
    assert shared.shared == (12 * (64 + 8), 6 * (64 + 8)), "pixels and labels"
    assert own.each == (60 * 64, 30 * 64), "each run has its own permutation of the pixels"
    assert own.shared == (60 * 8, 30 * 8), "and the labels of all"
    assert (shared.own_heads, own.own_heads) == (True, False)


def test_too_many_runs_to_list_are_refused_whatever_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("split-digits", "vcl", "smoke", 10**9, "cpu", [])
    with pytest.raises(VclError, match="most of it is for seeds=1000000000"):
        check_listed(plan, images())
    monkeypatch.setattr(memory, "available", lambda _: 1e30)
    with pytest.raises(VclError, match=r"there are 1,000,000,000 runs at once; give at most 100,000"):
        check_listed(plan, images())
    check_listed(make_plan("split-digits", "vcl", "smoke", 10**5, "cpu", []), images())


def test_what_is_there_is_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    cpu, info, limit = torch.device("cpu"), tmp_path / "meminfo", tmp_path / "memory.max"
    monkeypatch.setattr(memory, "MEMINFO", info)
    monkeypatch.setattr(memory, "LIMIT", limit)
    info.write_text("MemTotal: 9000000 kB\nMemAvailable: 2000000 kB\nSwapFree: 1000000 kB\n")
    assert available(cpu) == 3 * 1.024
    limit.write_text("max\n")
    assert available(cpu) == 3 * 1.024
    limit.write_text("1000000000\n")
    assert available(cpu) == 1.0
    limit.unlink()
    info.write_text("nothing of use")
    assert available(cpu) > 0.1
    assert (amount(0.002), amount(2.34), amount(1234567.8)) == ("0.002 GB", "2.3 GB", "1,234,568 GB")
