from __future__ import annotations

from collections import Counter
from io import StringIO
from typing import Any

import pytest
from lab_made import images
from rich.console import Console

from vcl.errors import VclError
from vcl.lab.estimate import TRIAL, check_methods, estimate, fits, show_estimate
from vcl.lab.largest import engine_of
from vcl.lab.plan import Plan, make_plan
from vcl.lab.registry import method
from vcl.lab.settings import with_values
from vcl.projections import MomentMatching
from vcl.recursion import Method

# Tasks of 100 examples in batches of 32, coresets of 10 a task all at once.
PER_HEAD = {
    "epochs": 2,
    "batch": 32,
    "coreset": 10,
    "coreset_epochs": 5,
    "coreset_batch": None,
    "predictive": "per-head",
}
SIZES = [100, 100, 100]


def built(name: str, **changes: Any) -> Method[Any]:
    entry = method(name)
    return entry.build(with_values(entry.settings(), {**PER_HEAD, **changes}))


def counted(name: str, predictive: str) -> tuple[Counter[tuple[int, bool]], int]:
    made = fits(built(name, predictive=predictive), SIZES)
    return Counter((fit.examples, fit.first) for fit in made), sum(fit.steps for fit in made)


@pytest.mark.parametrize("predictive", ["joint", "per-head"])
@pytest.mark.parametrize("name", ["vcl", "mle"])
def test_without_a_coreset_there_is_one_fit_a_task(name: str, predictive: str) -> None:
    # 2 epochs of 4 batches (32 + 32 + 32 + 4), three times; the first starts at the prior.
    assert counted(name, predictive) == ({(100, True): 1, (100, False): 2}, 3 * 2 * 4)


def test_a_coreset_by_head_adds_a_fit_a_head_met() -> None:
    # 90 of 100 are propagated, in 3 batches; 1 + 2 + 3 fits of one head's 10 points, 5 steps each.
    assert counted("vcl-random", "per-head") == ({(90, True): 1, (90, False): 2, (10, False): 6}, 3 * 2 * 3 + 6 * 5)


def test_a_joint_coreset_adds_a_growing_fit_a_task() -> None:
    wanted = {(90, True): 1, (90, False): 2, (10, False): 1, (20, False): 1, (30, False): 1}
    assert counted("vcl-random", "joint") == (wanted, 3 * 2 * 3 + 3 * 5)


@pytest.mark.parametrize("predictive", ["joint", "per-head"])
def test_batch_vi_fits_all_data_so_far_from_the_prior(predictive: str) -> None:
    # 100, 200, 300 examples make 4, 7 and 10 batches of (up to) 32.
    assert counted("batch-vi", predictive) == (
        {(100, True): 1, (200, True): 1, (300, True): 1},
        2 * (4 + 7 + 10),
    )


def test_a_coreset_alone_is_fitted_from_the_prior_and_nothing_else_is() -> None:
    assert counted("random-only", "per-head") == ({(10, True): 6}, 6 * 5)
    assert counted("random-only", "joint") == ({(10, True): 1, (20, True): 1, (30, True): 1}, 3 * 5)


def test_a_budget_is_shared_between_tasks_and_what_leaves_is_fitted() -> None:
    # 10 points for 1, 2, 3 tasks: 10; 5 + 5; 4 + 3 + 3. Rest: 90, then 95 + 5, then 97 + 1 + 2.
    wanted = {(90, True): 1, (100, False): 2, (10, False): 3}
    assert counted("vcl-budget", "joint") == (wanted, 2 * (3 + 4 + 4) + 3 * 5)


def test_tasks_may_differ_in_size() -> None:
    made = fits(built("vcl"), [100, 20])
    assert [(fit.examples, fit.batch, fit.steps) for fit in made] == [(100, 32, 8), (20, 20, 2)]


def smoke(methods: str, *changes: str, grid: str | None = None) -> Plan:
    return make_plan("split-digits", methods, "smoke", None, "cpu", changes, grid)


@pytest.mark.parametrize("name", ["map", "lp", "ewc", "si"])
def test_the_quadratic_methods_have_one_fit_a_task(name: str) -> None:
    assert counted(name, "per-head") == ({(100, True): 1, (100, False): 2}, 3 * 2 * 4)


def test_a_method_that_does_not_climb_takes_each_example_as_a_step() -> None:
    adf = fits(built("adf"), SIZES)
    assert [(fit.examples, fit.batch, fit.steps) for fit in adf] == [(100, 1, 100)] * 3
    adf = fits(built("adf", filter_batch=30), [100, 20])
    assert [(fit.examples, fit.batch, fit.steps) for fit in adf] == [(100, 30, 4), (20, 20, 1)]
    smc = fits(built("smc"), SIZES)
    assert [(fit.examples, fit.batch, fit.steps) for fit in smc] == [(100, 1, 100)] * 3


@pytest.mark.parametrize(("batch", "one"), [(1, 1), (4, 4), (50, 12)])
def test_the_trial_of_moment_matching_is_of_whole_batches(
    monkeypatch: pytest.MonkeyPatch, batch: int, one: int
) -> None:
    seen = []

    def look(self: MomentMatching, target: Any, rng: Any) -> Any:
        seen.append((self.batch, target.data.size))
        return target.q

    monkeypatch.setattr(MomentMatching, "__call__", look)
    estimate(smoke("adf", f"filter_batch={batch}"), images())  # tasks of 12
    assert set(seen) == {(batch, one), (batch, one * TRIAL), (batch, one * 2 * TRIAL)}


def test_a_grid_takes_no_more_steps_but_more_memory() -> None:
    (one,) = estimate(smoke("ewc"), images())
    (grid,) = estimate(smoke("ewc", grid="lambda=1,2,3,4"), images())
    (seeds,) = estimate(smoke("ewc", "seeds=8"), images())
    assert grid.steps == one.steps == 4
    assert grid.seconds > 0
    assert one.gigabytes < grid.gigabytes == seeds.gigabytes  # four lambdas with two seeds each


def test_steps_are_those_of_the_settings_of_each_method() -> None:
    # The paper's baselines on 60 pictures at once: 20 epochs of 10 tasks; VCL has 100.
    plan = make_plan("permuted-mnist", "ewc,vcl", "paper", 1, "cpu", ["hidden=4", "draws=1"])
    assert [each.steps for each in estimate(plan, images())] == [200, 1000]


def test_show_estimate_names_the_lambdas() -> None:
    out = StringIO()
    show_estimate(smoke("vcl,ewc", grid="lambda=0.5,100"), images(), Console(file=out, width=100))
    assert "ewc: lambda 0.5, 100, stacked too\n" in out.getvalue()
    assert "vcl: lambda" not in out.getvalue()


def test_coresets_larger_than_the_smallest_task_are_refused() -> None:
    # 60 pictures of 10 classes in turn: 12 of each pair.
    data = images(train=60)
    check_methods(smoke("vcl-random,vcl-kcenter,random-only", "coreset=12"), data)
    check_methods(smoke("vcl,mle,batch-vi", "coreset=13"), data)  # these keep none
    for name in ("vcl-random", "vcl-kcenter", "random-only", "kcenter-only"):
        with pytest.raises(VclError, match="coreset of 13 points cannot be taken from a task of 12 examples"):
            check_methods(smoke(f"vcl,{name}", "coreset=13"), data)
    # Without the last seven, class 3 has one fewer: only the second task is too small.
    uneven = data._replace(train_x=data.train_x[:53], train_y=data.train_y[:53])
    with pytest.raises(VclError, match="coreset of 12 points cannot be taken from a task of 11 examples"):
        check_methods(smoke("vcl-random", "coreset=12"), uneven)


def test_a_budget_smaller_than_the_number_of_tasks_is_refused() -> None:
    with pytest.raises(VclError, match="budget of 1 points cannot hold one of each of 2 tasks"):
        check_methods(smoke("vcl-budget", "coreset=1"), images())


def test_estimate_counts_steps_and_measures_time() -> None:
    # Two tasks of 12, all at once, 2 epochs; coresets of 2 by head, 2 epochs: 1 + 2 fits.
    vcl, coreset, mle = estimate(smoke("vcl,vcl-random,mle", "coreset=2"), images())
    assert [(each.method, each.steps) for each in (vcl, coreset, mle)] == [("vcl", 4), ("vcl-random", 10), ("mle", 4)]
    assert all(each.seconds > 0 for each in (vcl, coreset, mle))
    assert all(0 < each.gigabytes < 0.1 for each in (vcl, coreset, mle))


def test_more_seeds_and_a_wider_network_take_more_memory() -> None:
    def gigabytes(*changes: str) -> float:
        return estimate(smoke("vcl", *changes), images())[0].gigabytes

    assert gigabytes() < gigabytes("seeds=8") < gigabytes("seeds=8", "hidden=200")


def test_show_estimate_prints_plan_time_and_memory() -> None:
    out = StringIO()
    show_estimate(smoke("vcl,mle"), images(), Console(file=out, width=100))
    text = out.getvalue()
    assert "split-digits, preset smoke, 2 seeds stacked, on cpu" in text
    assert "stream: tasks=2, classes=2, pairing=neighbours, heads=multi, order=none" in text
    assert "network: hidden=16, prior_var=1" in text
    assert "prediction: predict_draws=3" in text
    assert "run: seeds=2, matmul=float32" in text
    assert "vcl: epochs=2, batch=none, lr=0.005, schedule=constant, average=0, draws=2, estimator=local" in text
    assert "mle: epochs=2, batch=none" in text
    assert "GB" in text
    assert " s " in text
    assert "No results were made or" in text


def test_the_engine_of_each_method_is_named() -> None:
    made = estimate(smoke("vcl,mle,batch-vi,random-only,adf", "coreset=2"), images())
    assert [each.engine for each in made] == ["layered/torch"] * 4 + ["-"]
    out = StringIO()
    show_estimate(smoke("vcl,adf"), images(), Console(file=out, width=100))
    assert "engine" in out.getvalue()
    assert "layered/torch" in out.getvalue()


def test_a_coreset_that_another_engine_fits_is_named_beside() -> None:
    # Images of several tasks have encoders of their own, which no one chain is.
    plan = make_plan("generative-digits", "vcl,vcl-random", "smoke", None, "cpu", ["coreset=2"])
    assert {entry.name: engine_of(plan, entry, images()) for entry in plan.methods} == {
        "vcl": "layered/torch",
        "vcl-random": "layered/torch; coreset: general/torch",
    }


def test_an_experiment_that_makes_its_data_is_estimated_too() -> None:
    plan = make_plan("sine", "vcl,mle", "smoke", None, "cpu")
    check_methods(plan, None)
    vcl, mle = estimate(plan, None)
    assert (vcl.steps, mle.steps) == (4, 4)  # two tasks of 20 in a batch, 2 epochs
    assert vcl.seconds > 0
    assert 0 < vcl.gigabytes < 0.1
    assert vcl.engine == "layered/torch"


def test_a_convolutional_network_is_estimated_too() -> None:
    plan = make_plan("split-mnist-conv", "vcl,ewc", "smoke", None, "cpu", dataset="digits")
    check_methods(plan, images(train=200))
    found = estimate(plan, images(train=200))
    assert [each.engine for each in found] == ["general/torch"] * 2
    assert all(0 < each.gigabytes < 0.1 for each in found)
