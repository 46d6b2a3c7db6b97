"""Every setting of every method: either its change is refused, or the numbers change with it."""

from __future__ import annotations

from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch

from vcl.errors import VclError
from vcl.lab.compute import prepare
from vcl.lab.experiments.experiment import PARTS
from vcl.lab.identity import described
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan, make_plan, uses
from vcl.lab.registry import experiment, methods
from vcl.lab.runner import run_method
from vcl.lab.settings import settings_in, values_of, with_values
from vcl.lab.store import Store
from vcl.lab.streams import Arrays

DISCRIMINATIVE = (
    "tasks=2", "train_limit=16", "test_limit=8", "seeds=1", "hidden=8", "epochs=3", "batch=5", "lr=0.01", "draws=2",
    "coreset=3", "coreset_epochs=2", "coreset_batch=2", "fisher_samples=9", "predict_draws=2", "particles=24",
    "lambda=100",
)  # fmt: skip
GENERATIVE = (
    "tasks=2", "train_limit=8", "test_limit=4", "seeds=1", "hidden=6", "features=6", "latent=2", "epochs=2", "batch=3",
    "lr=0.01", "draws=2", "coreset=3", "coreset_epochs=2", "coreset_batch=2", "fisher_samples=4", "fisher_draws=2",
    "ll_draws=3", "images=3", "classifier_hidden=4", "classifier_epochs=1",
)  # fmt: skip
SINE = (
    "tasks=2", "examples=12", "seeds=1", "hidden=6", "epochs=3", "batch=5", "draws=2", "predict_draws=2", "lambda=100",
)  # fmt: skip
CONV = (
    "tasks=2", "train_limit=16", "test_limit=8", "seeds=1", "channels=2", "features=4", "epochs=2", "batch=5",
    "predict_draws=2",
)  # fmt: skip
CLASSES = (
    "tasks=2", "train_limit=8", "test_limit=4", "seeds=1", "hidden=6", "features=6", "latent=2", "epochs=2", "batch=3",
    "lr=0.01", "draws=2", "coreset=3", "coreset_epochs=2", "coreset_batch=2", "fisher_samples=4", "fisher_draws=2",
    "z_draws=3",
)  # fmt: skip
KINDS = {
    "split-digits": DISCRIMINATIVE,
    "permuted-digits": DISCRIMINATIVE,
    "generative-digits": GENERATIVE,
    "sine": SINE,
    "split-mnist-conv": CONV,
    "class-incremental-digits": CLASSES,
    "single-head-digits": (*DISCRIMINATIVE, "test_limit=4"),
}
# Methods are built alike for all classifiers: two are enough to look at another stream.
FEW = {"permuted-digits": ("vcl-random", "ewc"), "sine": ("vcl", "ewc"), "split-mnist-conv": ("vcl", "mle", "lp-kron")}
FEW |= {"class-incremental-digits": ("vcl", "vcl-random", "naive"), "single-head-digits": ("vcl-random",)}
CASES = [
    (name, entry.name)
    for name in KINDS
    for entry in methods(experiment(name).models).values()
    if name not in FEW or entry.name in FEW[name]
]


def pictures(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(0, 256, (count, 4, 4), generator=torch.Generator().manual_seed(count), dtype=torch.uint8)
    return x, torch.arange(count) % 10


DATA = Arrays(*pictures(120), *pictures(60), tuple("abcdefghij"))


def another(kind: Any, value: Any) -> Any:
    """A value of a setting's type that is not ``value``; MISSING if there is none."""
    if get_origin(kind) is Literal:
        return next((option for option in get_args(kind) if option != value), MISSING)
    if value is None:
        return 1
    if isinstance(value, tuple):
        return (value[0] + 1, *value[1:]) if value else (1, 0)
    return value + 1 if isinstance(value, int) else value / 2 or 0.5


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 3), (float, 0.0), (float, 2.5), (int | None, None), (int | None, 4), (tuple[int, ...], ()),
     (tuple[int, ...], (3, 4)), (Literal["a", "b"], "a"), (Literal["a", "b"], "b")],
)  # fmt: skip
def test_another_value_is_another(kind: Any, value: Any) -> None:
    assert another(kind, value) not in (value, MISSING)


def test_a_setting_with_one_value_has_no_other() -> None:
    assert another(Literal["a"], "a") is MISSING


def measured(plan: Plan, entry: MethodEntry, store: Store) -> tuple[list[Any], str]:
    """The numbers of one method under a plan, and what they are said to depend on."""
    data = Loaded(None, "", None) if plan.experiment.makes_data else Loaded(DATA, "", "digest")
    prepared, about = prepare(Part(plan, entry, data), store, lambda line: None)
    dones = run_method(plan, entry, plan.runs(entry), data.arrays, prepared)
    return [row for done in dones for row in done.rows], str(described(about))


def values(plan: Plan, entry: MethodEntry) -> list[tuple[str, str, Any, Any]]:
    """The part, the name, the value and another value of every setting."""
    parts = {part: getattr(plan.setup, part) for part in PARTS} | {entry.name: plan.settings_of(entry)}
    return [
        (part, name, value, another(settings_in(type(own))[name].kind, value))
        for part, own in parts.items()
        for name, value in values_of(own).items()
    ]


def changed(plan: Plan, entry: MethodEntry, part: str, name: str, value: Any) -> Plan:
    if part == entry.name:
        return replace(plan, own={part: {**plan.own.get(part, {}), name: value}})
    setup = replace(plan.setup, **{part: with_values(getattr(plan.setup, part), {name: value})})
    return replace(plan, setup=setup)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_each_setting_changes_the_numbers_or_is_not_used(name: str, method: str, tmp_path: Path) -> None:
    store = Store(tmp_path, torch.device("cpu"), "")
    plan = make_plan(name, method, "smoke", None, "cpu", KINDS[name])
    (entry,) = plan.methods
    (before, described_before), wrong, used = measured(plan, entry, store), [], 0
    for part, key, _, other in values(plan, entry):
        if other is MISSING or (key == "sharing" and name != "split-mnist-conv"):
            continue  # only a convolution has several rows of an example, which a rule can share
        if key == "train_limit":  # one point more may be none that a coreset rule picks
            other = values_of(plan.settings_of(entry)).get("coreset", 3)
        elif key == "factors":  # the third task is the first that two rules differ for
            three = changed(plan, entry, "stream", "tasks", 3)
            rows, about = measured(three, entry, store)
            after, described_after = measured(changed(three, entry, part, key, other), entry, store)
            assert (rows == after, about == described_after, uses(plan, entry, part, key)) == (False, False, True)
            continue
        elif key == "validation":  # a share that makes a difference to few images
            other = 0.5
        try:
            after, described_after = measured(changed(plan, entry, part, key, other), entry, store)
        except VclError:
            after, described_after = [], described_before + "refused, by a sentence"
        changes = after != before
        used += changes
        if changes != uses(plan, entry, part, key):
            wrong.append(f"{part}.{key}={other} {'changes' if changes else 'leaves'} the numbers")
        # Seeds and lambdas say which runs there are, and are no part of what a run depends on.
        if key not in ("seeds", "lam") and changes != (described_after != described_before):
            wrong.append(f"{part}.{key}={other} {'changes' if changes else 'leaves'} the numbers, not the description")
    assert not wrong
    assert used > 10 or method in ("adf", "smc")
