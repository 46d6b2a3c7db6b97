from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from vcl.coresets import Nothing, Only
from vcl.errors import VclError
from vcl.lab.experiments import EXPERIMENTS
from vcl.lab.methods.generators import GENERATIVE_METHODS
from vcl.lab.methods.networks import METHODS
from vcl.lab.plan import Plan, choose_device, make_plan
from vcl.lab.registry import datasets, experiment, methods
from vcl.lab.settings import values_of
from vcl.recursion import Method


def plan(**changes: Any) -> Plan:
    asked: dict[str, Any] = {
        "name": "split-digits",
        "methods": "vcl",
        "preset": "smoke",
        "seeds": None,
        "device": "cpu",
        "changes": (),
    }
    return make_plan(**{**asked, **changes})


def test_a_plan_holds_what_was_asked_for() -> None:
    made = plan(methods=" mle, vcl-random,", seeds=4, changes=["epochs=9"])
    assert made.experiment.name == "split-digits"
    assert [entry.name for entry in made.methods] == ["mle", "vcl-random"]
    assert made.seeds == (0, 1, 2, 3)
    assert [values_of(made.settings_of(entry))["epochs"] for entry in made.methods] == [9, 9]
    assert made.setup.network == experiment("split-digits").presets["smoke"].network
    assert made.setup.network.hidden == (16,)
    assert made.dataset == "digits"
    assert made.device == torch.device("cpu")


def test_seeds_are_those_of_the_preset_unless_given() -> None:
    assert len(plan().seeds) == experiment("split-digits").presets["smoke"].run.seeds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "split-digit"}, "unknown experiment 'split-digit': did you mean 'split-digits'?"),
        ({"methods": "vcl,vcl-randm"}, "unknown method 'vcl-randm': did you mean 'vcl-random'?"),
        ({"methods": "vcl,mle,vcl"}, "--method 'vcl,mle,vcl' must name at least one method, each once"),
        ({"methods": " , "}, "--method ' , ' must name at least one method"),
        ({"preset": "qiuck"}, "unknown preset 'qiuck': did you mean 'quick'? Accepted: paper, quick, smoke."),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cudaa"}, "unknown device 'cudaa': did you mean 'cuda'? Accepted: auto, cpu, cuda."),
        ({"seeds": 0}, "--seeds is 0; give at least 1."),
        ({"seeds": -3}, "--seeds is -3; give at least 1."),
        ({"changes": ["epoch=3"]}, "unknown setting 'epoch': did you mean 'epochs'?"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(VclError, match=re.escape(message)):
        plan(**changes)


def test_an_unknown_name_is_answered_with_all_that_there_are() -> None:
    with pytest.raises(VclError, match="unknown experiment") as refused:
        plan(name="atari")
    assert "did you mean" not in str(refused.value)
    assert all(entry.name in str(refused.value) for entry in EXPERIMENTS)
    with pytest.raises(VclError, match="unknown method") as refused:
        plan(methods="zzz")
    assert all(entry.name in str(refused.value) for entry in METHODS)


@pytest.mark.parametrize(
    ("there", "asked", "given"),
    [
        (False, "auto", "cpu"),
        (False, "cpu", "cpu"),
        (True, "auto", "cuda"),
        (True, "cpu", "cpu"),
        (True, "cuda", "cuda"),
    ],
)
def test_device(monkeypatch: pytest.MonkeyPatch, there: bool, asked: str, given: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert choose_device(asked).type == given


def test_cuda_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(VclError, match="torch sees no CUDA device here; give --device cpu or auto"):
        plan(device="cuda")


@pytest.mark.parametrize("preset", ["paper", "quick", "smoke"])
@pytest.mark.parametrize(
    ("name", "entry"),
    [pytest.param(e.name, m, id=f"{e.name}-{m.name}") for e in EXPERIMENTS for m in methods(e.models).values()],
)
def test_every_method_is_built_from_the_settings_of_every_experiment(entry: Any, name: str, preset: str) -> None:
    wanted = experiment(name)
    dataset = None if wanted.dataset or wanted.makes_data else "digits"
    made = plan(name=name, methods=entry.name, preset=preset, dataset=dataset)
    settings, method = values_of(made.settings_of(entry)), made.build(entry)
    assert isinstance(method, Method)
    if "lr" in settings:
        # A coreset alone is the only data that is ever fitted.
        which = "coreset_" if isinstance(method.choose, Only) else ""
        assert method.project.ascent.epochs == settings[f"{which}epochs"]
        assert method.project.ascent.batch == settings[f"{which}batch"]
        assert method.project.ascent.lr == method.refit.ascent.lr == settings["lr"]
    else:
        assert entry.name in ("adf", "smc")


@pytest.mark.parametrize("each", EXPERIMENTS, ids=lambda each: each.name)
def test_every_value_of_a_preset_is_of_a_setting_that_there_is(each: Any) -> None:
    """A name with a slip of the pen would be passed over by every method."""
    known = {entry.name: set(values_of(entry.settings())) for entry in methods(each.models).values()}
    for preset in each.presets.values():
        assert set(preset.shared) <= set().union(*known.values())
        assert set(preset.own) <= set(known)
        for name, own in preset.own.items():
            assert set(own) <= known[name]


@pytest.mark.parametrize("entry", [*METHODS, *GENERATIVE_METHODS], ids=lambda entry: f"{entry.models}-{entry.name}")
def test_every_value_of_a_method_is_of_a_setting_that_it_has(entry: Any) -> None:
    assert set(entry.values) <= set(values_of(entry.settings()))


def test_names_on_the_lists_are_unique() -> None:
    for entries in (EXPERIMENTS, METHODS, GENERATIVE_METHODS, tuple(datasets().values())):
        names = [entry.name for entry in entries]
        assert len(set(names)) == len(names)


def test_seeds_given_twice_are_refused() -> None:
    with pytest.raises(VclError, match="both --seeds and --set seeds"):
        make_plan("split-digits", "vcl", "smoke", 2, "cpu", ["seeds=5"])


@pytest.mark.parametrize("name", ["vcl-restart", "vcl-restart-random"])
def test_a_restarted_vcl_begins_every_task_anew_and_cools_to_its_end(name: str) -> None:
    made = make_plan("permuted-mnist", name, "paper", None, "cpu")
    method = made.build(made.methods[0])
    assert method.project.start == "restart"
    fitted = (method.project,) if isinstance(method.choose, Nothing) else (method.project, method.refit)
    # A coreset is fitted in few steps, which do not suffice to come back from a new start.
    assert all(project.start == "continue" for project in fitted[1:])
    for project in fitted:
        assert project.ascent.schedule == "cosine"
        assert (project.draws, project.ascent.lr, project.estimator) == (4, 5e-3, "weights")
        assert project.init_var == 1e-4
    assert (method.project.ascent.epochs, method.project.ascent.batch) == (150, 1024)


def test_the_users_own_changes_win_over_those_of_the_method_and_the_experiment() -> None:
    changes = ["schedule=constant", "average=0.5", "lr=0.01"]
    made = make_plan("permuted-mnist", "vcl-restart", "paper", None, "cpu", changes)
    project = made.build(made.methods[0]).project
    assert (project.ascent.schedule, project.ascent.average, project.ascent.lr) == ("constant", 0.5, 0.01)
    assert project.start == "restart"
    restarted = make_plan("split-digits", "vcl-restart", "smoke", None, "cpu")
    assert restarted.build(restarted.methods[0]).project.start == "restart"


# The dataset.


@pytest.mark.parametrize(
    ("name", "given", "taken", "called"),
    [
        ("split-digits", None, "digits", "split-digits"),
        ("split-digits", "digits", "digits", "split-digits"),
        ("split-mnist", "fashion-mnist", "fashion-mnist", "split-mnist-on-fashion-mnist"),
        ("split", "digits", "digits", "split-on-digits"),
        ("permuted", "mnist", "mnist", "permuted-on-mnist"),
        ("sine", None, None, "sine"),
    ],
)
def test_the_dataset_of_a_plan(name: str, given: str | None, taken: str | None, called: str) -> None:
    made = plan(name=name, dataset=given)
    assert (made.dataset, made.name) == (taken, called)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("split", None, "split takes any dataset; give one with --dataset: digits, mnist, "),
        ("permuted", None, "permuted takes any dataset; give one with --dataset: "),
        ("split", "digit", "unknown dataset 'digit': did you mean 'digits'? Accepted: "),
        ("split-mnist", "cifar", "unknown dataset 'cifar'"),
        ("sine", "digits", "sine makes its own data; leave out --dataset."),
    ],
)
def test_a_dataset_that_cannot_be_is_refused(name: str, given: str | None, message: str) -> None:
    with pytest.raises(VclError, match=re.escape(message)):
        plan(name=name, dataset=given)


@pytest.mark.parametrize(
    ("seeds", "changes", "origin"),
    [(None, [], "preset smoke"), (2, [], "given"), (3, [], "given"), (None, ["seeds=2"], "given")],
)
def test_seeds_that_were_given_are_listed_as_given(seeds: int | None, changes: list[str], origin: str) -> None:
    """Those that equal the preset's number too."""
    listed = make_plan("split-digits", "vcl", "smoke", seeds, "cpu", changes).listed()
    assert [value.origin for value in listed if value.setting.name == "seeds"] == [origin]
