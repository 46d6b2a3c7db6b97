"""Edits of files, drawn by hypothesis: of what a file says, and of its bytes.

What a file says is a tree of dicts, lists and values, as :mod:`formats` unpacks it. An edit is four numbers, so that
hypothesis can shrink it: what is done, where in the tree or the bytes, with which hostile value, and another number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from math import inf, nan
from typing import Any, NamedTuple

os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"  # one of them imports a package whose name a module here has

from hypothesis import strategies as st

DEEP = 100_000
"""How deep nested values are."""


class Nested:
    """A list in a list in a list, which JSON can say in few bytes; writing it needs no recursion."""


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 256, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**53 + 1, 2**62, 2**63,
    2**64, 10**30, 10**400, -(2**63), 0.5, -0.0, 1e-320, 1e308, inf, -inf, nan, "", "x", "é", "\ud800", "\0", "a\nb",
    "nan", "../../../x", "/etc/hostname", "a" * 10_000, "9" * 5_000, "1_000", "１２", "F64", "BF16", "F8_E5M2", "|O",
    "<f8", "<U9999999", "V8", "M8[ns]", "O", b"", b"\0" * 8, b"\xff" * 8, b"\x80\x04.", [], [0], [[]], [None], [2**40],
    [2**20, 2**20], [-1], ["x"], [[0, "x"]], {}, {"x": 1}, {"": None}, Nested(),
)  # fmt: skip
"""Hostile values of every kind."""

NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)
"""What is written over fields of bytes."""


class Edit(NamedTuple):
    """One change."""

    kind: int
    place: int
    value: int
    more: int


EDIT = st.builds(
    Edit, st.integers(0, 11), st.integers(0, 2**20), st.integers(0, len(VALUES) - 1), st.integers(0, 2**16)
)


class Drawn(NamedTuple):
    """How one input differs from a valid file."""

    base: int
    """Which of the valid files."""
    inside: Sequence[Edit]
    outside: Sequence[Edit]
    whole: bytes | None
    """Instead of all that: any bytes."""


INPUTS = st.one_of(
    st.builds(Drawn, st.integers(0, 9), st.lists(EDIT, min_size=1, max_size=3), st.just(()), st.none()),
    st.builds(Drawn, st.integers(0, 9), st.just(()), st.lists(EDIT, min_size=1, max_size=3), st.none()),
    st.builds(Drawn, st.integers(0, 9), st.lists(EDIT, max_size=2), st.lists(EDIT, max_size=2), st.none()),
    st.builds(Drawn, st.integers(0, 9), st.just(()), st.lists(EDIT, max_size=1), st.binary(max_size=200)),
)
"""What a file says is changed, or its bytes, or both; or they are arbitrary."""


def edited(tree: Any, edits: Sequence[Edit]) -> Any:
    """The tree with some of its values replaced, left out, doubled, moved or put deeper."""
    held = {"": deepcopy(tree)}
    for edit in edits:
        places = list(_places(held))
        if not places:
            break
        inside, key = places[edit.place % len(places)]
        _edit(inside, key, edit, places)
    return next(iter(held.values()), None)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a tree, by what holds it and its key there."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _edit(inside: Any, key: Any, edit: Edit, places: Sequence[tuple[Any, Any]]) -> None:
    value, wrong = inside[key], VALUES[edit.value]
    if edit.kind == 0:
        del inside[key]
    elif edit.kind == 1:
        if isinstance(inside, dict):
            inside[str(wrong)[:40]] = inside.pop(key)
        else:
            inside.insert(key, deepcopy(value))
    elif edit.kind == 2:
        other, at = places[edit.more % len(places)]
        inside[key] = deepcopy(other[at])
    elif edit.kind == 3 and isinstance(value, list | dict | str | bytes) and value:
        inside[key] = _shorter(value, edit.more)
    elif edit.kind == 4 and isinstance(value, list) and value:
        inside[key] = value * (1 + edit.more % 50)
    elif edit.kind == 5 and isinstance(value, int | float):
        inside[key] = value + (1, -1, 8, -8, 2**31, -value - 1)[edit.more % 6]
    elif edit.kind == 6 and isinstance(value, bytes):
        inside[key] = over(value, Edit(edit.more % 7, edit.place, edit.value, edit.more))
    elif edit.kind == 7 and isinstance(value, str):
        inside[key] = value + str(wrong)[:100] if edit.more % 2 else str(wrong)[:100] + value
    elif edit.kind == 8:
        inside[key] = [value]
    else:
        inside[key] = deepcopy(wrong) if not isinstance(wrong, Nested) else wrong


def _shorter(value: Any, more: int) -> Any:
    size = more % len(value)
    return dict(list(value.items())[:size]) if isinstance(value, dict) else value[:size]


def over(content: bytes, edit: Edit) -> bytes:
    """Bytes with one change: a bit, a field, a cut, a gap, a repetition, or other bytes between."""
    at, size = edit.place % (len(content) + 1), 1 + edit.more % 40
    number = NUMBERS[edit.value % len(NUMBERS)]
    width = (1, 2, 4, 8)[edit.more % 4]
    field = (number % 2 ** (8 * width)).to_bytes(width, "big" if edit.more % 8 < 4 else "little")
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: content[:at],
        lambda: content[:at] + content[at + size :],
        lambda: content[:at] + bytes(byte ^ (1 << edit.more % 8) for byte in content[at : at + 1]) + content[at + 1 :],
        lambda: content[:at] + field + content[at + width :],
        lambda: content[:at] + content[at : at + size] * (2 + edit.more % 200) + content[at + size :],
        lambda: content[:at] + raw(VALUES[edit.value]) + content[at:],
        lambda: content + content[at:],
    )
    return changes[edit.kind % len(changes)]()


def raw(value: Any) -> bytes:
    """A hostile value as bytes of a text."""
    if isinstance(value, Nested):
        return b"[" * DEEP
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
