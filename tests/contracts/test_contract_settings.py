"""Every setting of every method: either its change is refused, or the numbers change with it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from vcl.errors import VclError
from vcl.lab.experiments import experiment
from vcl.lab.identity import MISSING, another, uses
from vcl.lab.kind import MethodEntry
from vcl.lab.plan import Plan, make_plan
from vcl.lab.runner import run_method
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
KINDS = {"split-digits": DISCRIMINATIVE, "permuted-digits": DISCRIMINATIVE, "generative-digits": GENERATIVE}
CASES = [
    (name, entry.name)
    for name in KINDS
    for entry in experiment(name).kind.methods
    # Methods are built alike for all classifiers: two are enough to look at another stream.
    if name != "permuted-digits" or entry.name in ("vcl-random", "ewc")
]


def pictures(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(0, 256, (count, 4, 4), generator=torch.Generator().manual_seed(count), dtype=torch.uint8)
    return x, torch.arange(count) % 10


DATA = Arrays(*pictures(120), *pictures(60), tuple("abcdefghij"))


def rows(plan: Plan, entry: MethodEntry, settings: Any) -> list[Any]:
    """The numbers of one method under exactly these settings."""
    exactly = entry._replace(settings=vars(settings))
    return [
        row for done in run_method(replace(plan, settings=settings, changes=()), exactly, DATA) for row in done.rows
    ]


@pytest.mark.parametrize(("name", "method"), CASES)
def test_each_setting_changes_the_numbers_or_is_not_used(
    name: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = make_plan(name, method, "smoke", None, "cpu", KINDS[name])
    (entry,) = plan.methods
    settings = plan.settings_of(entry)
    kinds = get_type_hints(type(settings))
    before, wrong, used = rows(plan, entry, settings), [], 0
    for each in fields(settings):
        other = another(kinds[each.name], getattr(settings, each.name))
        if other is MISSING:
            continue
        if each.name == "train_limit":  # one point more may be none that a coreset rule picks
            other = settings.coreset
        try:
            changes = rows(plan, entry, replace(settings, **{each.name: other})) != before
        except VclError:
            changes = True  # refused, by a sentence
        used += changes
        if changes != uses(plan, entry, each.name):
            wrong.append(f"{each.name}={other} {'changes' if changes else 'leaves'} the numbers")
    assert not wrong
    assert used > 10
