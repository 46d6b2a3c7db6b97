"""What stored parts without a field were computed with is written down for every field of vcl, and stays."""

from __future__ import annotations

import json
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any

from vcl.lab.experiments import EXPERIMENTS
from vcl.lab.identity import FORMAT, Flat, _entries, described, description
from vcl.lab.methods.generators import GENERATIVE_METHODS
from vcl.lab.methods.networks import METHODS
from vcl.lab.plan import make_plan

KNOWN = Path(__file__).with_name("befores.json")
WHAT_TO_DO = (
    "A new field goes into befores.json. A default that has changed does not: the field keeps the old value for "
    "parts without it, by metadata={'before': old}, since those parts were computed with it. See vcl.lab.identity."
)


def collect(value: Any, found: dict[str, dict[str, Any]]) -> None:
    """The value that counts where a field is missing, for every class within a description."""
    owner = value.settings if isinstance(value, Flat) else value
    for entry in _entries(value) or []:
        if entry.before is not MISSING and is_dataclass(owner):
            kind = type(owner)
            found.setdefault(f"{kind.__module__}.{kind.__qualname__}", {})[entry.key] = described(entry.before)
        collect(entry.value, found)


def befores() -> dict[str, Any]:
    """Of all methods on all experiments."""
    found: dict[str, dict[str, Any]] = {}
    for each in EXPERIMENTS:
        names = [entry.name for entry in (METHODS if each.models == "networks" else GENERATIVE_METHODS)]
        dataset = None if each.dataset or each.makes_data else "digits"
        plan = make_plan(each.name, ",".join(names), "paper", None, "cpu", dataset=dataset)
        for entry in plan.methods:
            collect(description(plan, entry, None, {}), found)
    return {"format": FORMAT, **dict(sorted(found.items()))}


def text(found: dict[str, Any]) -> str:
    """One line for each class."""
    lines = [f" {json.dumps(kind)}: {json.dumps(values)}" for kind, values in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_what_counts_for_parts_without_a_field_never_changes() -> None:
    assert json.loads(text(befores())) == json.loads(KNOWN.read_text()), WHAT_TO_DO
    assert len(json.loads(KNOWN.read_text())) > 30
