"""When two descriptions are of the same numbers: each sentence of the policy in `vcl.lab.identity`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal

import pytest

from vcl.errors import VclError
from vcl.lab.identity import MISSING, another, check_used, described, same, unused, uses
from vcl.lab.plan import Plan, make_plan


@dataclass(frozen=True)
class Inner:
    size: int
    rate: float = 0.1


@dataclass(frozen=True)
class Outer:
    name: str
    widths: tuple[int, ...] = (3, 4)
    batch: int | None = None
    inner: Inner = field(default_factory=lambda: Inner(1))


def stored(value: Any) -> Any:
    """As a file gives it back."""
    return json.loads(json.dumps(described(value)))


def test_a_description_holds_every_value_those_at_a_default_too() -> None:
    assert described(Outer("a")) == {
        "": "Outer", "name": "a", "widths": [3, 4], "batch": None, "inner": {"": "Inner", "size": 1, "rate": 0.1}
    }  # fmt: skip


def test_what_is_stored_equals_today() -> None:
    for value in (Outer("a"), Outer("a", (), 3, Inner(2, 1e-7)), {"plain": 1, "made": Inner(2)}):
        assert same(stored(value), value)


@pytest.mark.parametrize(
    "other", [Outer("b"), Outer("a", (3, 5)), Outer("a", batch=1), Outer("a", inner=Inner(2)), Inner(1), None, 3]
)
def test_a_changed_value_is_another(other: Any) -> None:
    assert not same(stored(Outer("a")), other)
    assert not same(stored(other), Outer("a"))


def changed(**defaults: Any) -> Any:
    """`Inner` as it may look later."""
    return make_dataclass(
        "Inner",
        [("size", int), *((name, float, field(default=value)) for name, value in defaults.items())],
        frozen=True,
    )


def test_a_changed_default_is_another() -> None:
    assert same(stored(Inner(2)), changed(rate=0.1)(2))
    assert not same(stored(Inner(2)), changed(rate=0.2)(2))


def test_a_field_that_was_added_later_leaves_it_the_same_at_its_default_only() -> None:
    later = changed(rate=0.1, more=5.0)
    assert same(stored(Inner(2)), later(2))
    assert not same(stored(Inner(2)), later(2, more=6.0))
    assert same({"inner": stored(Inner(2))}, {"inner": later(2)})


def test_a_field_without_a_default_that_was_added_later_is_another() -> None:
    later = make_dataclass("Inner", ["size", "more"], frozen=True)
    assert not same(stored(Inner(2)), later(2, 0.1))


def test_a_field_that_is_gone_is_another() -> None:
    assert not same(stored(Inner(2)), changed()(2))


def test_another_class_of_the_same_fields_is_another() -> None:
    assert not same(stored(Inner(2)), make_dataclass("Other", ["size", "rate"])(2, 0.1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 3), (float, 0.0), (float, 2.5), (int | None, None), (int | None, 4), (tuple[int, ...], ()),
     (tuple[int, ...], (3, 4)), (Literal["a", "b"], "a"), (Literal["a", "b"], "b")],
)  # fmt: skip
def test_another_value_is_another(kind: Any, value: Any) -> None:
    assert another(kind, value) not in (value, MISSING)


def test_a_setting_with_one_value_has_no_other() -> None:
    assert another(Literal["a"], "a") is MISSING


def plan(methods: str, *changes: str, name: str = "split-digits") -> Plan:
    return make_plan(name, methods, "smoke", None, "cpu", changes)


@pytest.mark.parametrize(
    ("methods", "change", "name"),
    [
        ("si", "average=0.5", "split-digits"),
        ("mle", "draws=3", "split-digits"),
        ("vcl", "coreset=3", "split-digits"),
        ("vcl,mle,ewc", "particles=10", "split-digits"),
        ("mle,si", "prior_var=2", "split-digits"),
        ("random-only", "epochs=3", "split-digits"),
        ("vcl", "matmul=tf32", "split-digits"),
        ("mle", "lambda=3", "split-digits"),
        ("vcl", "predictive=joint", "generative-digits"),
        ("si", "average=0.5", "generative-digits"),
    ],
)
def test_a_setting_that_no_method_uses_is_refused(methods: str, change: str, name: str) -> None:
    key = change.partition("=")[0]
    with pytest.raises(
        VclError, match=rf"setting {key} changes nothing for {', '.join(methods.split(','))} on cpu; lea"
    ):
        check_used([plan(methods, change, name=name)])


def test_a_setting_that_one_of_the_methods_uses_is_taken() -> None:
    chosen = plan("mle,vcl", "draws=3")
    check_used([chosen])
    assert [uses(chosen, entry, "draws") for entry in chosen.methods] == [False, True]


def test_a_setting_at_the_value_that_it_has_is_taken() -> None:
    chosen = plan("vcl", "epochs=2", "draws=2")
    assert chosen.settings == plan("vcl").settings
    check_used([chosen])


def test_what_can_be_set_is_named() -> None:
    with pytest.raises(VclError, match=r"What can be set here: .*\blambda\b.*\blr\b") as caught:
        check_used([plan("si", "draws=3")])
    assert "average" not in str(caught.value)


def test_methods_that_do_not_use_a_setting_are_named() -> None:
    made = make_plan("split-digits", "vcl,ewc,vcl-random", "smoke", 1, "cpu", ["coreset=2", "lambda=3", "epochs=1"])
    assert unused(made) == [
        "note: setting coreset changes nothing for vcl, ewc; it is for vcl-random.",
        "note: setting lambda changes nothing for vcl, vcl-random; it is for ewc.",
    ]
    # One that nobody uses is refused elsewhere, by check_used.
    assert unused(make_plan("split-digits", "vcl,mle", "smoke", 1, "cpu", ["coreset=2"])) == []
