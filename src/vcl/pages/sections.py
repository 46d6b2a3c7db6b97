"""Sections of a page beside comparisons: a title, and blocks of text, facts, tables, heat maps, curves and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

Block = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    blocks: Sequence[Block]
    lead: str = ""

    def described(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"title": self.title, "lead": self.lead, "blocks": [dict(block) for block in self.blocks]}


def facts(items: Sequence[tuple[str, object]]) -> Block:
    """A few facts, each with its name."""
    return {"type": "facts", "items": [[name, str(value)] for name, value in items]}


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[str] = (),
    most: int = 50,
    long: Sequence[str] = (),
) -> Block:
    """A table that sorts. A cell is a value, or one of :func:`cell`.

    ``numbers`` names the columns of numbers, ``long`` those of sentences.
    """
    heads = [{"name": name, "number": name in numbers, "long": name in long} for name in columns]
    return {"type": "table", "caption": caption, "columns": heads, "rows": [list(row) for row in rows], "most": most}


def cell(value: Any, text: str, badge: str | None = None, of: tuple[str, str, str] | None = None) -> dict[str, Any]:
    """A cell that sorts by ``value`` and shows ``text``; ``badge`` is good, bad or even.

    ``of`` names the title of a comparison, a line and a metric: the cell leads to these rows after the last task.
    """
    more = {"badge": badge, "of": None if of is None else list(of)}
    return {"value": value, "text": text, **{name: each for name, each in more.items() if each is not None}}


def heat(
    caption: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    log: bool = False,
) -> Block:
    """A heat map of ``values[row][column]``, None where there is none; colours by the logarithm if ``log``."""
    return {
        "type": "heat", "caption": caption, "corner": corner, "rows": list(rows), "columns": list(columns),
        "values": [list(row) for row in values], "log": log,
    }  # fmt: skip


def bars(caption: str, items: Sequence[tuple[str, float, str]]) -> Block:
    """Bars: a name, a value and the value as text."""
    return {"type": "bars", "caption": caption, "items": [list(item) for item in items]}


def curves(
    caption: str,
    label: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    alt: str,
    shares: bool = False,
) -> Block:
    """Curves by name, each of points (x, y), over an axis called ``label``.

    With ``shares`` both axes go from 0 to 1, and a dotted diagonal shows where they are equal.
    """
    xs = [0, 0.2, 0.4, 0.6, 0.8, 1] if shares else sorted({x for points in series.values() for x, _ in points})
    return {
        "type": "lines", "caption": caption, "label": label, "alt": alt, "xs": xs, "shares": shares,
        "series": [{"name": name, "points": [[*point, None] for point in points]} for name, points in series.items()],
    }  # fmt: skip


def images(items: Sequence[tuple[str, str, str]]) -> Block:
    """Pictures: a data URI, what it shows, and a caption."""
    return {"type": "images", "items": [{"source": s, "alt": alt, "caption": caption} for s, alt, caption in items]}
