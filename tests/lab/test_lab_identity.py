"""When two descriptions are of the same numbers: each sentence of the policy in `vcl.lab.identity`."""

from __future__ import annotations

import json
import operator
import re
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import isnan
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from lab_made import alone, call, fault

from vcl.errors import VclError
from vcl.lab import registry
from vcl.lab.identity import Flat, at_default, described, description, digest_of_made, identity, same, same_stored
from vcl.lab.plan import Plan, check_used, make_plan, unused, uses
from vcl.lab.registry import code_of, experiment, load_file, method
from vcl.lab.settings import BEFORE, read_values, values_of, with_values


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
        "name": "a", "widths": [3, 4], "batch": None, "inner": {"size": 1, "rate": 0.1}
    }  # fmt: skip
    assert described(Flat(Outer("a"))) == {"name": "a", "widths": [3, 4], "batch": None, "size": 1, "rate": 0.1}


def test_what_is_stored_equals_today() -> None:
    for value in (
        Outer("a"), Outer("a", (), 3, Inner(2, 1e-7)), {"plain": 1, "made": Inner(2)}, Flat(Outer("a")),
        [Inner(2), torch.arange(3.0)],
    ):  # fmt: skip
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


@dataclass(frozen=True)
class Later(Inner):
    more: float = field(default=7.0, metadata={BEFORE: 5.0})


@dataclass(frozen=True)
class Around:
    inner: Later = field(default_factory=lambda: Later(2))


@dataclass(frozen=True)
class AroundAgain:
    inner: Later = field(default_factory=lambda: Later(2), metadata={BEFORE: Later(2, more=6.0)})


def test_trap_a_default_that_changes_after_the_field_was_added_is_no_value_of_parts_without_it() -> None:
    """They were computed with the first default, 5, whatever the default is now."""
    assert not same(stored(Inner(2)), Later(2))
    assert same(stored(Inner(2)), Later(2, more=5.0))
    for at, kind, before in ((7.0, Around, 5.0), (5.0, Around, 5.0), (5.0, AroundAgain, 6.0), (6.0, AroundAgain, 6.0)):
        settings = Flat(kind(Later(2, more=at)))
        assert same(stored(Flat(Inner(2))), settings) == (at == before)
        assert same(stored(settings), settings)


@dataclass(frozen=True)
class Held:
    values: Any = field(default_factory=lambda: torch.zeros(3))


def test_a_tensor_that_was_added_later_is_compared_by_its_content() -> None:
    assert same({}, Held())
    assert not same({}, Held(torch.ones(3)))


def test_two_stored_descriptions_follow_the_policy() -> None:
    """What is stored with the newer one says which of its fields an older one may lack."""
    later = changed(rate=0.1, more=5.0)
    before, plain, other = {"a": stored(Inner(2))}, {"a": later(2)}, {"a": later(2, more=6.0)}
    assert list(at_default(plain)) == ["a.rate", "a.more"]
    assert list(at_default(other)) == ["a.rate"]
    assert list(at_default({"a": Flat(Nested(Inner(3, 0.7)))})) == ["a.rate"]
    for newer in (plain, other, {"a": later(3)}, {"a": changed()(2)}):
        assert same_stored(before, stored(newer), list(at_default(newer))) == same(before, newer)
    assert not same_stored(before, stored(plain), ()), "nothing is known of its defaults"
    assert not same_stored(stored(plain), before, ["a.rate"]), "a field is gone"
    assert not same_stored(before, 3, ())


def test_a_field_without_a_default_that_was_added_later_is_another() -> None:
    later = make_dataclass("Inner", ["size", "more"], frozen=True)
    assert not same(stored(Inner(2)), later(2, 0.1))


def test_a_field_that_is_gone_is_another() -> None:
    assert not same(stored(Inner(2)), changed()(2))


def test_the_name_of_a_class_is_not_in_a_description() -> None:
    other = make_dataclass("Other", [("size", int), ("rate", float)])
    assert same(stored(Inner(2)), other(2, 0.1))
    assert "Inner" not in json.dumps(described(Outer("a")))
    for entry in (method("vcl-random"), method("ewc")):
        made = plan(entry.name)
        text = json.dumps(described(about(made)))
        kinds = (entry.settings, type(made.build(entry).project), type(made.setup.stream), type(made.setup.network))
        assert not any(f'"{kind.__name__}"' in text for kind in kinds)


@dataclass(frozen=True)
class Nested:
    inner: Inner = field(default_factory=lambda: Inner(1, 0.7))


def test_a_nested_setting_that_was_added_later_is_compared_with_its_default_there() -> None:
    """Inner has 0.1 of its own, but 0.7 within Nested."""
    before = {"size": 1}
    assert same(before, Flat(Nested()))
    assert not same(before, Flat(Nested(Inner(1, 0.1))))


@pytest.mark.parametrize("value", [torch.arange(3.0), torch.arange(3), torch.zeros(2, 2)])
def test_tensors_are_told_by_their_content(value: torch.Tensor) -> None:
    assert same(stored(value), value.clone())
    assert not same(stored(value), value + 1)


def test_a_function_is_told_by_its_name_and_an_object_by_its_fields() -> None:
    class Rule:
        def __init__(self, k: int) -> None:
            self.k = k

    assert described(torch.relu) != described(torch.tanh)
    assert described(Rule(3)) == {"k": 3}
    assert not same(stored(Rule(3)), Rule(4))


class Slotted:
    __slots__ = ("__hidden", "k")

    def __init__(self, k: int, hidden: int) -> None:
        self.k, self.__hidden = k, hidden


@pytest.mark.parametrize(
    "value",
    [
        Decimal(1), date(2020, 1, 2), deque([1]), slice(1, 2), bytearray(b"a"), re.compile("a"), iter([1]),
        (each for each in [1]), np.ma.array([1, 2], mask=[0, 1]), np.array([None]), operator.itemgetter(1), Lock(),
        torch.Generator(), np.random.default_rng(0), torch.eye(2).to_sparse(), json,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_trap_two_values_that_no_description_tells_apart_are_refused_by_their_type(value: Any) -> None:
    """They were described as {}, so that two settings were one part."""
    with pytest.raises(VclError, match=rf"^built\.inner is of the type .*{type(value).__name__}, two of which cannot"):
        described({"built": {"inner": value}})
    with pytest.raises(VclError, match="cannot be told apart"):
        description(plan("vcl"), method("vcl"), "digest", {"shift": value})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Path("/a"), Path("/b")), (np.array(["a"]), np.array(["b"])), (np.datetime64("2020"), np.datetime64("2021")),
        (np.complex64(1), np.complex64(2)), (np.longdouble(1), np.longdouble(2)), (np.exp, np.tanh),
        (np.arange(3)[::-1], np.arange(3)), (Slotted(1, 2), Slotted(1, 3)), (float("nan"), 0.0),
        (Inner(1).__eq__, Inner(2).__eq__), (np.array(["2020"], "M8[Y]"), np.array(["2021"], "M8[Y]")),
        (np.dtype("f4"), np.dtype("f8")), (Fraction(1, 3), Fraction(1, 2)),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],  # every worker must see the same names
)  # fmt: skip
def test_what_is_told_by_its_content_is_itself_and_no_other(one: Any, other: Any) -> None:
    assert same(stored(one), one)
    assert not same(stored(one), other)
    assert not same(stored(other), one)


def test_a_path_is_told_by_its_text() -> None:
    path = Path("/a/b")
    hash(path)  # which it keeps, and which is another in every process
    assert described({"file": path}) == {"file": "/a/b"}


def test_a_setting_that_is_no_number_is_read_again() -> None:
    kind = make_dataclass("Mine", [("rate", float)])
    assert isnan(read_values(kind, stored(kind(float("nan")))).rate)


# The description of a part.


def about(made: Plan, data: str | None = "digest", **prepared: Any) -> dict[str, Any]:
    """That of the first method."""
    return description(made, made.methods[0], data, prepared)


def one(before: Plan, after: Plan) -> bool:
    """Whether what is stored of one is used for the other."""
    both = {same(stored(about(before)), about(after)), same(stored(about(after)), about(before))}
    assert len(both) == 1
    (found,) = both
    assert found == (identity(described(about(before))) == identity(described(about(after))))
    return found


def test_a_description_is_complete() -> None:
    made = plan("vcl-random")
    found = described(about(made, classifier="sum"))
    assert list(found) == [
        "format", "experiment", "data", "stream", "network", "method", "prediction", "device", "matmul"
    ]  # fmt: skip
    assert found["experiment"] == {"name": "split-digits", "version": 1}
    assert found["data"] == "digest"
    for part in ("stream", "network"):
        assert found[part] == stored(values_of(getattr(made.setup, part)))
    assert found["method"]["settings"] == stored(values_of(made.settings_of(made.methods[0])))
    assert found["prediction"] == {"settings": stored(values_of(made.setup.prediction)), "classifier": "sum"}
    assert (found["device"], found["matmul"]) == ("cpu", "float32")
    assert found["method"]["built"], "what was built from the settings: its values count too"


CHANGES = [
    "tasks=3", "heads=single", "order=1,0", "train_limit=50", "test_limit=50", "hidden=7", "prior_var=2", "epochs=3",
    "lr=0.3", "draws=3", "coreset=3", "predictive=joint", "predict_draws=4", "predict_estimator=local", "init_sd=0.3",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_is_another_part(change: str) -> None:
    assert not one(plan("vcl-random"), plan("vcl-random", change))


def test_other_data_another_dataset_and_another_judge_are_other_parts() -> None:
    made = plan("vcl")
    assert same(stored(about(made, "a")), about(made, "a"))
    assert not same(stored(about(made, "a")), about(made, "b"))
    assert not same(stored(about(made, None)), about(made, "b"))
    assert not same(stored(about(made, judge="a")), about(made, judge="b"))


def test_another_device_and_another_precision_there_are_other_parts() -> None:
    cpu = plan("vcl")
    gpu = replace(cpu, device=torch.device("cuda"))
    assert not one(cpu, gpu)
    assert not one(gpu, replace(plan("vcl", "matmul=tf32"), device=torch.device("cuda")))
    assert one(cpu, plan("vcl", "matmul=tf32")), "CPUs never round factors"
    assert one(gpu, replace(cpu, device=torch.device("cuda:1")))


@pytest.mark.parametrize("name", ["vcl", "ewc"])
def test_seeds_and_lambdas_are_not_in_it(name: str) -> None:
    made = plan(name)
    assert one(made, plan(name, "seeds=7"))
    if name == "ewc":
        assert one(made, plan(name, "lambda=7"))
        assert one(made, make_plan("split-digits", name, "smoke", None, "cpu", (), "lambda=1,10"))
    text = json.dumps(described({**about(plan(name, "seeds=7771")), "format": 0}))
    assert "7771" not in text
    assert "lam" not in described(about(made))["method"]["settings"]


def test_where_a_value_comes_from_is_not_in_it() -> None:
    made = plan("vcl")
    assert one(made, plan("vcl", "epochs=2", "vcl.draws=2"))
    assert one(made, replace(made, preset="paper"))
    assert one(made, plan("vcl,ewc")), "nor are the other methods"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mle", "prior_var=2"), ("ewc", "prior_var=2"), ("si", "prior_var=2"),
        ("mle", "predict_draws=7"), ("ewc", "predict_estimator=local"), ("vcl", "matmul=tf32"),
    ],
)  # fmt: skip
def test_a_setting_that_a_method_does_not_use_is_not_in_it(name: str, change: str) -> None:
    assert one(plan(name), plan(name, change))
    key = change.partition("=")[0]
    assert not uses(plan(name), method(name), "", key)
    used = plan("vcl-random")
    assert key == "matmul" or not one(used, plan("vcl-random", change))


def test_a_method_that_does_not_have_a_setting_is_the_same_whatever_others_are_given() -> None:
    both = plan("mle,vcl", "draws=7")
    assert same(stored(about(plan("mle"))), about(both))
    assert not same(stored(description(plan("mle,vcl"), method("vcl"), "digest", {})),
                    description(both, method("vcl"), "digest", {}))  # fmt: skip


def test_the_version_of_a_method_and_of_an_experiment_count() -> None:
    made = plan("vcl")
    assert not one(made, replace(made, methods=(made.methods[0]._replace(version=2),)))
    assert not one(made, replace(made, experiment=made.experiment._replace(version=2)))
    assert code_of(method("vcl")) is code_of(experiment("split-digits")) is None


def test_a_field_that_methods_had_not_before() -> None:
    """A stored part without it is the same only at its default, and one with a field that is gone is another."""
    made = plan("vcl-random")
    before = stored(about(made))
    del before["method"]["settings"]["average"]
    assert same(before, about(made))
    assert not same(before, about(plan("vcl-random", "average=0.5")))
    before["method"]["settings"]["gone"] = 3
    assert not same(before, about(made))


def test_renaming_the_settings_of_a_method_changes_nothing() -> None:
    made = plan("vcl")
    entry = made.methods[0]
    renamed = type("Renamed", (entry.settings,), {})
    found = described(Flat(with_values(renamed(), values_of(made.settings_of(entry)))))
    assert found == described(Flat(made.settings_of(entry)))


# Plugins.

PLUGIN = """
from dataclasses import dataclass
from functools import partial

from vcl.lab.experiments.digits import SPLIT_DIGITS
from vcl.lab.methods.entry import MethodEntry
from vcl.projections import MaximumLikelihood
from vcl.recursion import Method


@dataclass(frozen=True)
class Mine:
    size: int = 1


def build(s):
    return Method(MaximumLikelihood())


MINE = MethodEntry("mine", "mine", Mine, build)
PARTIAL = MethodEntry("partial", "mine too", Mine, partial(build))
REUSED = SPLIT_DIGITS._replace(name="reused", model=lambda s, shape: SPLIT_DIGITS.model(s, shape))
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write a plugin and load it as a new process would."""
    monkeypatch.setattr(registry, "FILES", {})

    def load(text: str) -> None:
        registry.FILES.clear()
        (tmp_path / "mine.py").write_text(text)
        load_file(tmp_path / "mine.py")

    return load


@pytest.mark.parametrize("edit", ["# a comment\n", "x = 3\n"])
def test_an_edited_plugin_is_another_part(plugin: Callable[[str], None], edit: str) -> None:
    def found() -> list[Any]:
        wanted = (("split-digits", "mine"), ("split-digits", "partial"), ("reused", "vcl"))
        return [stored(about(make_plan(name, entry, "smoke", None, "cpu"))) for name, entry in wanted]

    plugin(PLUGIN)
    first = found()
    plugin(PLUGIN)
    assert found() == first, "read again, it is the same"
    plugin(PLUGIN + edit)
    assert all(before != after for before, after in zip(first, found(), strict=True))
    assert "code" in first[0]["method"]
    assert "code" not in first[0]["experiment"]
    assert "code" in first[2]["experiment"]
    assert "code" not in first[2]["method"]


def test_where_a_plugin_lies_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FILES", {})
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.py").write_text(PLUGIN)
        registry.FILES.clear()
        load_file(tmp_path / folder / f"{folder}.py")
        found.append(code_of(method("mine")))
    assert found[0] == found[1] is not None


def code_after(place: Path, edited: Path, text: str) -> tuple[str | None, str | None]:
    """The code of the method `mine` of a plugin before and after another file is written."""
    found = []
    for step in (False, True):
        if step:
            edited.write_text(text)
        registry.FILES.clear()
        load_file(place)
        found.append(code_of(method("mine")))
    return found[0], found[1]


IMPORTS = ["import near", "from near import x", "from near_too import x", "import far.deep", "from far import deep"]


@pytest.mark.parametrize("line", [*IMPORTS, "def later():\n    import near"])
def test_what_a_plugin_imports_from_its_folder_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(registry, "FILES", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "deep.py").write_text("from . import base")
    for name in ("near", "far/base", "unused"):
        (tmp_path / f"{name}.py").write_text("x = 1")
    (tmp_path / "near_too.py").write_text("from near import x")
    (tmp_path / "mine.py").write_text(f"{PLUGIN}\n{line}\n")
    edited = tmp_path / ("far/base.py" if "far" in line else "near.py")
    first, second = code_after(tmp_path / "mine.py", edited, "x = 2")
    assert first != second
    assert code_after(tmp_path / "mine.py", tmp_path / "unused.py", "x = 2") == (second, second)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("near", "near_too", "far")]:
        del sys.modules[name]


def test_the_package_that_a_file_lies_in_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FILES", {})
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "near.py").write_text("x = 1")
    (package / "mine.py").write_text(f"{PLUGIN}\ndef later():\n    from own_package.near import x\n")
    first, second = code_after(package / "mine.py", package / "near.py", "x = 2")
    assert first != second


def test_a_plugin_that_is_edited_after_it_was_loaded_counts_as_loaded(
    plugin: Callable[[str], None], tmp_path: Path
) -> None:
    plugin(PLUGIN)
    before = code_of(method("mine"))
    (tmp_path / "mine.py").write_text(PLUGIN + "# edited while it runs\n")
    assert code_of(method("mine")) == before


MAKER = """
from dataclasses import dataclass
from pathlib import Path

import torch

from vcl.lab.plugin import Experiment, Mlp, Prediction, RunSettings, Setup, UserTask, from_arrays


@dataclass(frozen=True)
class Own:
    scale: float = 1.0


def stream(data, s, rng):
    x = s.scale * torch.tensor([float(each) for each in Path(__file__).with_name("x.txt").read_text().split()])[:, None]
    y = torch.arange(len(x)) % 2
    return from_arrays([UserTask("only", x, y, x, y, units=2)], len(rng.seeds))


SETUP = Setup(Own(), Mlp((3,)), Prediction(), RunSettings(1), {"epochs": 1})
MAKER = Experiment(
    "maker", "reads a file", {name: SETUP for name in ("paper", "quick", "smoke")}, stream, makes_data=True
)
"""


def test_the_data_that_a_plugin_makes_is_part_of_it(plugin: Callable[[str], None], tmp_path: Path) -> None:
    def digest(text: str) -> str | None:
        (tmp_path / "x.txt").write_text(text)
        made = experiment("maker")
        return digest_of_made(made, made.presets["paper"].stream)

    plugin(MAKER)
    assert digest("1 2 3 4") == digest("1 2 3 4") is not None
    assert len({digest("1 2 3 4"), digest("1 2 3 5"), digest("1 2 3")}) == 3
    sine = experiment("sine")
    assert digest_of_made(sine, sine.presets["smoke"].stream) is None, "vcl's own have versions"
    assert digest_of_made(experiment("split-digits"), None) is None, "a dataset has a digest of its own"


def test_other_data_that_a_plugin_makes_is_computed_and_refused_for_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FILES", {})
    here = alone(tmp_path, monkeypatch)
    (here / "maker.py").write_text(MAKER)
    for number, text in enumerate(("1 2 3 4", "1 2 3 4", "1 2 3 5")):
        (here / "x.txt").write_text(text)
        assert call("run maker --method vcl --device cpu --plugin maker.py --out out").exit_code == 0
        assert len(list((here / "out" / "parts").iterdir())) == (1, 1, 2)[number]
    (here / "x.txt").write_text("1 2 3 6")
    part = min((here / "out" / "parts").iterdir())
    said = fault(f"predict {part} --method vcl --task only --plugin maker.py --out p.csv")
    assert said.startswith(f"maker here is not the data that {part.name} was computed with; give your own inputs")


# What is refused.


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
        ("vcl", "coreset=3", "generative-digits"),
        ("vcl", "ewc.lambda=3", "split-digits"),
        ("si", "average=0.5", "generative-digits"),
    ],
)
def test_a_setting_that_no_method_uses_is_refused(methods: str, change: str, name: str) -> None:
    key = change.partition("=")[0].rpartition(".")[2]
    with pytest.raises(
        VclError, match=rf"setting {key} changes nothing for {', '.join(methods.split(','))} on cpu; lea"
    ):
        check_used([plan(methods, change, name=name)])


def test_a_setting_that_one_of_the_methods_uses_is_taken() -> None:
    chosen = plan("mle,vcl", "draws=3")
    check_used([chosen])
    assert [uses(chosen, entry, "", "draws") for entry in chosen.methods] == [False, True]
    assert [uses(chosen, entry, "vcl", "draws") for entry in chosen.methods] == [False, True]
    assert [uses(chosen, entry, "network", "hidden") for entry in chosen.methods] == [True, True]


def test_a_setting_at_the_value_that_it_has_is_taken() -> None:
    chosen = plan("vcl", "epochs=2", "draws=2")
    assert chosen.setup == plan("vcl").setup
    assert chosen.settings_of(chosen.methods[0]) == plan("vcl").settings_of(chosen.methods[0])
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


def test_a_setting_that_no_method_has_anywhere_is_unknown() -> None:
    with pytest.raises(VclError, match="unknown setting 'predictive': did you mean 'private'"):
        plan("vcl", "predictive=joint", name="generative-digits")


def test_values_of_other_libraries_and_partial_functions_are_described_by_what_they_hold() -> None:
    different = [
        torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.bfloat16),
        np.zeros(4, np.float32) + 1, np.int64(3), np.float32(0.5), torch.float32, torch.device("cpu"), {1, 2}, {1, 3},
        b"ab", range(3), 1j, partial(max, 1), partial(max, 2), partial(min, 1), partial(max, key=abs),
    ]  # fmt: skip
    made = [json.dumps(described(value)) for value in different]
    assert len(set(made)) == len(made)
    assert "{}" not in made


@pytest.mark.parametrize("change", ["curvature_rounds=9", "curvature_draws=2", "lp-kron.curvature_rounds=9"])
def test_a_setting_that_another_one_makes_idle_is_refused(change: str) -> None:
    """It was another part, with a line of its own and the same numbers."""
    with pytest.raises(VclError, match=r"^setting curvature_\w+ changes nothing for lp-kron on cpu; leave it out\."):
        check_used([plan("lp-kron", "curvature=mode", change)])
    check_used([plan("lp-kron", change)])
