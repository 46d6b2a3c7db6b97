"""What the numbers of one method depend on, in full, and when two such descriptions are of the same numbers.

A description holds every value, those that equal a default too. The policy:

- A part is the same if every value that is stored with it equals today's.
- A field that was added later leaves it the same, if today's value is that field's default.
- A field that is gone, a changed value and a changed default make it another.
- A value that the numbers do not depend on is not in the description. So a setting whose change leaves the description
  of a method as it is, is a setting that the method does not use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from vcl.errors import VclError
from vcl.lab.kind import MethodEntry
from vcl.lab.settings import ALIASES

if TYPE_CHECKING:
    from vcl.lab.plan import Plan

CLASS = ""
"""The key under which the name of a dataclass stands in its description."""


def depends_on(plan: Plan, entry: MethodEntry, settings: Any = None) -> dict[str, Any]:
    """All that the numbers of a method follow from, beside the data and the runs: live values, to be described.

    ``settings`` stand in the place of the plan's own, if given.
    """
    settings = plan.settings_of(entry) if settings is None else settings
    kind, on_gpu = plan.experiment.kind, plan.device.type == "cuda"
    return {
        "experiment": plan.experiment.name,
        "stream": Chosen(settings, kind.stream),
        "network": Chosen(settings, [name for name in kind.network if name not in entry.ignores]),
        "method": plan.build(entry, settings),
        "prediction": Chosen(settings, kind.prediction(entry)),
        "device": plan.device.type,
        "matmul": settings.matmul if on_gpu else "float32",  # CPUs never round factors
    }


class Chosen:
    """Some of the fields of a settings dataclass."""

    def __init__(self, settings: Any, names: Iterable[str]) -> None:
        self.settings, self.names = settings, tuple(names)


def described(value: Any) -> Any:
    """A value as JSON holds it: a dataclass by its name and all its fields."""
    if isinstance(value, Mapping):
        return {key: described(each) for key, each in value.items()}
    if is_dataclass(value) or isinstance(value, Chosen):
        name = {} if isinstance(value, Chosen) else {CLASS: type(value).__name__}
        return name | {key: described(own) for key, own, _ in _entries(value)}
    if isinstance(value, list | tuple):
        return [described(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def same(stored: Any, value: Any) -> bool:
    """Whether a stored description is one of today's ``value``: see the policy above."""
    if isinstance(value, Mapping):
        entries: Sequence[tuple[str, Any, Any]] = [(key, each, MISSING) for key, each in value.items()]
    elif is_dataclass(value) or isinstance(value, Chosen):
        named = is_dataclass(value)
        if not isinstance(stored, dict) or (named and stored.get(CLASS) != type(value).__name__):
            return False
        stored, entries = {key: each for key, each in stored.items() if key != CLASS}, _entries(value)
    else:
        return bool(stored == described(value))
    if not isinstance(stored, dict) or stored.keys() - {key for key, _, _ in entries}:
        return False
    return all(
        same(stored[key], own) if key in stored else default is not MISSING and own == default
        for key, own, default in entries
    )


def identity(about: Mapping[str, Any]) -> str:
    """A short name that no other description has."""
    return blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=6).hexdigest()


def uses(plan: Plan, entry: MethodEntry, name: str) -> bool:
    """Whether the numbers of a method depend on a setting: whether its description changes with it."""
    if name == "seeds":  # which runs there are, not what each of them does
        return True
    settings = plan.settings_of(entry)
    other = another(get_type_hints(type(settings))[name], getattr(settings, name))
    if other is MISSING:
        return False
    changed, plan = replace(settings, **{name: other}), replace(plan, grid={})  # a grid may have any number of runs
    return bool(described(depends_on(plan, entry, settings)) != described(depends_on(plan, entry, changed)))


def another(kind: Any, value: Any) -> Any:
    """A value of a setting's type that is not ``value``; MISSING if there is none."""
    if get_origin(kind) is Literal:
        return next((option for option in get_args(kind) if option != value), MISSING)
    if value is None:
        return 1
    if isinstance(value, tuple):
        return (value[0] + 1, *value[1:]) if value else (1, 0)
    return value + 1 if isinstance(value, int) else value / 2 or 0.5


def check_used(plans: Sequence[Plan]) -> None:
    """Raise one clear sentence if the user changed a setting that no method of these plans uses."""
    for name in dict.fromkeys(_key(change) for plan in plans for change in plan.changes):
        pairs = [(plan, entry) for plan in plans for entry in plan.methods]
        if not any(uses(plan, entry, name) for plan, entry in pairs):
            methods = dict.fromkeys(entry.name for _, entry in pairs)
            known = dict.fromkeys(key for plan, entry in pairs for key in vars(plan.settings) if uses(plan, entry, key))
            shown = {value: key for key, value in ALIASES.items()}
            raise VclError(
                f"setting {shown.get(name, name)} changes nothing for {', '.join(methods)} on {plans[0].device.type}; "
                f"leave it out. What can be set here: {', '.join(sorted(shown.get(key, key) for key in known))}."
            )


def unused(plan: Plan) -> list[str]:
    """One sentence for each setting that the user changed and that some methods of the plan do not use."""
    found = []
    shown = {value: key for key, value in ALIASES.items()}
    for name in dict.fromkeys(map(_key, plan.changes)):
        using = [entry.name for entry in plan.methods if uses(plan, entry, name)]
        others = [entry.name for entry in plan.methods if entry.name not in using]
        if using and others:
            found.append(
                f"note: setting {shown.get(name, name)} changes nothing for {', '.join(others)}; it is for "
                f"{', '.join(using)}."
            )
    return found


def _key(change: str) -> str:
    given = change.partition("=")[0]
    return ALIASES.get(given, given)


def _entries(value: Any) -> list[tuple[str, Any, Any]]:
    """Name, value and default (or MISSING) of each field."""
    owner, wanted = (value.settings, value.names) if isinstance(value, Chosen) else (value, None)
    return [
        (field.name, getattr(owner, field.name), _default(field))
        for field in fields(owner)
        if wanted is None or field.name in wanted
    ]


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
