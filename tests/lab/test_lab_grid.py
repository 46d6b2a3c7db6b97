"""Grids of lambda and settings of each method: what a plan makes of them, and that a stack of them is many runs."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from lab_made import graded, images
from rich.console import Console

from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.lab.datasets import load
from vcl.lab.estimate import PlannedFit
from vcl.lab.evaluation import Run
from vcl.lab.experiments import EXPERIMENTS
from vcl.lab.identity import described, description
from vcl.lab.methods.networks import METHODS
from vcl.lab.plan import Plan, make_plan
from vcl.lab.registry import experiment, method
from vcl.lab.results import Row
from vcl.lab.runner import run_method
from vcl.lab.settings import values_of
from vcl.lab.show import Group, show_groups
from vcl.lab.streams import Arrays, arrays
from vcl.ops.rng import Rng

TAKERS = (
    "map", "lp", "lp-kron", "lp-kron-random", "ewc-kron", "vcl-kron", "vcl-kron-natural", "vcl-kron-random", "ewc",
    "si",
)  # fmt: skip


def plan(
    methods: str,
    grid: str | None = None,
    changes: tuple[str, ...] = (),
    name: str = "permuted-mnist",
    preset: str = "paper",
    seeds: int | None = 2,
) -> Plan:
    return make_plan(name, methods, preset, seeds, "cpu", changes, grid)


def settings(made: Plan, name: str, *keys: str) -> tuple[Any, ...]:
    found = values_of(made.settings_of(method(name)))
    return tuple(found.get(key) for key in keys)


# The runs of a stack.


def test_every_lambda_is_run_with_every_seed() -> None:
    made = plan("ewc,vcl", "lambda=10,0.5", seeds=3)
    assert made.runs(method("ewc")) == (
        Run("ewc lambda=10", 0, 10.0),
        Run("ewc lambda=10", 1, 10.0),
        Run("ewc lambda=10", 2, 10.0),
        Run("ewc lambda=0.5", 0, 0.5),
        Run("ewc lambda=0.5", 1, 0.5),
        Run("ewc lambda=0.5", 2, 0.5),
    )
    assert made.runs(method("vcl")) == tuple(Run("vcl", seed, None) for seed in range(3))


def test_without_a_grid_a_run_goes_by_its_method() -> None:
    assert plan("vcl").runs(method("vcl")) == (Run("vcl", 0, None), Run("vcl", 1, None))
    # Its lambda is known all the same, so that a grid finds what was computed without one.
    assert plan("ewc").runs(method("ewc")) == (Run("ewc", 0, 100.0), Run("ewc", 1, 100.0))
    assert plan("ewc", changes=("lambda=3",)).runs(method("ewc")) == (Run("ewc", 0, 3.0), Run("ewc", 1, 3.0))


def test_a_method_is_built_for_some_of_its_runs() -> None:
    made = plan("ewc", "lambda=1,10")
    runs = made.runs(method("ewc"))
    assert made.build(method("ewc"), runs[1:]).project.lam == (1.0, 10.0, 10.0)
    assert made.build(method("ewc"), runs[2:]).project.lam == 10.0


def test_two_lambdas_that_are_nearly_alike_have_labels_of_their_own() -> None:
    labels = [run.label for run in plan("ewc", "lambda=1234567,1234568", seeds=1).runs(method("ewc"))]
    assert len(set(labels)) == 2


@pytest.mark.parametrize("name", TAKERS)
def test_the_method_is_built_with_a_lambda_for_each_run(name: str) -> None:
    built = plan(name, "lambda=1,10").build(method(name))
    assert built.project.lam == built.refit.lam == (1.0, 1.0, 10.0, 10.0)
    built = plan(name, changes=("lambda=3",)).build(method(name))
    assert built.project.lam == built.refit.lam == 3.0


def test_a_grid_leaves_methods_without_a_lambda_alone() -> None:
    made, other = plan("vcl,mle,ewc", "lambda=1,10"), plan("vcl,mle,ewc")
    for name in ("vcl", "mle"):
        assert made.build(method(name)) == other.build(method(name))
    assert made.grid == {"ewc": (1.0, 10.0)}


def test_a_method_has_a_grid_of_its_own_where_the_paper_has_none() -> None:
    for name in ("lp-kron", "lp-kron-random", "ewc-kron", "vcl-kron", "vcl-kron-natural", "vcl-kron-random"):
        for experiment_name in ("permuted-digits", "split-mnist"):
            assert plan(name, "lambda=paper", name=experiment_name).grid == {name: (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)}
    both = plan("ewc,lp-kron", "lambda=paper", name="split-mnist").grid
    assert both["ewc"] == experiment("split-mnist").grids["ewc"]


def test_who_takes_a_lambda() -> None:
    assert tuple(entry.name for entry in METHODS if entry.takes_lambda) == TAKERS


def test_which_methods_do_not_climb() -> None:
    projections = {entry.name: entry.build(entry.settings()).project for entry in METHODS}
    wanted = ["adf", "smc"]
    assert [name for name, each in projections.items() if not PlannedFit(each, 1, True).climbs] == wanted
    assert [name for name, each in projections.items() if not isinstance(getattr(each, "ascent", 0), Ascent)] == wanted


def test_the_paper_grids_hold_the_lambdas_that_the_paper_chose() -> None:
    seen = 0
    for each in EXPERIMENTS:
        if each.grids:
            made = plan("ewc,lp,si", "lambda=paper", name=each.name)
            assert made.grid == each.grids
            for name, lams in made.grid.items():
                seen += 1
                if each.models == "networks":  # the paper does not say which it chose for its generators
                    assert each.presets["paper"].own[name]["lam"] in lams
    # Permuted MNIST, Split MNIST and both sizes of notMNIST; three generative and three class-incremental streams
    assert seen == 30


# The settings of each method.


def test_the_baselines_of_the_paper_have_settings_of_their_own() -> None:
    made = plan("vcl,ewc,lp,si,map,mle")
    keys = ("lam", "epochs", "batch", "fisher_samples", "damping")
    assert settings(made, "ewc", *keys) == (100.0, 20, 200, 600, None)
    assert settings(made, "lp", *keys) == (0.1, 20, 200, 200, None)
    assert settings(made, "si", *keys) == (0.5, 20, 256, None, 0.1)
    assert settings(made, "map", *keys) == (1.0, 20, 200, None, None)
    assert settings(made, "mle", "epochs", "batch") == (20, 200)
    assert settings(made, "vcl", "epochs", "batch") == (100, 256)
    built = made.build(method("ewc"))
    assert (built.project.ascent.epochs, built.project.ascent.batch) == (20, 200)
    assert (built.project.lam, built.project.curvature.samples) == (100.0, 600)


def test_what_the_user_says_wins() -> None:
    made = plan("vcl,ewc,si", changes=("epochs=7", "fisher_samples=none", "damping=0.5"))
    assert settings(made, "ewc", "epochs", "batch", "fisher_samples", "lam") == (7, 200, None, 100.0)
    assert settings(made, "si", "epochs", "damping", "lam") == (7, 0.5, 0.5)
    assert settings(made, "vcl", "epochs", "batch") == (7, 256)


@pytest.mark.parametrize("key", ["lambda", "lam"])
def test_a_lambda_of_the_user_is_for_all_that_take_one(key: str) -> None:
    made = plan(",".join(TAKERS), changes=(f"{key}=3",))
    assert [settings(made, name, "lam") for name in TAKERS] == [(3.0,)] * len(TAKERS)


def test_the_number_of_seeds_is_the_same_for_every_method() -> None:
    made = plan("vcl,ewc", seeds=4)
    assert made.setup.run.seeds == 4
    assert [run.seed for run in made.runs(method("vcl"))] == [run.seed for run in made.runs(method("ewc"))]
    assert made.seeds == (0, 1, 2, 3)


def test_the_description_holds_what_each_method_does_differently() -> None:
    made = plan("vcl,ewc,si", "lambda=1,10", ("batch=50",))
    found = {
        entry.name: described(description(made, entry, "nowhere", {}))["method"]["settings"] for entry in made.methods
    }
    assert found["vcl"]["epochs"] == 100
    shared = {"batch": 50, "lr": 1e-3, "schedule": "constant", "init_sd": 0.1}
    point = shared | {"epochs": 20, "average": 0.0}
    assert found["ewc"] == point | {"fisher": "empirical", "fisher_samples": 600, "anchor": "own"}
    assert found["si"] == shared | {"epochs": 20, "damping": 0.1}
    assert made.grid == {"ewc": (1.0, 10.0), "si": (1.0, 10.0)}


# The paper's numbers.


def papers_column(name: str, labels: list[str], folder: Path, **given: Any) -> dict[str, str]:
    """What stands in the table's column of the paper, by label."""
    chosen = experiment(name)
    rows = [row for label in labels for row in graded(label, {0: 0.5, 1: 0.6})]
    group = Group("all", chosen, "a title", rows, ["a", "b"], **{"paper": chosen.paper, **given})
    show_groups([group], folder, Console(file=StringIO()))
    lines = [line.strip("| ").split(" | ") for line in (folder / "table.md").read_text().splitlines()]
    return {line[0]: line[2] for line in lines if line[0] in labels}


def test_of_a_grid_only_the_lambda_of_the_paper_has_its_number(tmp_path: Path) -> None:
    labels = ["vcl", "ewc lambda=0.5", "ewc lambda=100", "si lambda=0.5", "si lambda=10", "map lambda=100"]
    assert papers_column("permuted-mnist", labels, tmp_path) == dict.fromkeys(labels, "-") | {
        "vcl": "90.0", "ewc lambda=100": "84.0", "si lambda=0.5": "86.0"
    }  # fmt: skip


def test_an_experiment_that_is_not_of_the_paper_has_no_number(tmp_path: Path) -> None:
    assert papers_column("permuted-digits", ["ewc lambda=100"], tmp_path) == {"ewc lambda=100": "0.00 ± 0.00"}, (
        "forgetting"
    )
    assert "paper" not in (tmp_path / "table.md").read_text().splitlines()[2], "no column where there is no number"
    papers_column("permuted-mnist", ["ewc lambda=100"], tmp_path, paper={})
    assert "paper" not in (tmp_path / "table.md").read_text().splitlines()[2], "nor on another dataset"


def test_without_a_grid_the_numbers_are_by_method(tmp_path: Path) -> None:
    assert papers_column("permuted-mnist", ["ewc", "si"], tmp_path) == {"ewc": "84.0", "si": "86.0"}


# What can be wrong.


@pytest.mark.parametrize(
    ("methods", "grid", "message"),
    [
        ("ewc", "1,10", "--grid '1,10' is not of the form lambda=1,10,100 or lambda=paper; only lambda can be a grid."),
        ("ewc", "lambda", "--grid 'lambda' is not of the form lambda=1,10,100"),
        ("ewc", "epochs=1,2", "--grid 'epochs=1,2' is not of the form lambda=1,10,100 or lambda=paper; only lambda"),
        ("vcl,mle", "lambda=1", "none of vcl, mle takes a lambda, so there is no grid to try; those that do: "),
        ("ewc", "lambda=1,-10", "lambda is -10 in --grid; give a number from 0 (which forgets) to 1e+12."),
        ("ewc", "lambda=nan", "lambda is nan in --grid; give a number from 0"),
        ("ewc", "lambda=inf", "lambda is inf in --grid; give a number from 0"),
        ("ewc", "lambda=1e13", "lambda is 1e13 in --grid; give a number from 0 (which forgets) to 1e+12."),
        ("ewc", "lambda=1,ten", "--grid lambda takes numbers with commas between, not 'ten'."),
        ("ewc", "lambda=", "--grid lambda takes numbers with commas between, not ''."),
        ("ewc", "lambda=1,,2", "--grid lambda takes numbers with commas between, not ''."),
        ("ewc", "lambda=1,10,1.0", "--grid 'lambda=1,10,1.0' names a lambda twice; give each once."),
        (
            "ewc,map",
            "lambda=paper",
            "the paper has no grid of lambda for map on permuted-mnist; give one, as in --grid",
        ),
    ],
)
def test_a_grid_that_cannot_be_is_refused_in_one_sentence(methods: str, grid: str, message: str) -> None:
    with pytest.raises(VclError, match=re.escape(message)) as refused:
        plan(methods, grid)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["lambda", "lam"])
def test_a_grid_and_a_lambda_are_too_much(key: str) -> None:
    with pytest.raises(VclError, match=re.escape("both --grid lambda=… and --set lambda=… were given; give one")):
        plan("ewc", "lambda=1,10", (f"{key}=5",))


def test_a_permuted_stream_has_one_head() -> None:
    """Every task has the same classes, so there is nothing to choose."""
    with pytest.raises(VclError, match="unknown setting 'heads'"):
        plan("vcl", changes=("heads=multi",), name="permuted-digits", preset="smoke")
    made = plan("vcl", name="permuted-digits", preset="smoke")
    assert [task.heads for task in made.stream(images(), Rng((0,)))] == [{"all": 10}] * 2


# A stack of lambdas is as many runs.


@pytest.fixture(scope="module")
def digits() -> Arrays:
    return arrays(load("digits"))


def rows_of(made: Plan, data: Arrays, name: str) -> list[Row]:
    return [row for done in run_method(made, method(name), made.runs(method(name)), data) for row in done.rows]


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("stream", ["split-digits", "permuted-digits"])
def test_a_grid_gives_the_rows_of_separate_runs(name: str, stream: str, digits: Arrays) -> None:
    changes = ("epochs=6", "lr=0.02")
    stack = rows_of(plan(name, "lambda=0.5,20", changes, stream, "smoke"), digits, name)
    parts = {}
    for lam in ("0.5", "20"):
        alone = rows_of(plan(name, None, (*changes, f"lambda={lam}"), stream, "smoke"), digits, name)
        mine = [row for row in stack if row.method == f"{name} lambda={lam}"]
        assert [row[1:5] for row in mine] == [row[1:5] for row in alone]
        assert len(mine) == 2 * 3 * 4
        # Equal to the last bit where this was written; but larger products may sum in another order elsewhere, which
        # may move a metric that counts by an example.
        for metric, most in (("log predictive", 1e-4), ("Brier score", 1e-4), ("accuracy", 0.03)):
            ours, theirs = ([row.value for row in part if row.metric == metric] for part in (mine, alone))
            assert ours == pytest.approx(theirs, abs=most, rel=0)
        parts[lam] = [row.value for row in mine if row.metric == "log predictive" and row.after == 2]
    assert len(stack) == 2 * len(mine)
    # The lambdas do different things: by 0.014 nats at least, measured.
    assert max(abs(a - b) for a, b in zip(*parts.values(), strict=True)) > 5e-3


def test_lambda_zero_is_fine_tuning(digits: Arrays) -> None:
    changes, stream = ("epochs=6", "lr=0.02"), "permuted-digits"
    mle = rows_of(plan("mle", None, changes, stream, "smoke"), digits, "mle")
    for name in ("ewc", "si"):  # the two without a prior
        stack = rows_of(plan(name, "lambda=0,20", changes, stream, "smoke"), digits, name)
        ours, theirs, held = (
            [row.value for row in rows if row.metric == "log predictive" and row.method == wanted]
            for rows, wanted in ((stack, f"{name} lambda=0"), (mle, "mle"), (stack, f"{name} lambda=20"))
        )
        assert ours == pytest.approx(theirs, abs=1e-4, rel=0)
        assert held != pytest.approx(theirs, abs=1e-2, rel=0)
