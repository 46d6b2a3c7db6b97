from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest

from vcl.errors import VclError
from vcl.lab.settings import MOST, MOST_OF, RANGES, Settings, check, override

BASE = Settings(tasks=3, hidden=(8,), epochs=2, batch=16, coreset=4, coreset_epochs=2, coreset_batch=None)


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("tasks=7", 7),
        ("hidden=100,50", (100, 50)),
        ("hidden=30", (30,)),
        ("batch=none", None),
        ("batch=32", 32),
        ("train_limit=500", 500),
        ("lr=3e-4", 3e-4),
        ("lr=1", 1.0),
        ("predictive=per-head", "per-head"),
        ("estimator=local", "local"),
        ("schedule=cosine", "cosine"),
        ("start=restart", "restart"),
        ("heads=single", "single"),
        ("fisher=hessian", "hessian"),
        ("fisher_samples=200", 200),
        ("fisher_samples=none", None),
        ("anchor=previous", "previous"),
        ("damping=0.1", 0.1),
        ("filter_batch=10", 10),
        ("particles=50", 50),
        ("lam=2", 2.0),
    ],
)
def test_override_reads_every_kind_of_value(pair: str, value: Any) -> None:
    key = pair.partition("=")[0]
    changed = override(BASE, [pair])
    assert getattr(changed, key) == value
    assert type(getattr(changed, key)) is type(value)
    assert changed == replace(BASE, **{key: value}), "nothing else changes"


def test_lambda_goes_by_its_own_name() -> None:
    assert override(BASE, ["lambda=0.5"]) == replace(BASE, lam=0.5)
    assert override(BASE, ["lambda=0"]).lam == 0.0
    with pytest.raises(VclError, match="unknown setting 'lamda': did you mean 'lambda'"):
        override(BASE, ["lamda=1"])
    with pytest.raises(VclError, match="setting lambda takes a number, not 'much'"):
        override(BASE, ["lambda=much"])


@pytest.mark.parametrize("value", ["-1", "-0.001", "nan", "inf"])
def test_lambda_is_a_number_from_zero_up(value: str) -> None:
    with pytest.raises(VclError, match=r"lambda is .*; give a number from 0 \(which forgets\) to 1e\+12"):
        override(BASE, [f"lambda={value}"])


@pytest.mark.parametrize("value", [1, 0, -5])
def test_there_are_at_least_two_particles(value: int) -> None:
    with pytest.raises(VclError, match=f"particles is {value}; give at least 2"):
        override(BASE, [f"particles={value}"])


def test_override_takes_many_pairs_and_the_last_word_counts() -> None:
    changed = override(BASE, ["epochs=5", "lr=0.5", "epochs=6"])
    assert changed == replace(BASE, epochs=6, lr=0.5)
    assert override(BASE, []) == BASE


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("epochs", "--set 'epochs' is not of the form key=value"),
        ("epoch=3", "unknown setting 'epoch': did you mean 'epochs'? Accepted: "),
        ("=3", "unknown setting ''"),
        ("epochs=many", "setting epochs takes a whole number, not 'many'"),
        ("epochs=1.5", "setting epochs takes a whole number, not '1.5'"),
        ("epochs=none", "setting epochs takes a whole number, not 'none'"),
        ("batch=all", "setting batch takes a whole number, not 'all'"),
        ("lr=fast", "setting lr takes a number, not 'fast'"),
        ("hidden=100;50", "setting hidden takes whole numbers with commas between, not '100;50'"),
        ("hidden=", "setting hidden takes whole numbers with commas between, not ''"),
        ("estimator=locl", "unknown estimator 'locl': did you mean 'local'? Accepted: local, weights."),
        ("predictive=both", "unknown predictive 'both': Accepted: joint, per-head."),
        ("heads=singel", "unknown heads 'singel': did you mean 'single'? Accepted: multi, single."),
        ("fisher=exact", "unknown fisher 'exact': "),
        ("anchor=mine", "unknown anchor 'mine': "),
    ],
)
def test_override_says_what_is_wrong(pair: str, message: str) -> None:
    with pytest.raises(VclError, match=re.escape(message)):
        override(BASE, [pair])


def test_an_unknown_setting_is_answered_with_all_that_there_are() -> None:
    with pytest.raises(VclError, match="unknown setting") as refused:
        override(BASE, ["colour=red"])
    assert all(field.name in str(refused.value) for field in fields(Settings))


@pytest.mark.parametrize(
    "name", ["tasks", "epochs", "coreset_epochs", "draws", "predict_draws", "seeds", "coreset", "filter_batch"]
)
@pytest.mark.parametrize("value", [0, -2])
def test_counts_are_at_least_one(name: str, value: int) -> None:
    with pytest.raises(VclError, match=f"{name} is {value}; give at least 1"):
        override(BASE, [f"{name}={value}"])


@pytest.mark.parametrize("name", ["batch", "coreset_batch", "train_limit", "test_limit", "fisher_samples"])
def test_sizes_are_above_zero_or_none(name: str) -> None:
    with pytest.raises(VclError, match=f"{name} is 0; give a number above 0"):
        override(BASE, [f"{name}=0"])
    assert getattr(override(BASE, [f"{name}=none"]), name) is None


@pytest.mark.parametrize("name", ["lr", "init_var", "init_sd", "prior_var", "damping"])
@pytest.mark.parametrize("value", ["0", "-0.1", "nan"])
def test_numbers_are_above_zero(name: str, value: str) -> None:
    with pytest.raises(VclError, match=f"{name} is .*; give a number above 0"):
        override(BASE, [f"{name}={value}"])


@pytest.mark.parametrize("name", RANGES)
def test_numbers_are_within_their_range(name: str) -> None:
    least, most = RANGES[name]
    called = "lambda" if name == "lam" else name
    for value in (least, most):
        assert getattr(override(BASE, [f"{called}={value}"]), name) == value
    for value in (most * 1.1, 1e30, 1e300, *((least / 1.1, 1e-300) if least else ())):
        with pytest.raises(
            VclError, match=f"^{called} is {value}; give a number from {least:g}.* to {most:g}.$".replace("+", r"\+")
        ):
            override(BASE, [f"{called}={value}"])


@pytest.mark.parametrize("field", [field.name for field in fields(Settings) if re.search(r"\bint\b", field.type)])
def test_counts_have_a_largest(field: str) -> None:
    most = MOST_OF.get(field, MOST)
    for value in (most + 1, 10**20):
        with pytest.raises(VclError, match=f"^{field} is {value}; give at most {most:,}.$"):
            override(BASE, [f"{field}={value}"])


def test_an_order_of_many_tasks_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(VclError, match="name each of 0 to 9999 once"):
        override(BASE, ["tasks=10000", "order=0,1,2"])


@pytest.mark.parametrize("hidden", [(), (8, 0), (-1,)])
def test_there_is_at_least_one_hidden_layer_of_one_unit(hidden: tuple[int, ...]) -> None:
    with pytest.raises(VclError, match=re.escape(f"hidden is {hidden}; give at least one layer")):
        check(replace(BASE, hidden=hidden))


@pytest.mark.parametrize("order", ["0,1", "0,1,1", "1,2,3"])
def test_an_order_names_every_task_once(order: str) -> None:
    with pytest.raises(VclError, match=r"order is .*; name each of 0,1,2 once"):
        override(BASE, [f"order={order}"])
    assert override(BASE, ["order=2,0,1"]).order == (2, 0, 1)
