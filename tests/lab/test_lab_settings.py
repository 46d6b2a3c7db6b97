from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from math import isfinite, nextafter
from typing import Annotated, Any, Literal

import pytest
from lab_made import alone, call, fault

from vcl.errors import VclError
from vcl.lab.experiments import EXPERIMENTS
from vcl.lab.experiments.experiment import PARTS, PRESETS, RunSettings
from vcl.lab.experiments.split import Split
from vcl.lab.methods.generators import GENERATIVE_METHODS
from vcl.lab.methods.networks import METHODS, Ewc, Si, Vcl
from vcl.lab.networks import Mlp
from vcl.lab.plan import Plan, make_plan
from vcl.lab.settings import (
    BEFORE,
    Count,
    Layers,
    Limit,
    Positive,
    Setting,
    assign,
    check,
    parse,
    read_values,
    settings_in,
    split_change,
    text_of,
    values_of,
    with_values,
)

METHOD_NAMES = ("vcl-random", "ewc", "si", "adf", "smc")
"""Between them they have every setting of classifiers."""


def base(*changes: str, methods: str = ",".join(METHOD_NAMES)) -> Plan:
    return make_plan("split-digits", methods, "smoke", None, "cpu", changes)


def values(plan: Plan) -> dict[str, dict[str, Any]]:
    """Every value of a plan, by part."""
    shared = {part: values_of(getattr(plan.setup, part)) for part in PARTS}
    return shared | {entry.name: values_of(plan.settings_of(entry)) for entry in plan.methods}


def with_value(key: str, value: Any) -> dict[str, dict[str, Any]]:
    """Those of the plan without changes, but for one value."""
    return {part: {**own, **({key: value} if key in own else {})} for part, own in values(base()).items()}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("tasks=3", 3),
        ("hidden=100,50", (100, 50)),
        ("hidden=30", (30,)),
        ("batch=none", None),
        ("batch=32", 32),
        ("train_limit=500", 500),
        ("lr=3e-4", 3e-4),
        ("lr=1", 1.0),
        ("predictive=joint", "joint"),
        ("estimator=weights", "weights"),
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
        ("order=1,0", (1, 0)),
        ("order=none", ()),
    ],
)
def test_every_kind_of_value_is_read(pair: str, value: Any) -> None:
    key = pair.partition("=")[0]
    changed = values(base(pair))
    having = [own[key] for own in changed.values() if key in own]
    assert having == [value] * len(having)
    assert having
    assert {type(each) for each in having} == {type(value)}
    assert changed == with_value(key, value), "nothing else changes"


def test_lambda_goes_by_its_own_name() -> None:
    assert values(base("lambda=0.5")) == with_value("lam", 0.5)
    assert values(base("lambda=0"))["ewc"]["lam"] == 0.0
    with pytest.raises(VclError, match="unknown setting 'lamda': did you mean 'lambda'"):
        base("lamda=1")
    with pytest.raises(VclError, match="setting lambda takes a number, not 'much'"):
        base("lambda=much")


@pytest.mark.parametrize("value", ["-1", "-0.001", "nan", "inf"])
def test_lambda_is_a_number_from_zero_up(value: str) -> None:
    with pytest.raises(VclError, match=r"lambda is .*; give a number from 0 \(which forgets\) to 1e\+12"):
        base(f"lambda={value}")


@pytest.mark.parametrize("value", [1, 0, -5])
def test_there_are_at_least_two_particles(value: int) -> None:
    with pytest.raises(VclError, match=f"particles is {value}; give at least 2"):
        base(f"particles={value}")


def test_there_may_be_many_changes_and_the_last_word_counts() -> None:
    assert values(base("epochs=5", "lr=0.5", "epochs=6")) == values(base("epochs=6", "lr=0.5"))
    assert values(base("epochs=6"))["ewc"]["epochs"] == 6


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("epochs", "--set 'epochs' is not of the form key=value"),
        ("epoch=3", "unknown setting 'epoch': did you mean 'epochs'? Accepted: "),
        ("=3", "unknown setting ''"),
        ("epochs=many", "setting epochs takes a whole number, not 'many'"),
        ("epochs=1.5", "setting epochs takes a whole number, not '1.5'"),
        ("epochs=none", "setting epochs takes a whole number, not 'none'"),
        ("batch=None", "setting batch takes a whole number or none, not 'None'"),
        ("lr=fast", "setting lr takes a number, not 'fast'"),
        ("hidden=100;50", "setting hidden takes whole numbers with commas between, not '100;50'"),
        ("hidden=", "setting hidden takes whole numbers with commas between, not ''"),
        ("estimator=locl", "unknown estimator 'locl': did you mean 'local'? Accepted: local, weights."),
        ("predictive=both", "unknown predictive 'both'; accepted: joint, per-head."),
        ("heads=singel", "unknown heads 'singel': did you mean 'single'? Accepted: multi, shared, single."),
        ("fisher=exact", "unknown fisher 'exact'; accepted: "),
        ("anchor=mine", "unknown anchor 'mine'; accepted: "),
    ],
)
def test_what_is_wrong_is_said(pair: str, message: str) -> None:
    with pytest.raises(VclError, match=re.escape(message)):
        base(pair)


def test_an_unknown_setting_is_answered_with_all_that_there_are() -> None:
    with pytest.raises(VclError, match="unknown setting") as refused:
        base("colour=red")
    accepted = str(refused.value).partition("Accepted: ")[2].rstrip(".").split(", ")
    known = {setting for own in values(base()).values() for setting in own}
    assert set(accepted) == known - {"lam"} | {"lambda"}


@pytest.mark.parametrize(
    "name", ["tasks", "epochs", "coreset_epochs", "draws", "predict_draws", "seeds", "coreset", "filter_batch"]
)
@pytest.mark.parametrize("value", [0, -2])
def test_counts_are_at_least_one(name: str, value: int) -> None:
    with pytest.raises(VclError, match=f"{name} is {value}; give at least 1"):
        base(f"{name}={value}")


@pytest.mark.parametrize("name", ["batch", "coreset_batch", "train_limit", "test_limit", "fisher_samples"])
def test_sizes_are_above_zero_or_none(name: str) -> None:
    with pytest.raises(VclError, match=f"^{name} is 0; give at least 1.$"):
        base(f"{name}=0")
    assert values(base(f"{name}=none")) == with_value(name, None)


@pytest.mark.parametrize("name", ["lr", "init_var", "init_sd", "prior_var", "damping"])
@pytest.mark.parametrize("value", ["0", "-0.1", "nan", "inf"])
def test_numbers_are_above_zero(name: str, value: str) -> None:
    finite = r"finite " if value in ("nan", "inf") else ""
    with pytest.raises(VclError, match=rf"^{name} is .*; give a ({finite}number above 0|number from 1e-\d+ to .*)\.$"):
        base(f"{name}={value}")


# Limits, of every setting that there is.


def classes() -> dict[str, type]:
    """Every class of settings of vcl itself: of each part, and of each method."""
    found: dict[str, type] = {}
    for each in EXPERIMENTS:
        for preset in PRESETS:
            for part in PARTS:
                kind = type(getattr(each.presets[preset], part))
                found[f"{part} {kind.__name__}"] = kind
    for entry in (*METHODS, *GENERATIVE_METHODS):
        found[f"{entry.models} {entry.name}"] = entry.settings
    return found


CLASSES = classes()
LIMITED = [
    (owner, setting) for owner, kind in CLASSES.items() for setting in settings_in(kind).values() if setting.limit
]
EVERY = [pytest.param(*each, id=f"{each[0]} {each[1].name}") for each in LIMITED]


def one(setting: Setting, value: Any) -> Any:
    """A value as the setting takes it."""
    return (value,) if isinstance(setting.default, tuple) else value


def checked(owner: str, setting: Setting, value: Any) -> None:
    check(with_values(CLASSES[owner](), {setting.name: one(setting, value), "order": ()}))


@pytest.mark.parametrize(("owner", "setting"), EVERY)
def test_values_are_within_their_limits(owner: str, setting: Setting) -> None:
    assert setting.limit is not None
    least, most, advice, is_open = setting.limit
    whole = "float" not in str(setting.kind)
    inside = [least + 1 if is_open else least, *([most] if isfinite(most) else [])]
    for value in inside:
        checked(owner, setting, int(value) if whole else value)
    below = [least] if is_open else [least - 1 if whole else nextafter(least, -1), *([] if whole else [-1.0])]
    above = [most + 1, 10**20] if whole else [*([1.1 * most, 1e300] if isfinite(most) else []), float("inf")]
    for value in (*below, *above, *([] if whole else [float("nan")])):
        with pytest.raises(VclError) as refused:
            checked(owner, setting, value)
        begins = f"{setting.shown} is {value}; give "
        assert str(refused.value).startswith(begins)
        said = str(refused.value).removeprefix(begins)
        if whole:
            expected = f"at most {most:,}." if value > most else f"at least {least:g}."
            assert said == expected or (advice and value < least and said == f"{advice.removeprefix('give ')}.")
        else:
            assert re.search(rf"\b{re.escape(f'{least:g}')}\b", said)
            assert not isfinite(most) or f"{most:g}" in said


def test_every_number_has_limits() -> None:
    """Counts without a limit would be tried whatever they are; an order is looked at as a whole."""
    free = {
        f"{owner} {setting.name}"
        for owner, kind in CLASSES.items()
        for setting in settings_in(kind).values()
        if setting.limit is None and re.search(r"\b(int|float)\b", str(setting.kind))
    }
    assert {each.rpartition(" ")[2] for each in free} == {"order"}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("init_var", 1e-12, 1e6),
        ("prior_var", 1e-12, 1e6),
        ("init_sd", 1e-6, 1e3),
        ("damping", 1e-12, 1e6),
        ("lam", 0, 1e12),
        ("average", 0, 1),
        ("tasks", 1, 10**4),
        ("epochs", 1, 10**6),
        ("coreset_epochs", 1, 10**6),
        ("predict_draws", 1, 10**6),
        ("classifier_epochs", 1, 10**6),
        ("ll_draws", 1, 10**6),
        ("ll_drawn", 0, 10**6),
        ("batch", 1, 10**9),
        ("hidden", 1, 10**9),
        ("draws", 1, 10**9),
        ("seeds", 1, 10**9),
        ("coreset", 1, 10**9),
        ("images", 1, 10**9),
        ("train_limit", 1, 10**9),
        ("particles", 2, 10**9),
    ],
)
def test_the_limits_of_a_name_are_the_same_wherever_it_is(name: str, least: float, most: float) -> None:
    """Beyond them numbers of single precision overflow or vanish, or nobody can wait for the end."""
    found = {setting.limit[:2] for _, setting in LIMITED if setting.limit and setting.name == name}
    assert found == {(least, most)}


def test_an_order_of_many_tasks_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(VclError, match="name each of 0 to 9999 once"):
        base("tasks=10000", "order=0,1,2")


@pytest.mark.parametrize("hidden", [(), (8, 0), (-1,)])
def test_there_is_at_least_one_hidden_layer_of_one_unit(hidden: tuple[int, ...]) -> None:
    with pytest.raises(VclError, match=rf"^hidden is {','.join(map(str, hidden)) or 'none'}; give at least one layer"):
        check(Mlp(hidden))


@pytest.mark.parametrize("order", ["0,1", "0,1,1", "1,2,3"])
def test_an_order_names_every_task_once(order: str) -> None:
    with pytest.raises(VclError, match=r"order is .*; name each of 0,1,2 once"):
        base("tasks=3", f"order={order}")
    assert values(base("tasks=3", "order=2,0,1"))["stream"]["order"] == (2, 0, 1)


# What a class of settings is.


@dataclass(frozen=True)
class Inner:
    rate: Annotated[Positive, "how fast"] = 0.5
    widths: Annotated[Layers, "how wide"] = (3, 4)


def slow() -> Inner:
    return Inner(rate=0.1)


@dataclass(frozen=True)
class Outer:
    size: Annotated[Count | None, "how", "large"] = None
    inner: Inner = field(default_factory=slow)
    switch: Annotated[bool, "on or off"] = True
    kind: Annotated[Literal["a", "b"], "which"] = "a"


def test_nested_classes_are_flattened() -> None:
    found = settings_in(Outer)
    assert list(found) == ["size", "rate", "widths", "switch", "kind"]
    assert found["size"] == Setting("size", int | None, "how large", Limit(1, 10**9), None)
    assert found["widths"].kind == tuple[int, ...]
    assert values_of(Outer()) == {"size": None, "rate": 0.1, "widths": (3, 4), "switch": True, "kind": "a"}
    changed = with_values(Outer(), {"rate": 0.2, "kind": "b", "unknown": 3})
    assert changed == Outer(inner=Inner(rate=0.2), kind="b")


def test_a_nested_class_has_the_defaults_that_it_is_given_there() -> None:
    """Those of the whole, not those of the nested class: generators learn at a rate of their own."""
    assert settings_in(Outer)["rate"].default == 0.1
    assert settings_in(Inner)["rate"].default == 0.5
    rates = {entry.name: settings_in(entry.settings)["lr"].default for entry in GENERATIVE_METHODS}
    assert set(rates.values()) == {1e-4}


@dataclass(frozen=True)
class TwoInners:
    inner: Inner = field(default_factory=Inner)
    other: Inner = field(default_factory=slow)


@dataclass(frozen=True)
class OwnAndInner:
    rate: float = 1.0
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize("kind", [TwoInners, OwnAndInner])
def test_a_name_that_is_there_twice_is_refused(kind: type) -> None:
    with pytest.raises(VclError, match=rf"^its settings {kind.__name__} have rate twice; give each a name of its own"):
        settings_in(kind)


@pytest.mark.parametrize("owner", CLASSES)
def test_the_defaults_that_are_listed_are_those_of_an_instance(owner: str) -> None:
    kind = CLASSES[owner]
    assert {name: setting.default for name, setting in settings_in(kind).items()} == values_of(kind())


def test_a_switch_is_yes_or_no() -> None:
    switch = settings_in(Outer)["switch"]
    assert [parse(switch, text) for text in ("yes", "no")] == [True, False]
    with pytest.raises(VclError, match="setting switch takes yes or no, not 'true'"):
        parse(switch, "true")


@pytest.mark.parametrize("owner", CLASSES)
def test_what_is_listed_can_be_given(owner: str) -> None:
    """Every default, as `--settings` prints it, is read as that default."""
    for setting in settings_in(CLASSES[owner]).values():
        assert parse(setting, text_of(setting.default)) == setting.default, setting.name


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e-3, "0.001"), (1 / 3, repr(1 / 3)), (0.0, "0"), (1e12, "1e+12"), (2.0, "2"), (True, "yes"),
     (False, "no"), (None, "none"), ((), "none"), ((3, 4), "3,4"), (7, "7"), (0, "0"), ("text", "text")],
)  # fmt: skip
def test_a_value_as_text(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("owner", CLASSES)
def test_settings_come_back_from_a_file(owner: str) -> None:
    made = CLASSES[owner]()
    stored = json.loads(json.dumps(values_of(made)))
    assert read_values(CLASSES[owner], stored) == made
    assert read_values(CLASSES[owner], {}) == made, "what is not there has its default"
    assert read_values(CLASSES[owner], {"gone": 3}) == made


@dataclass(frozen=True)
class Moved:
    rate: float = field(default=0.9, metadata={BEFORE: 0.1})


def test_a_setting_that_a_file_lacks_has_the_value_that_it_was_computed_with() -> None:
    assert read_values(Moved, {}) == Moved(0.1)
    assert read_values(Moved, {"rate": 0.9}) == Moved() == Moved(0.9)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"size": "3"}, "the setting size is '3'"),
        ({"size": 2.5}, "the setting size is 2.5"),
        ({"size": True}, "the setting size is True"),
        ({"rate": None}, "the setting rate is None"),
        ({"widths": [3, "4"]}, r"the setting widths is \[3, '4'\]"),
        ({"kind": "c"}, "the setting kind is 'c'"),
        ({"switch": 1}, "the setting switch is 1"),
        ({"size": 0}, "size is 0; give at least 1"),
        ({"rate": -1}, "rate is -1; give a number above 0"),
    ],
)
def test_settings_in_a_file_are_checked(stored: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, VclError), match=message):
        read_values(Outer, stored)


# To whom a change goes.

SHARED = {"stream": Split, "network": Mlp, "run": RunSettings}
OWN = {"vcl": Vcl, "ewc": Ewc, "si": Si}


def test_a_name_goes_to_every_method_that_has_it() -> None:
    assert assign(["lam=3", "epochs=4", "hidden=5"], SHARED, OWN) == {
        "stream": {}, "network": {"hidden": (5,)}, "run": {},
        "vcl": {"epochs": 4}, "ewc": {"lam": 3.0, "epochs": 4}, "si": {"lam": 3.0, "epochs": 4},
    }  # fmt: skip


def test_a_qualified_name_goes_to_one_part_alone() -> None:
    found = assign(["ewc.lambda=3", "network.hidden=5", "epochs=4", "si.epochs=6"], SHARED, OWN)
    assert (found["ewc"], found["si"], found["vcl"]) == ({"lam": 3.0, "epochs": 4}, {"epochs": 6}, {"epochs": 4})
    assert found["network"] == {"hidden": (5,)}
    plan = base("vcl.draws=4", methods="vcl,vcl-random")
    assert {name: own["draws"] for name, own in values(plan).items() if "draws" in own} == {"vcl": 4, "vcl-random": 2}


def test_of_a_qualified_and_an_unqualified_change_the_last_counts() -> None:
    for changes, wanted in ((["vcl.draws=4", "draws=5"], 5), (["draws=5", "vcl.draws=4"], 4)):
        made = values(base(*changes, methods="vcl,vcl-random"))
        assert (made["vcl"]["draws"], made["vcl-random"]["draws"]) == (wanted, 5)


@dataclass(frozen=True)
class WithTasks:
    """The settings of a method that has a name of the stream's."""

    tasks: Annotated[Count, "how many of something else"] = 3
    hidden: Annotated[Count, "of something else too"] = 3


def test_a_name_that_a_shared_part_and_a_method_have_must_be_qualified() -> None:
    methods = {"mine": WithTasks, "vcl": Vcl}
    with pytest.raises(
        VclError, match=r"^--set tasks=4 is ambiguous: stream, mine have it; give one of stream.tasks, mine.tasks\.$"
    ):
        assign(["tasks=4"], SHARED, methods)
    assert assign(["mine.tasks=4"], SHARED, methods)["mine"] == {"tasks": 4}
    assert assign(["mine.tasks=4"], SHARED, methods)["stream"] == {}
    assert assign(["stream.tasks=4"], SHARED, methods)["stream"] == {"tasks": 4}
    # Two methods that have it are no ambiguity, two shared parts are one.
    assert assign(["tasks=4"], {"network": Mlp}, {"a": WithTasks, "b": WithTasks})["b"] == {"tasks": 4}
    with pytest.raises(VclError, match=r"ambiguous: stream, network have it; give one of stream.tasks, network.tasks"):
        assign(["tasks=4"], {"stream": Split, "network": WithTasks}, {})


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("vlc.draws=4", "unknown part 'vlc': did you mean 'vcl'? Accepted: ewc, network, run, si, stream, vcl."),
        ("mle.epochs=4", "unknown part 'mle'"),
        ("vcl.lam=4", "unknown setting 'lambda'"),
        ("stream.epochs=4", "unknown setting 'epochs'; accepted: "),
        ("vcl.drawn=4", "unknown setting 'drawn': did you mean 'draws'? Accepted: "),
        ("particles=10", "unknown setting 'particles'"),
        ("vcl.draws=0.5", "setting draws takes a whole number, not '0.5'"),
    ],
)
def test_a_part_or_a_setting_that_is_not_there_is_refused(pair: str, message: str) -> None:
    with pytest.raises(VclError, match=re.escape(message)):
        assign([pair], SHARED, OWN)


def test_what_only_a_method_that_was_not_chosen_has_goes_nowhere() -> None:
    """Several plans may share their changes; whether any method of them uses one is looked at later."""
    chosen, others = {"vcl": Vcl}, {"vcl": Vcl, "ewc": Ewc}
    nothing: dict[str, Any] = {"stream": {}, "network": {}, "run": {}, "vcl": {}}
    for change in ("lambda=3", "ewc.lambda=3", "ewc.epochs=3"):
        assert assign([change], SHARED, chosen, others) == nothing
    assert assign(["epochs=3"], SHARED, chosen, others) == {**nothing, "vcl": {"epochs": 3}}
    for change, message in (
        ("lambda=-1", "lambda is -1.0; give a number from 0"),
        ("lambda=much", "setting lambda takes a number, not 'much'"),
        ("ewc.draws=3", "unknown setting 'draws'"),
        ("lamda=3", "unknown setting 'lamda'"),
        ("si.lambda=3", "unknown part 'si'"),
    ):
        with pytest.raises(VclError, match=re.escape(message)):
            assign([change], SHARED, chosen, others)


def test_of_a_part_its_own_settings_are_named() -> None:
    with pytest.raises(VclError) as refused:
        assign(["vcl.colour=red"], SHARED, OWN)
    accepted = str(refused.value).partition("Accepted: ")[2].rstrip(".").split(", ")
    assert accepted == sorted(settings_in(Vcl))


def test_a_change_in_its_pieces() -> None:
    assert split_change("vcl.draws=4") == ("vcl", "draws", "4")
    assert split_change("lambda=a=b") == ("", "lam", "a=b")
    assert split_change("ewc.lambda=1") == ("ewc", "lam", "1")


def test_a_limit_is_checked_where_the_change_goes() -> None:
    with pytest.raises(VclError, match="draws is 0; give at least 1"):
        base("vcl.draws=0", methods="vcl,ewc")
    with pytest.raises(VclError, match="tasks is 0; give at least 1"):
        base("stream.tasks=0")


# `vcl run … --settings`.


def test_every_setting_has_a_meaning() -> None:
    for owner, kind in CLASSES.items():
        for setting in settings_in(kind).values():
            assert setting.meaning, f"{owner} {setting.name}"
            assert not setting.meaning.endswith("."), setting.meaning


def origins(line: str) -> dict[str, set[str]]:
    """What `--settings` prints beside each name: its value, its meaning and its origin, in whichever columns."""
    result = call(f"{line} --settings")
    assert result.exit_code == 0, result.exception
    found, part = dict[str, set[str]](), ""
    for text in result.output.splitlines():
        name, *cells = [cell for cell in re.split(r"\s*│\s*|\s{2,}", text.strip("│ ")) if cell] or [""]
        part = name if name and not cells else part  # a line of its own, where names are not qualified
        if len(cells) == 3:
            found[name if "." in name else f"{part}.{name}"] = set(cells)
    return {name: cells for name, cells in found.items() if name.partition(".")[2] not in ("", "setting")}


@pytest.fixture
def wide(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(tmp_path, monkeypatch)
    monkeypatch.setenv("COLUMNS", "220")


def test_the_list_of_settings(wide: None) -> None:
    found = origins(
        "run permuted-mnist --preset quick --method vcl,ewc,vcl-restart --device cpu "
        "--set draws=3 --set ewc.batch=none --set test_limit=50 --set run.seeds=4"
    )
    plan = make_plan("permuted-mnist", "vcl,ewc,vcl-restart", "quick", None, "cpu")
    assert set(found) == {f"{part}.{settings_shown(name)}" for part, own in values(plan).items() for name in own}
    for name, wanted in {
        "vcl.init_sd": {"0.1", "standard deviation of the initial means", "default"},
        "stream.order": {"none", "default"},
        "stream.tasks": {"4", "tasks", "preset quick"},
        "stream.test_limit": {"50", "given"},
        "run.seeds": {"4", "given"},
        "vcl.epochs": {"10", "passes over a task's data", "preset quick"},
        "vcl.draws": {"3", "draws of theta a step", "given"},
        "ewc.batch": {"none", "given"},
        "vcl.batch": {"256", "preset quick"},
        "ewc.lambda": {"100", "lambda, the weight of the past", "preset quick, for ewc"},
        "vcl-restart.start": {"restart", "method"},
        "vcl-restart.lr": {"0.005", "preset quick, for vcl-restart"},
        "vcl.start": {"continue", "default"},
    }.items():
        assert wanted <= found[name], name


def settings_shown(name: str) -> str:
    return "lambda" if name == "lam" else name


def test_seeds_that_are_given_by_their_own_option_are_given(wide: None) -> None:
    assert {"7", "given"} <= origins("run split-digits --preset smoke --seeds 7")["run.seeds"]
    assert {"2", "given"} <= origins("run split-digits --preset smoke --set epochs=2")["vcl.epochs"]


def test_the_list_needs_no_data_and_makes_nothing(wide: None, tmp_path: Any) -> None:
    assert "network.hidden" in origins("run split-mnist --preset paper --method vcl")
    assert list((tmp_path / "here").iterdir()) == []


def test_the_list_refuses_what_a_run_refuses(wide: None) -> None:
    assert "unknown setting 'epoch'" in fault("run split-digits --set epoch=3 --settings")
    assert "changes nothing" in fault("run split-digits --method mle --set predict_draws=3 --settings")


def test_a_setting_of_a_type_that_no_text_can_be_is_refused() -> None:
    for kind, said in (
        (list[int], "list"), (dict[str, int], "dict"), (Decimal, "Decimal"), (tuple[int, int], "tuple"),
        (int | str, "int | str"), (Any, "Any"), (Literal[1, 2], "Literal"),
    ):  # fmt: skip
        with pytest.raises(VclError, match=rf"its setting k is of the type .*{re.escape(said)}.*, which --set cannot"):
            settings_in(make_dataclass("Mine", [("k", kind)]))


def test_values_of_every_type_that_a_setting_may_have() -> None:
    kinds = {
        "i": int, "f": float, "b": bool, "s": str, "l": Literal["x", "y"], "t": tuple[int, ...], "u": tuple[float, ...],
        "n": None | float, "o": Literal["x"] | None,
    }  # fmt: skip
    known = settings_in(make_dataclass("Mine", kinds.items()))
    texts = {
        "i": "1_0", "f": "1e-3", "b": "yes", "s": "a,b", "l": "y", "t": "1,2", "u": "0.5,2", "n": "2", "o": "none"
    }  # fmt: skip
    assert {name: parse(known[name], text) for name, text in texts.items()} == {
        "i": 10, "f": 0.001, "b": True, "s": "a,b", "l": "y", "t": (1, 2), "u": (0.5, 2.0), "n": 2.0, "o": None
    }  # fmt: skip
    assert parse(known["n"], "none") is None
    for name, said in (("u", "takes numbers with commas between, not 'x'"), ("n", "takes a number or none, not 'x'")):
        with pytest.raises(VclError, match=said):
            parse(known[name], "x")
