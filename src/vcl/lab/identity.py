"""What the numbers of a part depend on, in full, and when two such descriptions are of the same numbers.

A description holds every value, those that equal a default too. The policy:

- A part is the same if every value that is stored with it equals today's.
- A field that was added later leaves it the same, if today's value is what parts without the field were computed with.
  That is the field's default. Where the default is changed afterwards, the field names the first one, by
  ``metadata={"before": ...}``. A list of these values (tests/lab/befores.json) holds vcl's own fields to that; a
  plugin's source is in the description.
- A field that is gone, a changed value and a changed default make it another.
- The name of a class is not in a description: renaming one is no change.
- A plugin's entry is described with a digest of its source files (:mod:`vcl.lab.sources`): an edited plugin makes
  another part. Entries of vcl itself have a version instead, which is raised when the same settings give other numbers.
- Data counts by its content. Of the data that a plugin's experiment makes itself, the tasks of seed 0 are digested: the
  seeds are not in a description.
- A value that the numbers do not depend on is not in the description. Seeds and lambdas are not in it either: they say
  which runs a part has, so more of them add to the same part.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from hashlib import blake2b
from math import isnan
from pathlib import PurePath
from struct import calcsize
from types import MemberDescriptorType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from vcl.errors import VclError
from vcl.lab.registry import code_of
from vcl.lab.settings import BEFORE, settings_in, values_of, with_values
from vcl.ops.rng import Rng

if TYPE_CHECKING:
    from vcl.lab.experiments.experiment import Experiment
    from vcl.lab.methods.entry import MethodEntry
    from vcl.lab.plan import Plan

FORMAT = 3
"""Raised when the same description would give other numbers."""


PLAIN = (torch.dtype, torch.device, np.dtype, bytes, range, complex, PurePath)
"""Described by what they print."""

SIMPLE = (type, list, tuple, torch.Tensor, np.ndarray, np.generic, set, frozenset, bool, int, float, str, *PLAIN)
"""Values without fields."""


POINTER = calcsize("P")
"""Bytes of a field of an object."""


class Flat(NamedTuple):
    """Settings described by the values of their fields, but for some."""

    settings: Any
    without: Collection[str] = ()


class Entry(NamedTuple):
    """One value of a description, with the one that parts without it were computed with (or MISSING)."""

    key: str
    value: Any
    before: Any = MISSING

    @property
    def omissible(self) -> bool:
        """Whether a description without it means the same: it has the value that parts without it were made with."""
        return self.before is not MISSING and bool(described(self.value) == described(self.before))


def description(plan: Plan, entry: MethodEntry, data: str | None, prepared: Mapping[str, Any]) -> dict[str, Any]:
    """All that the numbers of a method's runs follow from, beside seeds and lambdas: live values, to be described.

    ``data`` is the digest of the dataset, or of what a plugin's experiment makes; ``prepared`` is what the evaluation
    was prepared with.
    """
    found = _of(plan, entry, data, prepared)
    described(found)  # a value that has no description is refused before it is compared with any
    return found


def _of(plan: Plan, entry: MethodEntry, data: str | None, prepared: Mapping[str, Any]) -> dict[str, Any]:
    setup, settings = plan.setup, plan.settings_of(entry)
    at_mean = () if entry.draws else plan.experiment.evaluation.unused_at_mean
    neutral = with_values(settings, {"lam": 1.0})
    return {
        "format": FORMAT,
        "experiment": _named(plan.experiment),
        "data": data,
        "stream": Flat(setup.stream),
        "network": Flat(setup.network, entry.ignores),
        "method": {**_named(entry), "settings": Flat(settings, ("lam",)), "built": entry.made(neutral)},
        "prediction": {"settings": Flat(setup.prediction, at_mean), **prepared},
        "device": plan.device.type,
        "matmul": setup.run.matmul if plan.device.type == "cuda" else "float32",  # CPUs never round factors
    }


def digest_of_made(experiment: Experiment, settings: Any) -> str | None:
    """A digest of the tasks that a plugin's experiment makes itself, for seed 0.

    None for one on a dataset, and for those of vcl, whose versions say what they make.
    """
    if not experiment.makes_data or code_of(experiment) is None:
        return None
    return identity({"tasks": [described(task) for task in experiment.made_stream(None, settings, Rng((0,)))]})


def _named(entry: Any) -> dict[str, Any]:
    code = code_of(entry)
    return {"name": entry.name, "version": entry.version, **({} if code is None else {"code": code})}


def described(value: Any, at: str = "") -> Any:
    """A value as JSON holds it: a dataclass, or any other object, by its fields.

    Raises VclError for a value that no description tells from others of its type; ``at`` is where it is.
    """
    entries = _entries(value, at)
    if entries is not None:
        return {entry.key: described(entry.value, f"{at}.{entry.key}".lstrip(".")) for entry in entries}
    if isinstance(value, list | tuple):
        return [described(each, at) for each in value]
    if isinstance(value, torch.Tensor):
        return _digest(value, at)
    if isinstance(value, float) and isnan(value):
        return "nan"  # equal to itself, unlike the number
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _of_numpy(value, at)
    if isinstance(value, set | frozenset):
        return sorted(map(str, (described(each, at) for each in value)))
    if isinstance(value, PLAIN):
        return str(value)
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '') or value.__name__}"


def _digest(value: torch.Tensor, at: str) -> str:
    if value.layout != torch.strided or value.is_meta or value.is_quantized:
        raise _undescribed(value, at)
    held = value.detach().cpu().contiguous()
    made = blake2b(f"{held.dtype}{tuple(held.shape)}".encode(), digest_size=8)
    made.update(held.flatten().view(torch.uint8).numpy().data)
    return made.hexdigest()


def _of_numpy(value: Any, at: str) -> Any:
    """An array by its content; a number as Python has it."""
    if value.dtype.hasobject or isinstance(value, np.ma.MaskedArray):
        raise _undescribed(value, at)
    if value.dtype.kind in "biufc" and value.dtype.itemsize <= (16 if value.dtype.kind == "c" else 8):
        if isinstance(value, np.generic):
            return described(value.item(), at)
        return _digest(torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C")), at)
    return blake2b(f"{value.dtype.str}{value.shape}".encode() + value.tobytes(), digest_size=8).hexdigest()


def _undescribed(value: Any, at: str) -> VclError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return VclError(
        f"{at or 'a value'} is of the type {kind}, two of which cannot be told apart in what is stored with results; "
        "hold numbers, text, tensors, lists or dataclasses of these instead."
    )


def same(stored: Any, value: Any) -> bool:
    """Whether a stored description is one of today's ``value``: see the policy above."""
    entries = _entries(value)
    if entries is None:
        return bool(stored == json.loads(json.dumps(described(value))))
    if not isinstance(stored, dict) or stored.keys() - {entry.key for entry in entries}:
        return False
    return all(same(stored[entry.key], entry.value) if entry.key in stored else entry.omissible for entry in entries)


def at_default(value: Any, path: str = "") -> Iterator[str]:
    """The places in a description, such as ``stream.order``, whose value parts without the field were made with.

    They are stored with the description, so that it can later be compared with an older one that lacks such fields.
    """
    for entry in _entries(value) or ():
        if entry.omissible:
            yield path + entry.key
        yield from at_default(entry.value, f"{path}{entry.key}.")


def same_stored(older: Any, newer: Any, defaults: Collection[str], path: str = "") -> bool:
    """The policy for two stored descriptions; ``defaults`` are the places of the newer one that have their default."""
    if not isinstance(older, dict) or not isinstance(newer, dict):
        return bool(older == newer)
    return older.keys() <= newer.keys() and all(
        same_stored(older[key], each, defaults, f"{path}{key}.") if key in older else path + key in defaults
        for key, each in newer.items()
    )


def identity(about: Mapping[str, Any]) -> str:
    """A short name that no other description has."""
    return blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=6).hexdigest()


def _entries(value: Any, at: str = "") -> list[Entry] | None:
    """The values within a value; None where it has none. Raises VclError where it hides them."""
    if isinstance(value, Mapping):
        return [Entry(str(key), each) for key, each in value.items()]
    if isinstance(value, Flat):
        known = settings_in(type(value.settings))
        return [
            Entry(name, each, known[name].default if known[name].before is MISSING else known[name].before)
            for name, each in values_of(value.settings).items()
            if name not in value.without
        ]
    if is_dataclass(value) and not isinstance(value, type):
        return [Entry(field.name, getattr(value, field.name), _before(field)) for field in fields(value)]
    if isinstance(value, partial):
        return [Entry("func", value.func), Entry("args", value.args), Entry("keywords", value.keywords)]
    if isinstance(value, MethodType):
        return [Entry("func", value.__func__), Entry("self", value.__self__)]
    named = callable(value) and (hasattr(value, "__qualname__") or isinstance(value, np.ufunc))
    if value is None or isinstance(value, SIMPLE) or named:
        return None
    slots = _slots(type(value))
    if _hides(type(value), len(slots)):
        raise _undescribed(value, at)
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
    return [Entry(name, each) for name, each in sorted(held.items()) if not name.startswith("__")]


def _slots(kind: type) -> list[str]:
    """The fields that classes of Python name, as objects have them."""
    own = [vars(each) for each in kind.__mro__ if "__slots__" in vars(each)]
    return [name for members in own for name, made in members.items() if isinstance(made, MemberDescriptorType)]


def _hides(kind: Any, slots: int) -> bool:
    """Whether objects of a type hold more than fields can tell: those made in C have memory of their own."""
    known = slots + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return bool(kind.__itemsize__ or kind.__basicsize__ > object.__basicsize__ + known * POINTER)


def _before(field: Any) -> Any:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return field.metadata.get(BEFORE, default)
