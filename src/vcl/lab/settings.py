"""Settings are dataclasses: each field says what it means and which values it takes. ``--set`` reads them.

    epochs: Annotated[Count, "passes over a task's data"] = 100

A field that is a dataclass itself is flattened: its fields are settings of the whole, so no name may be there twice.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from math import inf, isfinite, nan
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from vcl.errors import VclError, unknown

S = TypeVar("S")

ALIASES = {"lambda": "lam"}
"""Names on the command line that Python keeps for itself."""

SHOWN = {own: alias for alias, own in ALIASES.items()}


class Limit(NamedTuple):
    """The least and the largest value; ``advice`` says what to give instead, where the plain words do not."""

    least: float
    most: float = inf
    advice: str = ""
    open: bool = False
    """Whether the least value itself is refused."""

    def fault(self, value: Any) -> str:
        """What to give instead of ``value``; nothing where it is within the limits."""
        inside = self.least < value if self.open else self.least <= value
        if inside and value <= self.most and (isinstance(value, int) or isfinite(value)):
            return ""
        if isinstance(value, int) and value > self.most:
            return f"give at most {self.most:,}"
        if self.advice:
            return self.advice
        if self.open:
            return f"give a {'' if isfinite(value) else 'finite '}number above {self.least:g}"
        if isinstance(value, int):
            return f"give at least {self.least:g}"
        return f"give a number from {self.least:g} to {self.most:g}"


Count = Annotated[int, Limit(1, 10**9)]
"""How many of something that takes memory; what fits is looked at later (:mod:`vcl.lab.memory`)."""
Repeats = Annotated[int, Limit(1, 10**6)]
"""How many of something that takes time alone."""
Positive = Annotated[float, Limit(0, inf, open=True)]
Variance = Annotated[float, Limit(1e-12, 1e6)]
"""Beyond these limits numbers of single precision overflow or vanish, whatever the learning rate is."""
Deviation = Annotated[float, Limit(1e-6, 1e3)]
Share = Annotated[float, Limit(0, 1, "give a share of the steps, from 0 (none) to 1 (all)")]
Lambda = Annotated[float, Limit(0, 1e12, "give a number from 0 (which forgets) to 1e+12")]
Layers = Annotated[tuple[int, ...], Limit(1, 10**9, "give at least one layer of at least 1 unit, such as 100,100")]


BEFORE = "before"
"""In a field's metadata: what counts for results that were stored before the field was there, once the default changes.

    momentum: float = field(default=0.9, metadata={BEFORE: 0.0})
"""


class Setting(NamedTuple):
    """One field: its name, its type, what it means, its limit and its default (or MISSING)."""

    name: str
    kind: Any
    meaning: str
    limit: Limit | None
    default: Any
    before: Any = MISSING
    """The value of results without it, where that is not the default any more."""

    @property
    def shown(self) -> str:
        """Its name on the command line."""
        return SHOWN.get(self.name, self.name)


KNOWN: dict[type, dict[str, Setting]] = {}
"""The settings of the classes that were looked at."""


def settings_in(kind: type) -> dict[str, Setting]:
    """The settings of a dataclass by name, nested ones flattened."""
    if kind not in KNOWN:
        KNOWN[kind] = _settings_in(kind)
    return KNOWN[kind]


def _settings_in(kind: Any) -> dict[str, Setting]:
    hints, found = typing.get_type_hints(kind, include_extras=True), dict[str, Setting]()

    def add(setting: Setting) -> None:
        if setting.name in found:
            raise VclError(f"its settings {kind.__qualname__} have {setting.name} twice; give each a name of its own.")
        found[setting.name] = setting

    for field in fields(kind):
        notes = getattr(hints[field.name], "__metadata__", ())
        own = typing.get_args(hints[field.name])[0] if notes else hints[field.name]
        if is_dataclass(own):
            start = _default(field)  # its values there, which may differ from the nested class's own defaults
            given = {} if start is MISSING else values_of(start)
            old = values_of(field.metadata[BEFORE]) if BEFORE in field.metadata else {}
            for name, nested in settings_in(own).items():  # type: ignore[arg-type]
                before = old.get(name, nested.before)
                add(nested._replace(default=given.get(name, nested.default), before=before))
            continue
        limits = [note for note in notes if isinstance(note, Limit)] + _limit_within(own)
        words = [note for note in notes if isinstance(note, str)]
        limit, before = limits[0] if limits else None, field.metadata.get(BEFORE, MISSING)
        if not _can_be_given(_plain(own)):
            shown = own.__name__ if isinstance(own, type) else own
            raise VclError(
                f"its setting {field.name} is of the type {shown}, which --set cannot read; give int, float, bool, "
                "str, Literal[...], tuple[int, ...], tuple[float, ...], or one of these | None."
            )
        add(Setting(field.name, _plain(own), " ".join(words), limit, _default(field), before))
    return found


SIMPLE = (int, float, bool, str)
"""The types of one value."""


def _can_be_given(kind: Any) -> bool:
    """Whether a text of the command line can be a value of this type."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if _is_union(kind):
        return len(options) == 2 and type(None) in options and all(map(_can_be_given, _without_none(options)))
    if origin is Literal:
        return all(isinstance(each, str) for each in options)
    return kind in SIMPLE or (origin is tuple and options in ((int, ...), (float, ...)))


def _is_union(kind: Any) -> bool:
    return isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union


def _without_none(options: Iterable[Any]) -> list[Any]:
    return [each for each in options if each is not type(None)]


def values_of(settings: Any) -> dict[str, Any]:
    """The values of a settings dataclass by name, nested ones flattened."""
    found: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        found |= values_of(value) if is_dataclass(value) else {field.name: value}
    return found


def with_values(settings: S, values: Mapping[str, Any]) -> S:
    """The same settings with some values replaced, wherever they are nested."""
    changes: dict[str, Any] = {}
    for field in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if is_dataclass(value):
            changes[field.name] = with_values(value, values)
        elif field.name in values:
            changes[field.name] = values[field.name]
    return replace(settings, **changes)  # type: ignore[type-var]


def check(settings: Any) -> None:
    """Raise one clear sentence unless every value is within its limits and the settings' own ``check`` is content."""
    known = settings_in(type(settings))
    for name, value in values_of(settings).items():
        check_value(known[name], value)
    own: Callable[[], None] | None = getattr(settings, "check", None)
    if own is not None:
        own()


def check_value(setting: Setting, value: Any, told: str = "") -> None:
    """Raise one clear sentence unless the value is within the setting's limits; ``told`` may begin it otherwise."""
    if setting.limit is None or value is None:
        return
    several = isinstance(value, tuple)
    faults = [setting.limit.fault(each) for each in value] if several else [setting.limit.fault(value)]
    if several and not value:
        faults = [setting.limit.advice]
    fault = next((fault for fault in faults if fault), "")
    if fault:
        shown = text_of(value) if value == () else _listed(value)
        raise VclError(f"{told or f'{setting.shown} is {shown}'}; {fault}.")


def parse(setting: Setting, text: str) -> Any:
    """The value that a text on the command line means."""
    optional = _is_union(setting.kind)
    if optional and text == "none":
        return None
    (kind,) = _without_none(typing.get_args(setting.kind)) if optional else (setting.kind,)
    options = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        if text not in options:
            raise unknown(setting.shown, text, (*options, "none") if optional else options)
        return text
    try:
        if typing.get_origin(kind) is tuple:
            return tuple(options[0](part) for part in text.split(",")) if text != "none" else ()
        if kind is bool:
            return {"yes": True, "no": False}[text]
        return kind(text)
    except (ValueError, KeyError):
        what = {int: "a whole number", float: "a number", bool: "yes or no"}.get(kind)
        several = f"{'whole ' if options[:1] == (int,) else ''}numbers with commas between"
        none = " or none" if optional else ""
        raise VclError(f"setting {setting.shown} takes {what or several}{none}, not {text!r}.") from None


def read_values(kind: type[S], stored: Mapping[str, Any]) -> S:
    """Settings of a class from JSON, every value checked. Raises ValueError where a value is not of its type."""
    known = settings_in(kind)
    values = {name: each.before for name, each in known.items() if each.before is not MISSING}
    for name, value in stored.items():
        if name in known:
            kept = nan if (value, known[name].kind) == ("nan", float) else value  # as a description has it
            values[name] = tuple(kept) if isinstance(kept, list) else kept
            if not _is(values[name], known[name].kind):
                raise ValueError(f"the setting {name} is {value!r}")
    made = _make(kind, values)
    check(made)
    return made


def text_of(value: Any) -> str:
    """A value as ``--set`` takes it, however it was written."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return "none" if value is None or value == () else _listed(value)


def split_change(change: str) -> tuple[str, str, str]:
    """The part (or nothing), the name and the text of ``part.name=text``."""
    key, equals, text = change.partition("=")
    if not equals:
        raise VclError(f"--set {change!r} is not of the form key=value, such as --set epochs=20.")
    part, _, name = key.rpartition(".")
    return part, ALIASES.get(name, name), text


def assign(
    changes: Iterable[str],
    shared: Mapping[str, type],
    methods: Mapping[str, type],
    others: Mapping[str, type] | None = None,
) -> dict[str, dict[str, Any]]:
    """The values of ``part.name=text`` pairs by part: ``shared`` parts are there once, the others are methods.

    A name without a part goes to the one shared part that has it, or to every method that has it. It is ambiguous,
    and refused, where both kinds have it. What only ``others`` have, methods that were not chosen, goes nowhere.
    """
    parts, found = {**shared, **methods}, {part: dict[str, Any]() for part in (*shared, *methods)}
    known = {**(others or {}), **parts}
    for change in changes:
        part, name, text = split_change(change)
        if part and part not in known:
            raise unknown("part", part, parts)
        having = [each for each in ([part] if part else known) if name in settings_in(known[each])]
        owners = [each for each in parts if each in having]
        if not having:
            raise unknown("setting", SHOWN.get(name, name), _names(known if part else parts, part))
        if not owners:
            setting = settings_in(known[having[0]])[name]
            check_value(setting, parse(setting, text))
        once = [each for each in owners if each in shared]
        if len(once) > 1 or (once and len(once) < len(owners)):
            choices = ", ".join(f"{each}.{name}" for each in owners)
            raise VclError(f"--set {change} is ambiguous: {', '.join(owners)} have it; give one of {choices}.")
        for owner in owners:
            found[owner][name] = parse(settings_in(parts[owner])[name], text)
    return found


def _names(parts: Mapping[str, type], part: str) -> list[str]:
    kinds = [parts[part]] if part else list(parts.values())
    return sorted({setting.shown for kind in kinds for setting in settings_in(kind).values()})


def _make(kind: type[S], values: Mapping[str, Any]) -> S:
    hints, made = typing.get_type_hints(kind), dict[str, Any]()
    for field in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(hints[field.name]):
            start = _default(field)
            made[field.name] = _make(hints[field.name], values) if start is MISSING else with_values(start, values)
        elif field.name in values:
            made[field.name] = values[field.name]
    return kind(**made)


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(kind: Any) -> Any:
    """A type without its notes."""
    if typing.get_origin(kind) is Annotated:
        return _plain(typing.get_args(kind)[0])
    if _is_union(kind):
        first, *rest = (_plain(option) for option in typing.get_args(kind))
        for option in rest:
            first |= option
        return first
    return kind


def _limit_within(kind: Any) -> list[Limit]:
    """The limit of an option of a union, such as Count | None."""
    notes = [note for option in typing.get_args(kind) for note in getattr(option, "__metadata__", ())]
    return [note for note in notes if isinstance(note, Limit)]


def _listed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _is(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a setting's type."""
    options = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return value in options
    if _is_union(kind):
        return any(_is(value, option) for option in options)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is(each, options[0]) for each in value)
    if kind is float:
        return type(value) in (int, float)
    return value is None if kind is type(None) else type(value) is kind
