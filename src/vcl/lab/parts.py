"""Which stacks are of one part, which parts are compared with each other, and what their lines are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from vcl.errors import VclError
from vcl.lab.experiments.experiment import PARTS, Experiment, Preset
from vcl.lab.identity import described, same_stored
from vcl.lab.plan import Plan, make_plan
from vcl.lab.settings import SHOWN, split_change, text_of, values_of
from vcl.lab.store import Stack

LIMITS = ("train_limit", "test_limit")
"""Settings of a stream that leave its tasks what they are."""


def same_part(one: Stack, other: Stack) -> bool:
    """Whether two stacks are of one part: the policy of :mod:`vcl.lab.identity`."""
    pairs = ((one.known, other.known), (other.known, one.known))
    return any(same_stored(a["description"], b["description"], b.get("defaults", ())) for a, b in pairs)


def compared(one: Stack, other: Stack) -> bool:
    """Whether two stacks stand in one table: one experiment, on the same data, with the same stream of tasks."""

    def about(known: Mapping[str, Any]) -> dict[str, Any]:
        names = {"experiment": known["experiment"], "validation": known.get("validation")}
        return names | {key: known["description"].get(key) for key in ("data", "stream")}

    pairs = ((one.known, other.known), (other.known, one.known))
    return any(same_stored(about(a), about(b), b.get("defaults", ())) for a, b in pairs)


def gathered(stacks: Sequence[Stack], alike: Callable[[Stack, Stack], bool]) -> list[list[Stack]]:
    """Stacks that are alike, together; ``stacks`` and what is returned are oldest first.

    The newest stack decides, as today's description does in the store: a default may have changed since the others.
    """
    left, found = list(stacks), list[list[Stack]]()
    while left:
        newest = left[-1]
        mine = [stack for stack in left if stack is newest or alike(stack, newest)]
        chosen = {stack.folder for stack in mine}
        left = [stack for stack in left if stack.folder not in chosen]
        found.append(mine)
    order = {stack.folder: place for place, stack in enumerate(stacks)}
    return sorted(found, key=lambda mine: order[mine[0].folder])


def labels(stacks: Sequence[Stack]) -> dict[Path, str]:
    """The label of each stack's part by the stack's folder, for stacks that are compared; no two parts share one.

    It is the method's name, with the changes that not all parts have, and with the preset where there are several.
    """
    parts, found = gathered(stacks, same_part), dict[Path, str]()
    common = set.intersection(*(_shared(part[0]) for part in parts)) if parts else set()
    presets = {part[0].known["preset"] for part in parts}
    for part in parts:
        known = part[0].known
        shown = " ".join([str(known["method"]), *(c for c in _changes(part[0]) if c not in common)])
        if len(presets) > 1:
            shown += f" ({known['preset']})"
        about = known["description"].get("method")
        code = about.get("code") if isinstance(about, dict) else None
        if shown in found.values() and isinstance(code, str):  # a plugin's file was edited
            shown += f" (code {code[:6]})"
        number, base = 2, shown
        while shown in found.values():
            shown, number = f"{base} #{number}", number + 1
        found |= {stack.folder: shown for stack in part}
    return found


def streams_apart(group: Sequence[Stack], others: Sequence[Sequence[Stack]]) -> list[str]:
    """What tells the stream of a group from those of other groups, such as ``train_limit=500``.

    What its preset has so is left out: the preset is named beside it.
    """
    newest = group[-1]
    mine, plan = _section(newest, "stream"), _of_preset(newest)
    preset = {} if plan is None else _plain(plan.setup.stream)
    defaults, found = newest.known.get("defaults", ()), list[str]()
    for name, value in mine.items():
        absent = value if f"stream.{name}" in defaults else MISSING
        theirs = [_section(other[-1], "stream").get(name, absent) for other in others]
        if any(other != value for other in theirs) and preset.get(name, MISSING) != value:
            found.append(f"{SHOWN.get(name, name)}={_text(value)}")
    data = newest.known["description"].get("data")
    if any(other[-1].known["description"].get("data") != data for other in others):
        found.append(f"data {str(data)[:6]}")
    return found


def changed_stream(stack: Stack) -> list[str]:
    """The stream's settings that are not its preset's, such as ``heads=shared``."""
    return differing_stream(stack.experiment(), stack.known["preset"], _section(stack, "stream"))


def differing_stream(chosen: Experiment, preset: Preset, stream: Mapping[str, Any]) -> list[str]:
    """The settings of a stored stream that are not a preset's; one that is not stored is taken to be the preset's."""
    wanted = _plain(chosen.presets[preset].stream)
    return [
        f"{SHOWN.get(name, name)}={_text(stream[name])}"
        for name in wanted
        if stream.get(name, wanted[name]) != wanted[name]
    ]


def is_paper_stream(chosen: Experiment, stream: Mapping[str, Any]) -> bool:
    """Whether a stored stream has the paper's tasks, so that its numbers may stand beside; examples may be fewer."""
    wanted = _plain(chosen.presets["paper"].stream)
    return bool(stream) and all(stream.get(name, wanted[name]) == wanted[name] for name in wanted if name not in LIMITS)


def has_paper_stream(stack: Stack) -> bool:
    """Whether a stack's stream has the paper's tasks."""
    return is_paper_stream(stack.experiment(), _section(stack, "stream"))


def _given(stack: Stack) -> list[str]:
    """The changes that were given for a method. Seeds and lambdas are no difference between parts."""
    method, found = str(stack.known["method"]), dict[str, str]()
    stored = {"stream": _section(stack, "stream"), **_stored(stack)}
    for change in stack.known["changes"]:
        part, name, text = split_change(change)
        if part in ("", method, *PARTS) and name not in ("lam", "seeds"):
            places = [part] if part in PARTS else stored
            values = [stored[place][name] for place in places if name in stored.get(place, ())]
            found[f"{part}.{name}" if part in PARTS else name] = _text(values[0]) if values else text
    return [f"{key}={text}" for key, text in found.items()]


def _text(value: Any) -> str:
    """A stored value as ``--set`` takes it."""
    return text_of(tuple(value) if isinstance(value, list) else value)


def _stored(stack: Stack) -> dict[str, Mapping[str, Any]]:
    """What is stored of settings, by their part; those of the method have none. The stream's are left out."""
    return {
        "network": _section(stack, "network"),
        "prediction": _section(stack, "prediction", "settings"),
        "run": {"matmul": stack.known["description"].get("matmul")},
        "": _section(stack, "method", "settings"),
    }


def _shared(stack: Stack) -> set[str]:
    """The changes that a part was made with, those to another method's settings too if it has none of that name."""
    own, found = _section(stack, "method", "settings"), set(_given(stack))
    for part, name, text in map(split_change, stack.known["changes"]):
        if part not in ("", *PARTS) and name not in own:
            found.add(f"{name}={text}")
    return found


def _changes(stack: Stack) -> list[str]:
    """The changes that make a part another than the preset's; the stream is the same for all that are compared."""
    given, plan = _given(stack), None
    if given:
        plan = _of_preset(stack)
    stored = _stored(stack)
    preset: dict[str, Mapping[str, Any]] = {}
    if plan is not None:
        preset = {part: _plain(getattr(plan.setup, part)) for part in PARTS}
        preset[""] = _plain(plan.settings_of(plan.methods[0]))
    found = []
    for change in given:
        part, name, _ = split_change(change)
        places = [place for place in ([part] if part else stored) if name in stored.get(place, ())]
        if any(preset.get(place, {}).get(name, MISSING) != stored[place][name] for place in places):
            found.append(change)
    return found


def _section(stack: Stack, *keys: str) -> dict[str, Any]:
    """A part of a stack's description; empty where it has none."""
    found: Any = stack.known["description"]
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _of_preset(stack: Stack) -> Plan | None:
    """The plan of a stack's preset without changes; None if the method or the dataset is not known here."""
    known = stack.known
    try:
        return make_plan(known["experiment"], known["method"], known["preset"], None, "cpu", dataset=known["dataset"])
    except VclError:
        return None


def _plain(settings: Any) -> dict[str, Any]:
    return {name: described(value) for name, value in values_of(settings).items()}
