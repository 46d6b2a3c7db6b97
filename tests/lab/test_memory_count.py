"""What is counted of memory before a run, beside the peak of the run itself."""

from __future__ import annotations

import re

import pytest
from lab_made import images

from made import most_held
from vcl.errors import VclError
from vcl.lab import memory
from vcl.lab.estimate import check_methods
from vcl.lab.fit_memory import fit_values
from vcl.lab.memory import gigabytes, look
from vcl.lab.plan import Plan, make_plan
from vcl.lab.runner import run_method

SPLIT = "epochs=1 tasks=2 seeds=2 predict_draws=1"
DRAWS = "predict_draws=100 predict_estimator"
CORESET = "batch=64 coreset=100 coreset_epochs=1 coreset_batch=none"
SHAPES = {
    "drawn weights": ("split-digits", "vcl", f"hidden=200 batch=64 {SPLIT}", 1000, 16),
    "the whole task": ("split-digits", "vcl", f"hidden=200,200 batch=none {SPLIT}", 1000, 16),
    "a smaller last batch": ("split-digits", "vcl", f"hidden=200 batch=150 {SPLIT}", 1000, 16),
    "drawn units": ("split-digits", "vcl", f"hidden=200,200 batch=100 estimator=local {SPLIT}", 1000, 16),
    "a wide layer": ("split-digits", "vcl", f"hidden=600 batch=20 draws=1 {SPLIT}", 100, 28),
    "natural gradients": ("split-digits", "vcl-natural", f"hidden=600 batch=20 {SPLIT}", 100, 28),
    "a permutation a run": ("permuted-digits", "vcl", f"hidden=100 batch=100 {SPLIT}", 300, 28),
    "draws for prediction": ("split-digits", "vcl", f"hidden=200 batch=64 {SPLIT} {DRAWS}=weights", 200, 28),
    "units for prediction": ("split-digits", "vcl", f"hidden=200,400 batch=64 {SPLIT} {DRAWS}=local", 200, 28),
    "a coreset": ("permuted-digits", "vcl-random", f"hidden=100 {CORESET} {SPLIT}", 300, 28),
    "a coreset by head": ("split-digits", "vcl-random", f"hidden=100 {CORESET} {SPLIT}", 1000, 16),
    "all data": ("split-digits", "batch-vi", f"hidden=100 batch=none {SPLIT}", 1000, 16),
    "factors": ("split-digits", "lp-kron", "hidden=100 batch=64 epochs=1 tasks=2 seeds=2", 500, 28),
    "factors of a narrow input": ("split-digits", "lp-kron", "hidden=400,400 epochs=1 tasks=2 seeds=3", 500, 8),
    "factors by a variational fit": ("split-digits", "vcl-kron", f"hidden=100 batch=64 {SPLIT}", 500, 28),
    "a point": ("split-digits", "mle", "hidden=300,300 batch=64 epochs=1 tasks=2 seeds=2", 500, 28),
    "a quadratic": ("split-digits", "ewc", "hidden=300,300 batch=64 epochs=1 tasks=2 seeds=2", 500, 28),
}


def plan(name: str, method: str, changes: str) -> Plan:
    return make_plan(name, method, "smoke", None, "cpu", changes.split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_count_is_near_the_peak(shape: str) -> None:
    name, method, changes, examples, side = SHAPES[shape]
    made, data = plan(name, method, changes), images(examples, 100, side)
    (entry,) = made.methods
    counted = gigabytes(made, entry, look(made, data), 1)
    most = most_held(lambda: list(run_method(made, entry, made.runs(entry), data))) / 1e9
    assert 0.7 < counted / most < 1.4, f"{counted / most:.2f}"


def test_a_coreset_is_counted_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda _: 16.0)
    data = images(600, 100, 28)
    changes = ["coreset=59999", "coreset_batch=none", "draws=1000"]
    said = (
        r"^vcl-random needs about [\d,]+ GB of memory, and cpu has 16 GB; most of it is for (.*): give less of that\.$"
    )
    with pytest.raises(VclError) as error:
        check_methods(make_plan("split-mnist", "vcl-random", "quick", None, "cpu", changes), data)
    found = re.match(said, str(error.value))
    assert found is not None, error.value
    assert found[1] in ("coreset=59999", "coreset_batch=none (all points at once)")
    # A coreset that no method keeps is not counted.
    check_methods(make_plan("split-mnist", "vcl", "quick", None, "cpu", changes[:2]), data)


@pytest.mark.parametrize("method", ["vcl", "mle"])
def test_on_a_gpu_all_runs_are_held_at_once(method: str) -> None:
    made = plan("split-digits", method, "hidden=50 batch=none draws=10")
    (entry,) = made.methods
    model, project = made.model((8, 8)), made.build(entry).project

    def counted(runs: int, triton: bool) -> int:
        return fit_values(project, model, {"h": 2}, triton, runs, 100)

    assert counted(5, True) == 5 * counted(1, True)
    assert counted(5, False) < 5 * counted(1, False)
